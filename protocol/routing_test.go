package protocol

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestRouting holds what every client must compute alike: buckets of names, home buckets of create
// ids, parts of session ids.
func TestRouting(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("# bucket <node> <name as hex, - for empty> <buckets> = <bucket>\n")
	for _, node := range []uint64{0, 1, 2, 255, 1 << 40, Forever} {
		for _, name := range []string{"", "a", "leader", "services/billing", "\x00\xff", "semáforo", strings.Repeat("x", 100)} {
			for _, buckets := range []uint32{1, 64, DefaultBuckets} {
				hexed := fmt.Sprintf("%x", name)
				if name == "" {
					hexed = "-"
				}
				fmt.Fprintf(&out, "bucket %d %s %d = %d\n", node, hexed, buckets, Bucket(node, []byte(name), buckets))
			}
		}
	}
	out.WriteString("# home <create id as hex> <buckets> = <bucket>\n")
	for _, id := range []string{strings.Repeat("\x00", KeyLen), "0123456789abcdef", "fedcba9876543210", strings.Repeat("\xff", KeyLen)} {
		for _, buckets := range []uint32{1, 64, DefaultBuckets} {
			fmt.Fprintf(&out, "home %x %d = %d\n", id, buckets, HomeBucket([KeyLen]byte([]byte(id)), buckets))
		}
	}
	out.WriteString("# session <tier> <bucket> <counter> = <session id>\n")
	for _, id := range [][3]uint64{{0, 0, 1}, {0, 1234, 7}, {0, 4095, 1<<36 - 1}, {15, 65535, 1}, {3, 77, 123456789}} {
		fmt.Fprintf(&out, "session %d %d %d = %d\n", id[0], id[1], id[2], MakeSessionID(uint8(id[0]), uint16(id[1]), id[2]))
	}
	out.WriteString("# process <node> <name> <buckets> = <bucket>\n")
	for _, node := range []uint64{1, 1 << 40} {
		for _, name := range []string{"a", "work-queue", "leader"} {
			for _, buckets := range []uint32{1, 64, DefaultBuckets} {
				b := ProcessBucket(node, []byte(name), buckets)
				if same := Bucket(node, []byte("process\x00"+name), buckets); b != same {
					t.Errorf("bucket of process %s of %d is %d, as a name %d", name, buckets, b, same)
				}
				fmt.Fprintf(&out, "process %d %s %d = %d\n", node, name, buckets, b)
			}
		}
	}
	golden(t, "routing.txt", out.Bytes())
}

func TestSessionIDParts(t *testing.T) {
	for tier := range uint8(16) {
		for _, bucket := range []uint16{0, 1, 4095, 65535} {
			for _, counter := range []uint64{1, 1 << 20, 1<<36 - 1} {
				id := MakeSessionID(tier, bucket, counter)
				if SessionTier(id) != tier || SessionBucket(id) != uint32(bucket) || id&(1<<36-1) != counter || id == 0 {
					t.Errorf("session id %#x of tier %d, bucket %d, counter %d", id, tier, bucket, counter)
				}
			}
		}
	}
}

// TestBucketSpread: names that differ little do not crowd into few buckets.
func TestBucketSpread(t *testing.T) {
	const names, buckets = 64 * 100, 64
	var count [buckets]int
	for i := range names {
		count[Bucket(1, fmt.Appendf(nil, "lock-%d", i), buckets)]++
	}
	for b, n := range count {
		if n < 50 || n > 150 {
			t.Errorf("bucket %d got %d of %d names, want about 100", b, n, names)
		}
	}
}

package backup

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// newMap is a cluster's state: a map with shards that have no bucket yet, or are not those of the
// map.
func newMap(t *testing.T) *meta.Machine {
	t.Helper()
	return newMapWithShards(t, 2)
}

var nodeConfig = protocol.NodeConfig{
	SelfCheckPeriod: protocol.DefaultSelfCheckPeriod, GracePeriod: protocol.DefaultGracePeriod,
	ReadConsistency: 1, AttachConsistency: 2, CountersMode: 1,
	MaxSessions: 1000, MaxSemaphores: 1000, MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000,
}

// newMapWithShards is one with these shards.
func newMapWithShards(t *testing.T, shards ...uint64) *meta.Machine {
	t.Helper()
	m := meta.New()
	answer := m.Apply(1, meta.AppendCommand(nil, meta.OpID{1}, &meta.Bootstrap{
		Cluster: "test", Instance: 1, Name: "one", Address: "127.0.0.1:1", RaftAddress: "127.0.0.1:2",
		Tier: "default", Buckets: 8, ReplicationFactor: 1, CanVote: true,
		Shards: shards, NodeConfig: nodeConfig,
	}))
	if res, err := meta.DecodeResult(answer); err != nil || res.Err() != nil {
		t.Fatalf("%v, %v", err, res.Err())
	}
	return m
}

func snapshots(t *testing.T, m *meta.Machine, shards ...uint64) map[uint64][]byte {
	t.Helper()
	out := map[uint64][]byte{}
	var b bytes.Buffer
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	out[0] = bytes.Clone(b.Bytes())
	for _, id := range shards {
		out[id] = snapshot(t, shard.New(id))
	}
	return out
}

func snapshot(t *testing.T, m *shard.Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.BeginSnapshot().WriteTo(&b, new(sync.Mutex)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type part struct {
	Section
	b []byte
}

func writtenFile(t *testing.T, h Head, parts ...part) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if err := w.Section(p.Section); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(p.b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestVerifyRefuses: what is whole by its checksums and is not the state of a cluster is found all
// the same.
func TestVerifyRefuses(t *testing.T) {
	m := newMap(t)
	all := snapshots(t, m, 2, 3)
	section := func(id, index uint64) part {
		return part{Section{Shard: id, Size: uint64(len(all[id])), Index: index}, all[id]}
	}
	head := Head{Cluster: "test", Shards: 1}
	for want, b := range map[string][]byte{
		"no meta shard":                 writtenFile(t, head, section(2, 0)),
		"the backup has 0":              writtenFile(t, head, section(0, 1)),
		"is of cluster other":           writtenFile(t, Head{Cluster: "other", Shards: 1}, section(0, 1), section(2, 0)),
		"speaks of 2":                   writtenFile(t, Head{Cluster: "test", Shards: 2}, section(0, 1), section(2, 0)),
		"shard 2 of the cluster is mis": writtenFile(t, head, section(0, 1), section(3, 0)),
		"the meta shard twice":          writtenFile(t, head, section(0, 1), section(0, 1)),
		"has shard 2 twice":             writtenFile(t, head, section(0, 1), section(2, 0), section(2, 0)),
		"the backup says 9":             writtenFile(t, head, section(0, 9), section(2, 0)),
		"make another one":              writtenFile(t, head, section(0, 1), section(2, 0)), // the shard's buckets were not activated yet
		"this is not a backup":          []byte("sbmeta and so on"),
		"format version 2":              append([]byte(magic), 2),
		"cut short":                     append([]byte(magic), Format),
	} {
		if _, err := Verify(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestWriterChecksSizes: a section that has other bytes than it was to have ends the file.
func TestWriterChecksSizes(t *testing.T) {
	for name, do := range map[string]func(w *Writer) error{
		"more": func(w *Writer) error {
			_, err := w.Write([]byte("1234"))
			return err
		},
		"fewer":        func(w *Writer) error { return w.Close() },
		"another next": func(w *Writer) error { return w.Section(Section{Shard: 3}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWriter(new(bytes.Buffer), Head{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Section(Section{Shard: 2, Size: 3}); err != nil {
				t.Fatal(err)
			}
			if err := do(w); err == nil {
				t.Error("no error")
			}
			if err := w.Close(); err == nil {
				t.Error("the file is closed as if it were whole")
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(fmt.Sprint(magic, "\x01")))
	f.Add(append([]byte(magic), Format, 0, 0, 0, 3, 0, 0, 0, 0, 'H', '{', '}'))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Verify(bytes.NewReader(b)); err == nil && len(b) < 100 {
			t.Error("a few bytes are taken for a cluster")
		}
	})
}

// wholeBackup is a backup of a cluster of one shard.
func wholeBackup(t *testing.T, madeMS int64) []byte {
	t.Helper()
	return wholeBackupOf(t, newMap(t), madeMS)
}

func wholeBackupOf(t *testing.T, m *meta.Machine, madeMS int64) []byte {
	t.Helper()
	x := shard.New(2)
	l, st := takeOver(x)
	if st == protocol.StatusOK {
		st = l.propose(shard.Command{Kind: shard.CmdBuckets,
			Body: shard.AppendBuckets(nil, shard.BucketsBody{Total: 8, Count: 8, Epoch: meta.FirstEpoch})})
	}
	if st != protocol.StatusOK {
		t.Fatal(st)
	}
	state, data := snapshots(t, m)[0], snapshot(t, x)
	return writtenFile(t, Head{Cluster: "test", MadeMS: madeMS, Shards: 1},
		part{Section{Size: uint64(len(state)), Index: m.AppliedIndex()}, state},
		part{Section{Shard: 2, Size: uint64(len(data)), Index: x.AppliedIndex()}, data})
}

// TestDigestHasTime: two backups of the same state are told apart, since their ages count.
func TestDigestHasTime(t *testing.T) {
	digest := func(madeMS int64) uint64 {
		c, err := Verify(bytes.NewReader(wholeBackup(t, madeMS)))
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest()
	}
	if one, again, later := digest(1), digest(1), digest(2); one != again || one == later {
		t.Errorf("digests are %x and %x, and %x a millisecond later", one, again, later)
	}
}

// TestMapThatCannotBeRestored: a backup whose map is larger than the command that makes a cluster
// of it may be is found when it is made, and not when it is needed.
func TestMapThatCannotBeRestored(t *testing.T) {
	form.SkipUntil(t, form.Full, "it makes 80,000 nodes")
	m := newMap(t)
	parent := strings.Repeat("/"+strings.Repeat("p", 200), 4)
	n := meta.MaxRestored/(len(parent)+8) + 1
	for i := range n {
		c := &meta.NodeCreate{Path: fmt.Sprintf("%s/%07d", parent, i), Config: nodeConfig, Parent: nodeConfig}
		res, err := meta.DecodeResult(m.Apply(uint64(i+2), meta.AppendCommand(nil, meta.OpID{1, byte(i), byte(i >> 8), byte(i >> 16)}, c)))
		if err != nil || res.Err() != nil {
			t.Fatalf("node %d: %v, %v", i, err, res.Err())
		}
	}
	_, err := Verify(bytes.NewReader(wholeBackupOf(t, m, 1)))
	if err == nil || !strings.Contains(err.Error(), "cannot be restored; drop coordination nodes") {
		t.Errorf("a backup with %d nodes: %v", n, err)
	}
}

// TestVerifyFindsAnyDamage: no byte of a backup may change, and its end may not be missing.
func TestVerifyFindsAnyDamage(t *testing.T) {
	whole := wholeBackup(t, 1_700_000_000_000)
	if _, err := Verify(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		if _, err := Verify(bytes.NewReader(damaged)); err == nil {
			t.Errorf("byte %d of %d may change", i, len(whole))
		}
		if _, err := Verify(bytes.NewReader(whole[:i])); err == nil {
			t.Errorf("the first %d bytes of %d are enough", i, len(whole))
		}
	}
}

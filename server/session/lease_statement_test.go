package session

import (
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// TestLeaseStatements: a statement is good for its session, resource and node, under its attach
// epoch and later ones; any other, and any byte that is changed, is refused.
func TestLeaseStatements(t *testing.T) {
	var s Signer
	key, former, other := &meta.Key{ID: 7}, &meta.Key{ID: 6}, &meta.Key{ID: 7}
	key.Secret[0], former.Secret[0], other.Secret[0] = 1, 2, 3
	path := []byte("api/tenant-a")
	lease := ratelimit.Lease{Number: ratelimit.Number{Leadership: ratelimit.Leadership{Bucket: 3, Epoch: 4}, Count: 5}, Rate: 6, Burst: 7, End: 8}
	b := s.AppendLease(nil, key, 1, 2, 10, path, &lease)
	if got, ok := s.VerifyLease(b, key, former, 1, 2, 11, path); !ok || got != lease {
		t.Fatalf("%+v %t", got, ok)
	}
	if _, ok := s.VerifyLease(b, &meta.Key{ID: 8}, key, 1, 2, 10, path); !ok {
		t.Error("a statement of the key before is refused")
	}
	for what, ok := range map[string]bool{
		"another node":        verified(s.VerifyLease(b, key, former, 9, 2, 10, path)),
		"another session":     verified(s.VerifyLease(b, key, former, 1, 9, 10, path)),
		"an earlier attach":   verified(s.VerifyLease(b, key, former, 1, 2, 9, path)),
		"another resource":    verified(s.VerifyLease(b, key, former, 1, 2, 10, []byte("api/tenant-b"))),
		"another key":         verified(new(Signer).VerifyLease(b, other, former, 1, 2, 10, path)),
		"a key that is gone":  verified(s.VerifyLease(b, &meta.Key{ID: 9}, &meta.Key{ID: 8}, 1, 2, 10, path)),
		"a ticket":            verified(s.VerifyLease(s.Append(nil, key, 2, 1, 10, ""), key, former, 1, 2, 10, path)),
		"nothing":             verified(s.VerifyLease(nil, key, former, 1, 2, 10, path)),
		"something behind it": verified(s.VerifyLease(append(b[:len(b):len(b)], 0), key, former, 1, 2, 10, path)),
	} {
		if ok {
			t.Errorf("%s is accepted", what)
		}
	}
	for i := range b {
		b[i] ^= 1
		if _, ok := s.VerifyLease(b, key, former, 1, 2, 10, path); ok {
			t.Errorf("byte %d is changed, and it is accepted", i)
		}
		b[i] ^= 1
	}
}

func verified(_ ratelimit.Lease, ok bool) bool { return ok }

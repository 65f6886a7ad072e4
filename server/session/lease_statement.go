package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// A statement says which lease of a rate limit a session has. It tells a later leader what an
// earlier one has granted:
//
//	version u8 = 2 | key id u64 | node u64 | session u64 | attach epoch u64 |
//	bucket epoch u64 | leader epoch u64 | count u64 | rate u64 | burst u64 | end u64 |
//	HMAC-SHA256 over all before it and the path of the resource
//
// It is signed with the keys of tickets, whose version tells the two apart.
const (
	statementVersion = 2
	statementBody    = 1 + 10*8
)

// AppendLease appends a signed statement of a lease. path is the resource's.
func (s *Signer) AppendLease(
	b []byte, key *meta.Key, node, session, epoch uint64, path []byte, g *ratelimit.Lease,
) []byte {
	start := len(b)
	b = append(b, statementVersion)
	for _, v := range [...]uint64{key.ID, node, session, epoch, g.Number.Bucket, g.Number.Epoch, g.Number.Count, g.Rate,
		g.Burst, g.End} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	signed := append(b, path...)
	sum := s.of(key, signed[start:])
	return append(b, sum...)
}

// VerifyLease reads a statement that was signed for the session, under an attach epoch up to the
// given one, and the resource. It is false for any other bytes.
func (s *Signer) VerifyLease(
	b []byte, current, previous *meta.Key, node, session, epoch uint64, path []byte,
) (g ratelimit.Lease, ok bool) {
	if len(b) != statementBody+sha256.Size || b[0] != statementVersion {
		return g, false
	}
	var v [10]uint64
	for i := range v {
		v[i] = binary.BigEndian.Uint64(b[1+8*i:])
	}
	var key *meta.Key
	switch v[0] {
	case 0:
		return g, false
	case current.ID:
		key = current
	case previous.ID:
		key = previous
	default:
		return g, false
	}
	s.buffer = append(append(s.buffer[:0], b[:statementBody]...), path...)
	if !hmac.Equal(s.of(key, s.buffer), b[statementBody:]) || v[1] != node || v[2] != session || v[3] > epoch {
		return g, false
	}
	number := ratelimit.Number{Leadership: ratelimit.Leadership{Bucket: v[4], Epoch: v[5]}, Count: v[6]}
	return ratelimit.Lease{Number: number, Rate: v[7], Burst: v[8], End: v[9]}, true
}

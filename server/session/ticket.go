package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// A ticket proves to any instance of the cluster that its bearer attached the session, so that the
// first request at a shard that is not the session's home costs no extra round trip:
//
//	version u8 = 1 | key id u64 | session u64 | node u64 | attach epoch u64 |
//	identity, 1-byte length | HMAC-SHA256 over all before it
//
// It is made only when the start or attach was applied, so a session that a ticket names exists or
// existed. It does not end by itself: the shards refuse sessions that are gone and epochs that were
// overtaken. The keys live in the meta shard, a current and a previous one; a ticket of an older
// key is refused, and the client attaches again.
const (
	ticketVersion = 1
	ticketHead    = 1 + 4*8
)

// Ticket is what a ticket proves.
type Ticket struct {
	Session, Node, Epoch uint64
}

// Signer computes MACs with one key after another without allocating. It belongs to one goroutine.
type Signer struct {
	key uint64
	mac hash.Hash
	sum [sha256.Size]byte

	buffer []byte
}

func (s *Signer) of(key *meta.Key, b []byte) []byte {
	if s.mac == nil || s.key != key.ID {
		s.key, s.mac = key.ID, hmac.New(sha256.New, key.Secret[:])
	}
	s.mac.Reset()
	s.mac.Write(b)
	return s.mac.Sum(s.sum[:0])
}

// Append appends a signed ticket.
func (s *Signer) Append(b []byte, key *meta.Key, session, node, epoch uint64, identity string) []byte {
	start := len(b)
	b = append(b, ticketVersion)
	for _, v := range [...]uint64{key.ID, session, node, epoch} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, byte(len(identity)))
	b = append(b, identity...)
	return append(b, s.of(key, b[start:])...)
}

// Verify takes a ticket apart and checks it. Whatever is wrong, the answer is the same sentence: a
// forger learns nothing.
func (s *Signer) Verify(b []byte, current, previous *meta.Key, identity string) (Ticket, *protocol.Error) {
	bad := protocol.Errorf(protocol.StatusBadSession,
		"ticket is not valid here; attach the session again for a new one")
	if len(b) < ticketHead+1+sha256.Size || b[0] != ticketVersion ||
		len(b) != ticketHead+1+int(b[ticketHead])+sha256.Size {
		return Ticket{}, bad
	}
	var key *meta.Key
	switch binary.BigEndian.Uint64(b[1:]) {
	case 0:
		return Ticket{}, bad
	case current.ID:
		key = current
	case previous.ID:
		key = previous
	default:
		return Ticket{}, bad
	}
	signed := len(b) - sha256.Size
	if !hmac.Equal(s.of(key, b[:signed]), b[signed:]) {
		return Ticket{}, bad
	}
	if string(b[ticketHead+1:signed]) != identity {
		return Ticket{}, bad
	}
	return Ticket{Session: binary.BigEndian.Uint64(b[9:]), Node: binary.BigEndian.Uint64(b[17:]),
		Epoch: binary.BigEndian.Uint64(b[25:])}, nil
}

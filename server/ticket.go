package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// A ticket proves to any instance of the cluster that its bearer attached the session, so that the first request at a shard that is not the session's home
// costs no extra round trip:
//
//	version u8 = 1 | key id u64 | session u64 | node u64 | attach epoch u64 | identity, 1-byte length | HMAC-SHA256 over all before it
//
// It is made only when the start or attach was applied, so a session that a ticket names exists or existed. It does not end by itself: the shards
// refuse sessions that are gone and epochs that were overtaken. The keys live in the meta shard, a current and a previous one; a ticket of an
// older key is refused, and the client attaches again.
const (
	ticketVersion = 1
	ticketHead    = 1 + 4*8
)

type ticket struct {
	key, session, node, epoch uint64
	identity                  string
}

// ticketSigner computes MACs with one key after another without allocating. It belongs to one goroutine.
type ticketSigner struct {
	key uint64
	mac hash.Hash
	sum [sha256.Size]byte
}

func (t *ticketSigner) of(key *meta.Key, b []byte) []byte {
	if t.mac == nil || t.key != key.ID {
		t.key, t.mac = key.ID, hmac.New(sha256.New, key.Secret[:])
	}
	t.mac.Reset()
	t.mac.Write(b)
	return t.mac.Sum(t.sum[:0])
}

// appendTicket appends a signed ticket.
func (t *ticketSigner) appendTicket(b []byte, key *meta.Key, session, node, epoch uint64, identity string) []byte {
	start := len(b)
	b = append(b, ticketVersion)
	for _, v := range [...]uint64{key.ID, session, node, epoch} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, byte(len(identity)))
	b = append(b, identity...)
	return append(b, t.of(key, b[start:])...)
}

// verify takes a ticket apart and checks it. Whatever is wrong, the answer is the same sentence: a forger learns nothing.
func (t *ticketSigner) verify(b []byte, current, previous *meta.Key, identity string) (ticket, *protocol.Error) {
	bad := protocol.Errorf(protocol.StatusBadSession, "ticket is not valid here; attach the session again for a new one")
	if len(b) < ticketHead+1+sha256.Size || b[0] != ticketVersion || len(b) != ticketHead+1+int(b[ticketHead])+sha256.Size {
		return ticket{}, bad
	}
	k := ticket{
		key:      binary.BigEndian.Uint64(b[1:]),
		session:  binary.BigEndian.Uint64(b[9:]),
		node:     binary.BigEndian.Uint64(b[17:]),
		epoch:    binary.BigEndian.Uint64(b[25:]),
		identity: string(b[ticketHead+1 : len(b)-sha256.Size]),
	}
	var key *meta.Key
	switch {
	case k.key == 0:
		return ticket{}, bad
	case k.key == current.ID:
		key = current
	case k.key == previous.ID:
		key = previous
	default:
		return ticket{}, bad
	}
	signed := len(b) - sha256.Size
	if !hmac.Equal(t.of(key, b[:signed]), b[signed:]) {
		return ticket{}, bad
	}
	if k.identity != identity {
		return ticket{}, bad
	}
	return k, nil
}

// presentTicket binds the session that a ticket proves.
func presentTicket(c *conn, p *readCycle, h protocol.Header, _ target) {
	m := &p.requests.present
	if !p.decode(c, h, m) {
		return
	}
	current, previous := c.server.routing().keys()
	k, bad := p.ticketSigner.verify(m.Ticket, current, previous, c.identity)
	if bad == nil {
		bad = c.checkSessionLimit(k.session)
	}
	if bad == nil && c.server.bindings.newestEpoch(k.session) > k.epoch {
		bad = protocol.Errorf(protocol.StatusBadSession, "session was attached again since this ticket was made; use the newer ticket")
	}
	if bad == nil && c.server.sessionEnded(k.session) {
		bad = protocol.Errorf(protocol.StatusSessionExpired, "session has ended; start a new one")
	}
	if bad != nil {
		p.out.failError(c, h.Kind, h.ID, bad)
		return
	}
	if b := c.binding(k.session); b == nil || b.epoch < k.epoch {
		b = c.newBinding(k.session, k.epoch, k.node, nil, m.Description)
		if c.addBinding(b, 0) {
			c.server.notifyTakenOver(p.out, c.server.bindings.insert(b), k.epoch)
			c.server.dropIfClosed(b)
		}
	}
	p.out.reply(c, h.Kind, h.ID, nil)
}

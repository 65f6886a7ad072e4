package shard

import (
	"hash/maphash"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sessionSet has the session records by id.
type sessionSet struct{ partitionedSet[sessionRecord] }

func (s *sessionSet) get(id uint64) *sessionRecord {
	hash := hashID(id)
	return s.of(hash).get(hash, func(p *sessionRecord) bool { return p.id == id })
}

func (s *sessionSet) add(p *sessionRecord) {
	hash := hashID(p.id)
	s.of(hash).add(hash, p)
}

func (s *sessionSet) remove(p *sessionRecord) {
	hash := hashID(p.id)
	s.of(hash).remove(hash, p)
}

// createIDSet has the home sessions by create id.
type createIDSet struct{ partitionedSet[homeSession] }

// get is the session with a create id, or nil.
func (c *createIDSet) get(id [protocol.KeyLen]byte) *homeSession {
	hash := maphash.Bytes(tableSeed, id[:])
	return c.of(hash).get(hash, func(s *homeSession) bool { return s.createID == id })
}

func (c *createIDSet) add(s *homeSession) {
	hash := maphash.Bytes(tableSeed, s.createID[:])
	c.of(hash).add(hash, s)
}

func (c *createIDSet) remove(s *homeSession) {
	hash := maphash.Bytes(tableSeed, s.createID[:])
	c.of(hash).remove(hash, s)
}

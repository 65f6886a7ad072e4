package shard

import (
	"hash/maphash"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// sessionSet has the session records by id.
type sessionSet struct {
	container.PartitionedSet[sessionRecord]
}

func (s *sessionSet) get(id uint64) *sessionRecord {
	hash := container.HashID(id)
	return s.Of(hash).Get(hash, func(p *sessionRecord) bool { return p.id == id })
}

func (s *sessionSet) add(p *sessionRecord) {
	hash := container.HashID(p.id)
	s.Of(hash).Add(hash, p)
}

func (s *sessionSet) remove(p *sessionRecord) {
	hash := container.HashID(p.id)
	s.Of(hash).Remove(hash, p)
}

// createIDSet has the home sessions by create id.
type createIDSet struct {
	container.PartitionedSet[homeSession]
}

// get is the session with a create id, or nil.
func (c *createIDSet) get(id [protocol.KeyLen]byte) *homeSession {
	hash := maphash.Bytes(container.TableSeed, id[:])
	return c.Of(hash).Get(hash, func(s *homeSession) bool { return s.createID == id })
}

func (c *createIDSet) add(s *homeSession) {
	hash := maphash.Bytes(container.TableSeed, s.createID[:])
	c.Of(hash).Add(hash, s)
}

func (c *createIDSet) remove(s *homeSession) {
	hash := maphash.Bytes(container.TableSeed, s.createID[:])
	c.Of(hash).Remove(hash, s)
}

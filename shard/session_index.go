package shard

import (
	"hash/maphash"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sessionSet has the session records by id.
type sessionSet struct{ partitionedSet[sessionRecord] }

func (t *sessionSet) get(id uint64) *sessionRecord {
	hash := hashID(id)
	return t.of(hash).get(hash, func(p *sessionRecord) bool { return p.id == id })
}

func (t *sessionSet) add(p *sessionRecord) {
	hash := hashID(p.id)
	t.of(hash).add(hash, p)
}

func (t *sessionSet) remove(p *sessionRecord) {
	hash := hashID(p.id)
	t.of(hash).remove(hash, p)
}

// createIDSet has the home sessions by create id.
type createIDSet struct{ partitionedSet[homeSession] }

// get is the session with a create id, or nil.
func (t *createIDSet) get(id [protocol.KeyLen]byte) *homeSession {
	hash := maphash.Bytes(tableSeed, id[:])
	return t.of(hash).get(hash, func(s *homeSession) bool { return s.createID == id })
}

func (t *createIDSet) add(s *homeSession) {
	hash := maphash.Bytes(tableSeed, s.createID[:])
	t.of(hash).add(hash, s)
}

func (t *createIDSet) remove(s *homeSession) {
	hash := maphash.Bytes(tableSeed, s.createID[:])
	t.of(hash).remove(hash, s)
}

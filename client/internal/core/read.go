package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Read is how a Call reads that need not go to the leader. See R22.
//
// A RELAXED read may be answered by any replica. Each client has a replica of its own choice in each
// shard, so that reads are spread over them. It goes to the leader instead where it has no
// connection to its choice, when the replica has refused, and for as long after a change of its own
// in the shard as a RELAXED read may be old. Even the leader may be behind then, if it is another
// one than the instance that answered: it answers STRICT. So a client reads what it wrote and, by
// the index it asks for, nothing older than what it has read or followed.
type Read struct {
	Asked       protocol.Consistency // by the caller
	NodeRelaxed bool                 // what the node says for callers that ask for nothing
	Grace       time.Duration        // of the node: how old a RELAXED read may be
	AtLeader    bool                 // no other replica is asked

	Want     *protocol.Consistency // of the call's message; filled in
	MinIndex *uint64               // the same
	Index    *uint64               // of the reply

	tried bool // a replica was asked
}

// isRelaxed reports whether the caller is content with a replica's answer.
func (x *Read) isRelaxed() bool {
	return x.Asked == protocol.Relaxed || x.Asked != protocol.Strict && x.NodeRelaxed
}

// replica is the connection to the replica that the client reads from. It is nil if the leader must
// be asked.
func (x *Read) replica(e *Engine, w *shardRoute) *Conn {
	if x.tried || x.AtLeader || !x.isRelaxed() || e.routes.memory(w.shard).isRecent(e.now, x.Grace) {
		return nil
	}
	l := e.routes.chosen(w, 0)
	if l.conn == nil && l.instance != w.leader {
		l.connect(e) // for the next ones
	}
	return l.conn
}

// prepare fills in what depends on the place that is asked.
func (x *Read) prepare(e *Engine, shard uint64, c *Conn) {
	m := e.routes.memory(shard)
	*x.MinIndex, *x.Want = m.index, x.Asked
	if x.isRelaxed() && !m.isVisible(e.now, x.Grace, c.instance) {
		*x.Want = protocol.Strict
	}
	x.tried = true
}

// shardMemory is the client's knowledge of a shard's log, whatever the map says.
type shardMemory struct {
	shard uint64
	index uint64 // the highest one that it has read, or that a subscription has taken in

	// The last change of the shard that this client made, or that a one-shot watch reported.
	written   time.Duration // when; 0: never
	instance  uint64        // that answered
	displaced time.Duration // when another instance than the one before answered; 0: never
}

// memory returns the client's knowledge of a shard.
func (x *routes) memory(shard uint64) *shardMemory {
	if x.recent != nil && x.recent.shard == shard {
		return x.recent
	}
	m := x.memories[shard]
	if m == nil {
		m = &shardMemory{shard: shard}
		x.memories[shard] = m
	}
	x.recent = m
	return m
}

// read notes an index of the shard's log that the client has seen: RELAXED reads that follow do not
// go back behind it.
func (m *shardMemory) read(index uint64) { m.index = max(m.index, index) }

// wrote notes that an instance answered a request of this client that changed the shard, or reported
// a change. Instance 0: a change may have been missed, and no instance is known to have it.
func (m *shardMemory) wrote(now time.Duration, instance uint64) {
	if m.instance != instance {
		if m.instance != 0 {
			m.displaced = now
		}
		m.instance = instance
	}
	m.written = now
}

// isRecent reports whether a change is so recent that a RELAXED read may miss it.
func (m *shardMemory) isRecent(now, grace time.Duration) bool {
	return within(now, m.written, grace) || within(now, m.displaced, grace)
}

// isVisible reports whether a RELAXED read at an instance sees all changes: they are old, or that
// instance had applied them when it answered.
func (m *shardMemory) isVisible(now, grace time.Duration, instance uint64) bool {
	return !m.isRecent(now, grace) || m.instance == instance && !within(now, m.displaced, grace)
}

// writeMargin is added to the grace period, for clocks that run a little apart.
const writeMargin = 100 * time.Millisecond

func within(now, at, grace time.Duration) bool { return at != 0 && now-at <= grace+writeMargin }

package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// sessionTable has the sessions that this shard knows.
type sessionTable struct {
	sessions   sessionSet // home sessions, remote sessions, and ended sessions that still have references
	byCreateID createIDSet

	ending []*sessionRecord // ended sessions that still have references, in order of their end
	// orphaned are those of them whose references are all in copies that are not active, and so
	// must not change.
	orphaned []*sessionRecord

	endedCreateIDs container.ExpiringSet[[protocol.KeyLen]byte] // create ids of ended sessions
	endedRemotes   container.ExpiringSet[uint64]                // ids of ended remote sessions
}

func newSessionTable() sessionTable {
	return sessionTable{
		endedCreateIDs: container.NewExpiringSet[[protocol.KeyLen]byte](),
		endedRemotes:   container.NewExpiringSet[uint64](),
	}
}

// remember adds the id of what ended now, if it is not remembered yet.
func remember[K comparable](set *container.ExpiringSet[K], id K, now uint64) {
	if !set.Has(id, now) {
		set.Add(id, addSaturated(now, Retention))
	}
}

// deferRelease queues an ended record that still has references. done: everything that can be
// released now is.
func (t *sessionTable) deferRelease(p *sessionRecord, done bool) {
	switch {
	case !p.hasReferences():
		t.sessions.remove(p)
	case done:
		t.orphaned = append(t.orphaned, p)
	default:
		t.ending = append(t.ending, p)
	}
}

// purgeEnding continues the release of ended sessions, as far as the work of this Apply goes.
func (t *sessionTable) purgeEnding(m *Machine) {
	for len(t.ending) > 0 && m.batch.releaseBudget > 0 {
		p := t.ending[0]
		text := "" // no event follows the end of a session
		if p.home == nil {
			text = endText(p)
		}
		if !p.releaseAll(m, text) {
			return
		}
		m.touch(p)
		t.ending[0] = nil
		t.ending = t.ending[1:]
		t.deferRelease(p, true)
	}
}

// retryOrphaned has those looked at again whose references could not be released: their copies, or
// their node, may have changed.
func (t *sessionTable) retryOrphaned() {
	t.ending = append(t.ending, t.orphaned...)
	t.orphaned = nil
}

// forgetReleased forgets the orphaned ones that have no reference left.
func (t *sessionTable) forgetReleased(m *Machine) {
	kept := t.orphaned[:0]
	for _, p := range t.orphaned {
		if p.hasReferences() {
			kept = append(kept, p)
			continue
		}
		m.touch(p)
		t.sessions.remove(p)
	}
	clear(t.orphaned[len(kept):])
	t.orphaned = kept
}

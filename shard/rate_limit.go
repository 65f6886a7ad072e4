package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// limitState is the tree of a rate limit as a hosted object, named by its root. The sessions that
// use it take part in it. Who may use which rate is not in the log: the shard's leader knows it.
type limitState struct{ *ratelimit.Tree }

func decodeLimit(record []byte) (hostedState, error) {
	t, err := ratelimit.Decode(record)
	return limitState{t}, err
}

// validLimitName checks the name of a tree, which is the first segment of its resources' paths.
func validLimitName(name []byte) bool {
	return protocol.ValidateLimitPath(name) == nil && len(protocol.LimitRoot(name)) == len(name)
}

func limitOf(x *hostedObject) *ratelimit.Tree { return x.state.(limitState).Tree }

func (s limitState) sessions(list []uint64) []uint64 { return append(list, s.Sessions()...) }

func (s limitState) part(session uint64) (label string, count int) {
	if _, ok := s.Joined(session); ok {
		count = 1
	}
	return "", count
}

func (s limitState) size() int { return s.NumResources() + s.NumParticipants() }

func (s limitState) highest() uint64 { return s.Revision() }

func (s limitState) bumpCounters(next func(uint64) uint64) { s.SkipRevisions(next) }

// wake drops deleted paths whose time is over, and a deleted tree with the last of them.
func (s limitState) wake(m *Machine, x *hostedObject) {
	if s.Forget(callLimit(m, x)) {
		x.delete(m)
		return
	}
	s.requestDone(m, x)
}

func (s limitState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	m.spendWork(1)
	s.Leave(callLimit(m, x), session)
	s.requestDone(m, x)
}

func (s limitState) requestDone(m *Machine, x *hostedObject) {
	x.charge(x.quotaBytes())
	x.schedule(m)
}

// callLimit prepares a call: it saves the tree for a snapshot.
func callLimit(m *Machine, x *hostedObject) (now uint64) {
	m.touch(x)
	x.revision = m.applied
	return m.bucketTime(x.bucket)
}

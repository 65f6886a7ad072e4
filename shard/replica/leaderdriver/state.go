package leaderdriver

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// state is a machine as the leader's step machine reads it, under the machine's read lock.
type state shard.Machine

var _ leader.State = (*state)(nil)

func (s *state) machine() *shard.Machine { return (*shard.Machine)(s) }

// HomeBucket returns the epoch of the session's home bucket and whether it is ACTIVE here.
func (s *state) HomeBucket(session uint64) (epoch uint64, active bool) {
	m := s.machine()
	if tier, total := m.Tier(); total == 0 || tier != protocol.SessionTier(session) {
		return 0, false
	}
	return m.Bucket(protocol.SessionBucket(session))
}

// Session looks up a session at home here.
func (s *state) Session(session uint64) (view shard.SessionView, alive bool) {
	return s.machine().Sessions().Home(session)
}

// RemoteSession looks up a session at home elsewhere.
func (s *state) RemoteSession(session uint64) (view shard.RemoteSessionView, known bool) {
	return s.machine().Sessions().Remote(session)
}

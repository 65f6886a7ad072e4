package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// leadState is a machine as the leader's step machine reads it, under the machine's read lock.
type leadState shard.Machine

var _ leader.State = (*leadState)(nil)

func (st *leadState) machine() *shard.Machine { return (*shard.Machine)(st) }

// HomeBucket returns the epoch of the session's home bucket and whether it is ACTIVE here.
func (st *leadState) HomeBucket(session uint64) (epoch uint64, active bool) {
	m := st.machine()
	if tier, total := m.Tier(); total == 0 || tier != protocol.SessionTier(session) {
		return 0, false
	}
	return m.Bucket(protocol.SessionBucket(session))
}

// Session looks up a session at home here.
func (st *leadState) Session(session uint64) (view shard.SessionView, alive bool) {
	return st.machine().Sessions().Home(session)
}

// RemoteSession looks up a session at home elsewhere.
func (st *leadState) RemoteSession(session uint64) (view shard.RemoteSessionView, known bool) {
	return st.machine().Sessions().Remote(session)
}

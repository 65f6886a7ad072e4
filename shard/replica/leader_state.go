package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// leadState shows a machine to the leader's duties. It is used under the machine's read lock only.
type leadState shard.Machine

var _ leader.State = (*leadState)(nil)

func (st *leadState) machine() *shard.Machine { return (*shard.Machine)(st) }

// HomeBucket tells whether the session's home bucket is ACTIVE here.
func (st *leadState) HomeBucket(session uint64) (epoch uint64, active bool) {
	m := st.machine()
	if tier, total := m.Tier(); total == 0 || tier != protocol.SessionTier(session) {
		return 0, false
	}
	return m.Bucket(protocol.SessionBucket(session))
}

// Session tells whether a session at home here lives.
func (st *leadState) Session(session uint64) (view shard.SessionView, alive bool) {
	return st.machine().Session(session)
}

// RemoteSession tells what is known of a session at home elsewhere.
func (st *leadState) RemoteSession(session uint64) (view shard.RemoteSessionView, known bool) {
	return st.machine().RemoteSession(session)
}

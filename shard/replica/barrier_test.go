package replica

import (
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftpb"
)

// A barrier that waits for the confirmation of a voter ends when that voter is removed, long before
// the engine gives the read up.
func TestBarrierOutlivesVoter(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	c := newClusterOf(t, 2, 2, func(cfg *ShardConfig) { cfg.ProposeTimeout = never })
	c.populate()
	for try := 1; ; try++ {
		l, m := c.membership()
		asked := make(chan struct{}, 1)
		c.net.dropMessages(func(m *raftpb.Message) bool {
			if m.Type != raftpb.HeartbeatResp || m.ShardID != 1 {
				return false
			}
			if m.Hint != 0 { // it confirms a read
				select {
				case asked <- struct{}{}:
				default:
				}
			}
			return true
		})
		done := make(chan bool, 1)
		c.shards[l].Barrier(func(ok bool) { done <- ok })
		ok := false
		select {
		case <-asked:
			// The engine itself: the host's own way begins with a read, which would wait as well.
			err := c.hosts[l].engine.Do(func(nh *dragonboat.NodeHost) error {
				return nh.SyncRequestDeleteReplica(timeout(t), 1, c.ids[1-l], m.ConfigChange)
			})
			if err != nil {
				t.Logf("removal: %v", err)
			}
			select {
			case ok = <-done:
			case <-time.After(patience):
				t.Fatal("the barrier still waits for a voter that was removed")
			}
		case ok = <-done: // without a voice of the other the leader gives up on a busy machine
		}
		c.net.dropMessages(nil)
		if _, m := c.membership(); len(m.Voters) == 1 {
			if !ok && !barrier(c.shards[l]) {
				t.Error("the last voter is no leader")
			}
			return
		}
		if try == 20 {
			t.Fatal("the other voter could not be removed while a barrier waited for it")
		}
	}
}

package governor

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestOfflineAfter: an instance counts as alive for as long as is configured, but not less than one
// heartbeat may be late. Its vote counts for no longer than quorumLimit.
func TestOfflineAfter(t *testing.T) {
	t.Parallel()
	r := &meta.Replica{Instance: 1, Replica: 11}
	for _, c := range []struct {
		after, age   time.Duration
		alive, votes bool
	}{
		{0, 5 * time.Second, true, true},
		{0, 5*time.Second + 1, false, false},
		{2 * time.Second, 2 * time.Second, true, true},
		{2 * time.Second, 2*time.Second + 1, false, false},
		{500 * time.Millisecond, FreshLimit, true, true},
		{500 * time.Millisecond, FreshLimit + 1, false, false},
		{30 * time.Second, 5 * time.Second, true, true},
		{30 * time.Second, 30 * time.Second, true, false},
		{30 * time.Second, 30*time.Second + 1, false, false},
	} {
		g := New(Config{
			Meta: &emptyReplica{}, Clock: &fakeCluster{start: time.Now()}, OfflineAfter: c.after,
		})
		v := g.view()
		v.Now = time.Hour
		v.Health = map[uint64]Heartbeat{1: {Heard: v.Now - c.age, Shards: map[uint64]ShardReport{2: {Replica: 11}}}}
		if alive, votes := v.alive(1), v.takesPart(r, 2); alive != c.alive || votes != c.votes {
			t.Errorf("offline after %v, heard %v ago: alive %v, votes %v", c.after, c.age, alive, votes)
		}
	}
}

package replica

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
)

// TestReplaceLeader: the others are told that the leader's process has ended, and one of them leads by
// an election without a pre-vote. An ordinary election begins with one. On a busy machine it may
// come first; then the next leader goes.
func TestReplaceLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	type election struct{ replica, term uint64 }
	var mu sync.Mutex
	direct := make(map[election]bool) // those without a pre-vote
	c.net.dropMessages(func(m *raftpb.Message) bool {
		if m.Type == raftpb.RequestVote && m.Hint == m.From {
			mu.Lock()
			defer mu.Unlock()
			direct[election{m.From, m.Term}] = true
		}
		return false
	})
	for try := range 10 {
		l := c.make(fmt.Sprint("before ", try))
		gone := c.disks[l].addr
		c.net.Isolate(gone, true) // at once, while it takes time to stop
		for _, i := range []int{(l + 1) % 3, (l + 2) % 3} {
			c.hosts[i].ReplaceLeader(gone, []string{c.disks[3-l-i].addr})
		}
		c.stop(l)
		n := c.leader()
		mu.Lock()
		succeeded := direct[election{c.ids[n], c.shards[n].Term()}]
		mu.Unlock()
		if succeeded {
			c.make("after")
			return
		}
		t.Logf("try %d: replica %d leads by an ordinary election", try, n+1)
		c.net.Isolate(gone, false)
		c.start(l)
	}
	t.Fatal("every leader that was gone was replaced by an ordinary election")
}

// TestCandidates: which replicas stand for election when the leader's process has ended, and in
// which order. The campaigners do not run, so nothing changes.
func TestCandidates(t *testing.T) {
	t.Parallel()
	const leader = 2
	c := newCluster(t, nil)
	addr := func(id uint64) string { return c.members[id] }
	for _, x := range []struct {
		name    string
		replica uint64
		gone    string
		agree   []string
		stands  bool
		delay   time.Duration
	}{
		{"the leader itself", leader, addr(leader), []string{addr(1), addr(3)}, false, 0},
		{"by its own word", 1, addr(leader), nil, false, 0},
		{"by its own word, told twice", 1, addr(leader), []string{addr(1)}, false, 0},
		{"by the word of a stranger", 1, addr(leader), []string{"elsewhere:1"}, false, 0},
		{"by the word of the leader", 1, addr(leader), []string{addr(leader)}, false, 0},
		{"the leader is elsewhere", 1, addr(3), []string{addr(3)}, false, 0},
		{"the first candidate", 3, addr(leader), []string{addr(1)}, true, 0},
		{"the second candidate", 1, addr(leader), []string{addr(3)}, true, candidateDelay},
	} {
		e := c.hosts[x.replica-1].engine
		eventually(t, "the members to be known", func() bool { return len(e.Infos()[1].Voters) == 3 })
		n := &campaigner{engine: e, groups: newGroupTable(), Wakeup: wakeup.New()}
		if err := n.groups.add(&group{shard: 1, id: x.replica, leader: leader}); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		stands := n.replaceLeader(x.gone, x.agree)
		after := time.Now()
		switch {
		case stands != len(n.pending) || (stands == 1) != x.stands:
			t.Errorf("%s: stands in %d groups, campaigns are %+v", x.name, stands, n.pending)
		case x.stands && (n.pending[0].campaignKey != campaignKey{shard: 1, from: leader, to: x.replica} ||
			n.pending[0].next.Before(before.Add(x.delay)) || n.pending[0].next.After(after.Add(x.delay))):
			t.Errorf("%s: campaign is %+v, told at %v", x.name, n.pending[0], before)
		}
	}
}

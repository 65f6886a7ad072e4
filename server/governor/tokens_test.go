package governor

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestTokensNeverGoBack deletes nodes and makes them again, in this tier or another one, while
// buckets move, replicasets come and go, governors forget, replies come late, and machines are
// saved and restored. A fencing token of a name at a path is always above the ones before it.
func TestTokensNeverGoBack(t *testing.T) {
	t.Parallel()
	var total tokenCounts
	for seed := range seeds.Of(t, 5, 20) {
		total.add(runTokens(t, seed))
	}
	if seeds.Chosen() || !form.Is(form.Full) {
		return
	}
	if total.again < 200 || total.moved < 100 || total.left == 0 || total.tiers == 0 {
		t.Errorf("the test has lost its way: %+v", total)
	}
}

// tokenCounts is what a run has met: tokens of a node made again, and in another tier, moves of
// buckets, and instances that left.
type tokenCounts struct{ again, tiers, moved, left int }

func (c *tokenCounts) add(o tokenCounts) {
	c.again, c.tiers, c.moved, c.left = c.again+o.again, c.tiers+o.tiers, c.moved+o.moved, c.left+o.left
}

// token is the last one of a name at a path, with the last version of its data, and where they came
// from.
type token struct {
	number, version, node uint64
	tier                  uint8
}

func runTokens(t *testing.T, seed uint64) (counts tokenCounts) {
	r := rand.New(rand.NewPCG(seed, 1))
	c, shards := newCluster(16, 1, 2, meta.TierSpec{Name: "second", Buckets: 16, CanVote: true}), newMachineShards()
	second, _ := c.machine.TierByName("second")
	g := New(Config{Meta: c, Shards: shards, Groups: clusterGroups{c}, Instances: c, Clock: c})
	p := NewProgress()
	paths := []string{"/a", "/b"}
	last := map[string]token{}
	joined, sessions := []uint64{c.join("other", "second", "", "").Instance}, uint64(0)
	var nodes []meta.Node // that ever were
	for range 1200 {
		c.now++
		switch n := r.IntN(100); {
		case n < 3:
			path := paths[r.IntN(len(paths))]
			tier := []uint8{0, 0, second.ID}[r.IntN(3)]
			if res := c.apply(&meta.NodeCreate{Path: path, Tier: tier, Config: protocol.DefaultNodeConfig()}); res.Status == protocol.StatusOK {
				made, _ := c.machine.Node(res.Node)
				nodes = append(nodes, made)
			}
		case n < 6:
			if x, ok := c.machine.NodeAt(paths[r.IntN(len(paths))]); ok {
				c.apply(&meta.NodeDrop{Path: x.Path, Node: x.ID})
			}
		case n < 7 && len(joined) < 6:
			joined = append(joined, c.join(fmt.Sprintf("i%d", len(joined)), []string{"default", "second"}[r.IntN(2)], "", "").Instance)
		case n < 8 && len(joined) > 2:
			i, _ := c.machine.Instance(joined[1+r.IntN(len(joined)-1)])
			if res := c.apply(&meta.InstanceUpdate{Instance: i.ID, Target: meta.Expelled, Force: true}); res.Status == protocol.StatusOK && !i.Expelled() {
				counts.left++
			}
		case n < 9:
			p = NewProgress() // another governor
		case n < 11:
			shards.saveAndRestore(t)
		case n < 60 && len(nodes) > 0:
			sessions++
			x := nodes[max(0, len(nodes)-1-r.IntN(4))]
			name := fmt.Sprintf("name%d", r.IntN(3))
			number, version, ok := shards.acquire(x.ID, name, sessions)
			if !ok {
				break
			}
			key := x.Path + " " + name
			before := last[key]
			if number <= before.number || version <= before.version {
				t.Fatalf("seed %d: %s has token %d and version %d of node %d, after %d and %d of node %d",
					seed, key, number, version, x.ID, before.number, before.version, before.node)
			}
			if before.node != 0 && before.node != x.ID {
				counts.again++
				if before.tier != x.Tier {
					counts.tiers++
				}
			}
			last[key] = token{number, version, x.ID, x.Tier}
		default:
			c.heartbeat()
			c.detectFailures()
			for _, step := range Plan(c.view(p)) {
				if r.IntN(3) == 0 {
					continue
				}
				answer, err := g.execute(t.Context(), &step)
				switch {
				case err == nil && r.IntN(8) > 0: // else the reply is lost
					p.Done(&step, c.now, c.now, answer)
					if step.Kind == CommitMove {
						counts.moved++
					}
				case err == nil, errors.Is(err, protocol.StatusAborted), errors.Is(err, protocol.StatusNotFound),
					errors.Is(err, protocol.StatusPreconditionFailed): // an earlier step of the plan was in its way
				default:
					t.Fatalf("seed %d: %s: %v", seed, step, err)
				}
			}
		}
	}
	return counts
}

// acquire has a session of a shard far away acquire, and change the semaphore's data, wherever the
// name's bucket is active. A shard that does not know the node answers with an error.
func (s *machineShards) acquire(node uint64, name string, session uint64) (number, version uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := protocol.MakeSessionID(15, 0, session)
	ask := func(shardID uint64, kind shard.CommandKind, m protocol.Message) shard.Event {
		out := s.apply(shardID, shard.Command{Kind: kind, Node: node, Epoch: 1, Body: protocol.AppendBody(nil, m)})
		for _, e := range out.List {
			if e.Kind == shard.EventReply && e.Status == protocol.StatusOK {
				return e
			}
		}
		return shard.Event{}
	}
	for shardID := range s.machines {
		number = ask(shardID, shard.CmdAcquire, &protocol.Acquire{Head: protocol.Head{Session: id, Seq: 1, Low: 1},
			Name: []byte(name), Count: 1, Timeout: protocol.Forever, Ephemeral: true}).OrderID
		if number > 0 {
			for seq := uint64(2); seq < 6; seq++ { // there are more versions than tokens
				version = ask(shardID, shard.CmdUpdate, &protocol.Update{Head: protocol.Head{Session: id, Seq: seq, Low: 1},
					Name: []byte(name), Data: fmt.Append(nil, session, seq)}).Result
			}
			return number, version, true
		}
	}
	return 0, 0, false
}

// saveAndRestore replaces every machine by one that is read from its snapshot.
func (s *machineShards) saveAndRestore(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.machines {
		var b bytes.Buffer
		must(t, m.BeginSnapshot().WriteTo(&b, &sync.Mutex{}))
		restored, err := shard.Restore(&b)
		must(t, err)
		s.machines[id] = restored
	}
}

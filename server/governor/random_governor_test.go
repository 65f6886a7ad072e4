package governor

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestAnyGovernorConverges has two governors that both believe to lead. They carry out steps of old
// and new plans in any order, and forget everything at any moment. Meanwhile shards lose requests
// and answers and change their leaders, and nodes are created, altered and dropped. No promise of a
// phase is ever broken. In the end a governor that knows nothing brings everything to rest.
func TestAnyGovernorConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &checkedState{
			fakeState: newFakeState(8, 2, 3), t: t,
			decided: map[uint64][]decision{}, graces: map[shardNodeKey]time.Duration{},
		}
		progress := []*Progress{NewProgress(), NewProgress()}
		plans := make([][]Step, len(progress)) // the last plan of each, as old as it may be
		paths := []string{meta.DefaultPath, "/a", "/a/b"}
		for range rapid.IntRange(100, 200).Draw(t, "events") {
			g := rapid.IntRange(0, len(progress)-1).Draw(t, "governor")
			switch rapid.IntRange(0, 15).Draw(t, "event") {
			case 0:
				w.create(rapid.SampledFrom(paths).Draw(t, "create"), grace(t))
			case 1:
				w.alter(rapid.SampledFrom(paths).Draw(t, "alter"), grace(t))
			case 2:
				w.drop(rapid.SampledFrom(paths).Draw(t, "drop"))
			case 3:
				progress[g] = NewProgress()
			case 4:
				shard := rapid.SampledFrom([]uint64{2, 3}).Draw(t, "shard")
				w.elect(shard, uint64(len(w.shards[shard].leaderships)+1))
			case 5:
				w.now += time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second
			case 6, 7: // a governor's good day
				progress[g].Update(View{State: &w.meta.State, Now: w.now})
				for _, step := range Plan(View{State: &w.meta.State, Progress: progress[g], Now: w.now}) {
					if step.At > w.now {
						continue
					}
					if answer, err := w.execute(&step); err == nil {
						progress[g].Done(&step, w.now, w.now, answer)
					}
					w.check()
				}
			case 8, 9:
				progress[g].Update(View{State: &w.meta.State, Now: w.now})
				plans[g] = Plan(View{State: &w.meta.State, Progress: progress[g], Now: w.now})
			default:
				if len(plans[g]) == 0 {
					continue
				}
				step := rapid.SampledFrom(plans[g]).Draw(t, "step")
				if step.At > w.now {
					continue
				}
				fate := rapid.IntRange(0, 3).Draw(t, "fate")
				if fate == 0 {
					continue // the word was lost
				}
				answer, err := w.execute(&step)
				if err == nil && fate > 1 { // else the answer was
					progress[g].Done(&step, w.now, w.now, answer)
				}
			}
			w.check()
		}

		last := NewProgress()
		for range 200 {
			last.Update(View{State: &w.meta.State, Now: w.now})
			plan := Plan(View{State: &w.meta.State, Progress: last, Now: w.now})
			if len(plan) == 0 {
				w.checkConverged()
				return
			}
			for _, step := range plan {
				w.now = max(w.now, step.At)
				answer, err := w.execute(&step)
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				last.Done(&step, w.now, w.now, answer)
				w.check()
			}
		}
		t.Fatalf("plans do not end: %v", Plan(View{State: &w.meta.State, Progress: last, Now: w.now}))
	})
}

func grace(t *rapid.T) uint64 { return rapid.Uint64Range(2, 12).Draw(t, "grace") * 1000 }

// checkedState knows what must never be.
type checkedState struct {
	*fakeState
	t       *rapid.T
	decided map[uint64][]decision          // by node, in order of time
	graces  map[shardNodeKey]time.Duration // what each shard had at the last check
}

// decision is a grace period that the meta state has decided on.
type decision struct {
	at    time.Duration
	grace time.Duration
}

func (w *checkedState) check() {
	for n := range w.meta.Nodes("", "") {
		// What describe finds, every shard knows, at the revision that was committed last.
		committed := n.Revision
		if n.Phase == meta.Altering {
			committed--
		}
		for id, x := range w.shards {
			if n.Visible() && x.nodes[n.ID].revision < 2*committed {
				w.t.Fatalf("node %d is %s at revision %d, shard %d has it at %d", n.ID, n.Phase, n.Revision, id, x.nodes[n.ID].revision)
			}
			if n.Phase != meta.Dropping && x.dropped[n.ID] {
				w.t.Fatalf("node %d is %s, shard %d dropped it", n.ID, n.Phase, id)
			}
			if x.nodes[n.ID].revision > 2*n.Revision+1 {
				w.t.Fatalf("shard %d has node %d at a revision of the future", id, n.ID)
			}
		}
	}
	for id, x := range w.shards {
		for node := range x.nodes {
			if n, ok := w.meta.Node(node); !ok || (x.dropped[node] && n.Phase != meta.Dropping) {
				w.t.Fatalf("shard %d still has node %d, which is gone", id, node)
			}
		}
	}
	w.checkGrace()
}

// checkGrace: a shard's grace period for a node falls only if one leader has led it for as long as
// the higher one since the fall was decided.
func (w *checkedState) checkGrace() {
	for n := range w.meta.Nodes("", "") {
		grace := time.Duration(n.Config.GracePeriod) * time.Millisecond
		list := w.decided[n.ID]
		if len(list) == 0 || list[len(list)-1].grace != grace {
			w.decided[n.ID] = append(list, decision{w.now, grace})
		}
	}
	for id, x := range w.shards {
		for node, known := range x.nodes {
			key := shardNodeKey{id, node}
			before := w.graces[key]
			w.graces[key] = known.grace
			if known.grace >= before {
				continue
			}
			list := w.decided[node]
			last := len(list) - 1
			for last > 0 && list[last-1].grace < before {
				last--
			}
			if led := x.longest(list[last].at, w.now); led < before {
				w.t.Fatalf("shard %d went from grace %s to %s for node %d, its leaders led for %s at most",
					id, before, known.grace, node, led)
			}
		}
	}
}

// checkConverged checks that all that was decided is everywhere.
func (w *checkedState) checkConverged() {
	count := 0
	for n := range w.meta.Nodes("", "") {
		count++
		if n.Phase != meta.Ready || n.GraceFloor != 0 {
			w.t.Fatalf("node %d is %s with floor %d", n.ID, n.Phase, n.GraceFloor)
		}
		for id, x := range w.shards {
			got, want := x.nodes[n.ID], time.Duration(n.Config.GracePeriod)*time.Millisecond
			if got.grace != want || got.revision != n.ShardRevision(true) {
				w.t.Fatalf("shard %d has node %d at %+v, want %s", id, n.ID, got, want)
			}
		}
	}
	for id, x := range w.shards {
		if len(x.nodes) != count {
			w.t.Fatalf("shard %d has %d nodes, want %d", id, len(x.nodes), count)
		}
		if s, _ := w.meta.Shard(id); !s.Ready {
			w.t.Fatalf("shard %d is not ready", id)
		}
	}
	for b := range uint32(8) {
		owner, _ := w.meta.Route(0, b)
		for id, x := range w.shards {
			if (x.buckets[b] > 0) != (id == owner) {
				w.t.Fatalf("bucket %d is at shard %d, want %d alone", b, id, owner)
			}
		}
	}
}

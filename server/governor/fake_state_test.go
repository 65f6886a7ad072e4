package governor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// fakeState is a meta machine and data shards as plain as they can be, in which steps are carried
// out without goroutines.
type fakeState struct {
	meta   *meta.Machine
	index  uint64
	now    time.Duration
	shards map[uint64]*plainShard
}

// plainShard knows of nodes what a data shard must know, and remembers who led it.
type plainShard struct {
	nodes       map[uint64]plainNode
	dropped     map[uint64]bool
	buckets     map[uint32]int // how often it was told
	leaderships []leadership   // the last one goes on
	down        bool
}

type plainNode struct {
	revision uint64
	grace    time.Duration
}

type leadership struct {
	epoch uint64
	start time.Duration
}

func newPlainShard(now time.Duration) *plainShard {
	return &plainShard{
		nodes: map[uint64]plainNode{}, dropped: map[uint64]bool{}, buckets: map[uint32]int{}, leaderships: []leadership{{1, now}},
	}
}

func newFakeState(buckets uint32, shards ...uint64) *fakeState {
	w := &fakeState{meta: meta.New(), now: time.Hour, shards: map[uint64]*plainShard{}}
	for _, id := range shards {
		w.shards[id] = newPlainShard(w.now)
	}
	w.apply(&meta.Bootstrap{
		Cluster: "c", Instance: 1, Name: "one", Address: "one:7070", Tier: "default", CanVote: true, Buckets: buckets, Shards: shards,
		NodeConfig: protocol.DefaultNodeConfig(),
	})
	return w
}

func (w *fakeState) apply(c meta.Command) meta.Result {
	w.index++
	res, err := meta.DecodeResult(w.meta.Apply(w.index, meta.AppendCommand(nil, meta.OpID{}, c)))
	if err != nil {
		panic(err)
	}
	return res
}

func (w *fakeState) create(path string, grace uint64) meta.Result {
	c := &meta.NodeCreate{Path: path, Config: protocol.DefaultNodeConfig(), Parent: protocol.DefaultNodeConfig()}
	c.Config.GracePeriod = grace
	return w.apply(c)
}

func (w *fakeState) alter(path string, grace uint64) meta.Result {
	n, _ := w.meta.NodeAt(path)
	c := &meta.NodeAlter{Path: path, Node: n.ID, Revision: n.Revision, Config: protocol.DefaultNodeConfig()}
	c.Config.GracePeriod = grace
	return w.apply(c)
}

func (w *fakeState) drop(path string) meta.Result {
	n, _ := w.meta.NodeAt(path)
	return w.apply(&meta.NodeDrop{Path: path, Node: n.ID})
}

// remove moves the buckets of a shard to another one, and removes it.
func (w *fakeState) remove(shard, to uint64) (res meta.Result) {
	w.apply(&meta.TierShards{Shards: uint32(len(w.shards) - 1)})
	for b := range w.shards[shard].buckets {
		w.shards[to].buckets[b]++
		w.apply(&meta.MoveBegin{First: b, Count: 1, From: shard, To: to})
	}
	for _, m := range w.meta.Moves() {
		w.apply(&meta.MoveCommit{MoveRef: m.Ref()})
		w.apply(&meta.MoveEnd{MoveRef: m.Ref()})
	}
	if res = w.apply(&meta.ShardRemove{Shard: shard}); res.Status == protocol.StatusOK {
		delete(w.shards, shard)
	}
	return res
}

func (w *fakeState) elect(shard, epoch uint64) {
	x := w.shards[shard]
	x.leaderships = append(x.leaderships, leadership{epoch, w.now})
}

// execute carries a step out.
func (w *fakeState) execute(s *Step) (answer Answer, err error) {
	switch s.Kind {
	case MarkShardReady:
		res := w.apply(&meta.ShardReady{Shard: s.Shard})
		return answer, res.Err()
	case CommitNodes:
		res := w.apply(&meta.NodeCommit{Nodes: s.Nodes})
		return answer, res.Err()
	case ClearGraceFloor:
		res := w.apply(&meta.GraceFloorClear{NodeRef: meta.NodeRef{Node: s.Node, Revision: s.Revision}})
		return answer, res.Err()
	}
	x := w.shards[s.Shard]
	if x.down {
		return answer, protocol.Errorf(protocol.StatusUnavailable, "shard %d is down", s.Shard)
	}
	switch s.Kind {
	case ActivateBuckets:
		for b := s.First; b < s.First+s.Count; b++ {
			x.buckets[b]++
		}
	case PutNode:
		return answer, x.put(s.Node, s.Revision, time.Duration(s.Config.GracePeriod)*time.Millisecond)
	case SyncNodes:
		state, _ := w.meta.Shard(s.Shard)
		for n := range w.meta.Nodes("", s.Path) {
			if answer.Path = n.Path + "\x00"; !needsSync(&n, state.Tier) {
				continue
			}
			put := putNode(s.Shard, &n, n.GraceFloor == 0)
			_ = x.put(put.Node, put.Revision, time.Duration(put.Config.GracePeriod)*time.Millisecond)
		}
		return answer, nil
	case DropNode:
		delete(x.nodes, s.Node)
		x.dropped[s.Node] = true
	case ReadLeaderEpoch:
		return Answer{Epoch: x.leaderships[len(x.leaderships)-1].epoch}, nil
	}
	return answer, nil
}

func (x *plainShard) put(node, revision uint64, grace time.Duration) error {
	if x.dropped[node] {
		return protocol.Errorf(protocol.StatusNotFound, "node %d was dropped", node)
	}
	if old := x.nodes[node]; revision > old.revision {
		x.nodes[node] = plainNode{revision: revision, grace: grace}
	}
	return nil
}

// longest is the longest time since from in which the shard had one leader.
func (x *plainShard) longest(from, now time.Duration) time.Duration {
	longest := time.Duration(0)
	for i, r := range x.leaderships {
		end := now
		if i+1 < len(x.leaderships) {
			end = x.leaderships[i+1].start
		}
		longest = max(longest, end-max(r.start, from))
	}
	return longest
}

func (x *plainShard) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "buckets %v", slices.Sorted(maps.Keys(x.buckets)))
	for _, id := range slices.Sorted(maps.Keys(x.nodes)) {
		fmt.Fprintf(&out, ", node %d@%d grace %s", id, x.nodes[id].revision, x.nodes[id].grace)
	}
	if len(x.dropped) > 0 {
		fmt.Fprintf(&out, ", dropped %v", slices.Sorted(maps.Keys(x.dropped)))
	}
	return out.String()
}

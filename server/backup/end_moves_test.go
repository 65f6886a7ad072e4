package backup

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestEndMoves: at whatever step a move of buckets stands when its cluster is lost, it is ended so
// that the map and the shards agree, and nothing that its buckets had is lost; where the only copy
// that counts is not whole, that is said.
func TestEndMoves(t *testing.T) {
	const (
		begun = iota
		frozen
		imported
		committed
		activated
		dropped
		behind  // as activated, and the map has not heard of the commit
		further // as dropped, the same
		stale   // committed, and the target's log was lost before the import
		lagging // as dropped, and the source's log was lost before the freeze
		ended   // the same, and the map has ended the move
		neither // the same, and the target's log was lost before the import
		steps
	)
	for step := range steps {
		m := newMapWithShards(t, 2, 3)
		say := readyShards(t, m)
		machines := map[uint64]*shard.Machine{2: shard.New(2), 3: shard.New(3)}
		leaders := map[uint64]*proposer{}
		do := func(id uint64, kind shard.CommandKind, body []byte) {
			t.Helper()
			if st := leaders[id].propose(shard.Command{Kind: kind, Body: body}); st != protocol.StatusOK {
				t.Fatal(id, kind, st)
			}
		}
		tier := m.Tiers()[0]
		for id, x := range machines {
			leaders[id], _ = takeOver(x)
			do(id, shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.NodeConfig{
				SelfCheckPeriod: 1000, GracePeriod: 5000, ReadConsistency: 1, AttachConsistency: 1, CountersMode: 1,
				MaxSessions: 9, MaxSemaphores: 9,
			}}))
			for _, run := range tier.Runs {
				if run.Shard == id {
					do(id, shard.CmdBuckets, shard.AppendBuckets(nil,
						shard.BucketsBody{Total: tier.Buckets, First: run.First, Count: run.Count, Epoch: run.Epoch}))
				}
			}
		}
		run := tier.Runs[0]
		from, to := run.Shard, uint64(5)-run.Shard
		epoch := say(&meta.MoveBegin{First: run.First, Count: 1, To: to}).Version
		moved := shard.BucketsBody{Total: tier.Buckets, First: run.First, Count: 1, Epoch: epoch}
		body := shard.AppendBuckets(nil, moved)
		past := snapshot(t, machines[from])
		if step >= frozen {
			do(from, shard.CmdFreeze, body)
		}
		if step >= imported && step != stale && step != neither {
			for cursor := []byte(nil); ; {
				chunk, next, err := machines[from].Buckets().Export(moved.First, moved.Count, epoch, cursor, 0)
				if err != nil {
					t.Fatal(err)
				}
				do(to, shard.CmdImport, shard.AppendImport(nil, shard.ImportBody{BucketsBody: moved, Chunk: chunk}))
				if cursor = next; len(next) == 0 {
					break
				}
			}
		}
		if step >= committed && step != behind && step != further {
			say(&meta.MoveCommit{MoveRef: meta.MoveRef{First: run.First, Epoch: epoch}})
		}
		if step >= activated && step != stale && step != neither {
			do(to, shard.CmdActivate, body)
		}
		if step == dropped || step >= further && step != stale {
			do(from, shard.CmdDropBuckets, body)
		}
		if step >= ended {
			say(&meta.MoveEnd{MoveRef: meta.MoveRef{First: run.First, Epoch: epoch}})
		}
		if step >= lagging {
			var err error
			if machines[from], err = shard.Restore(bytes.NewReader(past)); err != nil {
				t.Fatal(err)
			}
		}

		err := EndMoves(m, machines)
		if step == stale {
			if err == nil {
				t.Error("buckets were activated whose import is not there")
			}
			continue
		}
		if err != nil {
			t.Errorf("step %d: %v", step, err)
			continue
		}
		owner := from
		if step >= committed {
			owner = to
		}
		v := &verifier{state: &m.State, machines: machines, out: Contents{Head: Head{Cluster: m.Cluster(), Shards: 2}}}
		err = v.checkComplete()
		if step == neither {
			if _, active := machines[from].Bucket(run.First); err == nil || !active {
				t.Errorf("the only copy of a bucket was dropped, or counts as the newest: %v", err)
			}
			continue
		}
		if err != nil {
			t.Errorf("step %d: %v", step, err)
		}
		tiers := m.Tiers()
		if got, _ := tiers[0].Route(run.First); got != owner || len(m.Moves()) != 0 {
			t.Errorf("step %d: shard %d has the bucket, want %d; moves %v", step, got, owner, m.Moves())
		}
	}
}

// TestEndMovesOfOldCopies: a copy from before two moves does not become the owner in place of one
// from before the second move.
func TestEndMovesOfOldCopies(t *testing.T) {
	for _, frozen := range []bool{false, true} { // the source's log has the freeze for the first move
		endMovesOfOldCopies(t, frozen)
	}
}

func endMovesOfOldCopies(t *testing.T, frozen bool) {
	m := newMapWithShards(t, 2, 3)
	say := readyShards(t, m)
	tier := m.Tiers()[0]
	run := tier.Runs[0]
	from, to := run.Shard, uint64(5)-run.Shard
	machines := map[uint64]*shard.Machine{2: shard.New(2), 3: shard.New(3)}
	do := func(id uint64, kind shard.CommandKind, body []byte) {
		t.Helper()
		l, _ := takeOver(machines[id])
		if st := l.propose(shard.Command{Kind: kind, Body: body}); st != protocol.StatusOK {
			t.Fatal(id, kind, st)
		}
	}
	bucket := shard.BucketsBody{Total: tier.Buckets, First: run.First, Count: 1, Epoch: run.Epoch}
	do(from, shard.CmdBuckets, shard.AppendBuckets(nil, bucket))
	bucket.Epoch = say(&meta.MoveBegin{First: run.First, Count: 1, To: to}).Version
	if frozen {
		do(from, shard.CmdFreeze, shard.AppendBuckets(nil, bucket))
	}
	do(to, shard.CmdBuckets, shard.AppendBuckets(nil, bucket))
	first := meta.MoveRef{First: run.First, Epoch: bucket.Epoch}
	say(&meta.MoveCommit{MoveRef: first})
	say(&meta.MoveEnd{MoveRef: first})
	second := say(&meta.MoveBegin{First: run.First, Count: 1, To: from}).Version
	say(&meta.MoveCommit{MoveRef: meta.MoveRef{First: run.First, Epoch: second}})
	if err := EndMoves(m, machines); err == nil {
		t.Error("a copy from before the first move was activated")
	}
	if _, active := machines[to].Bucket(run.First); !active {
		t.Error("the newer copy was dropped")
	}
}

// readyShards makes the shards of a map ready, and returns what applies a command to it.
func readyShards(t *testing.T, m *meta.Machine) (say func(c meta.Command) meta.Result) {
	t.Helper()
	say = func(c meta.Command) meta.Result {
		t.Helper()
		index := m.AppliedIndex() + 1
		r, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{byte(index), 7}, c)))
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		return r
	}
	for _, x := range m.Shards() {
		say(&meta.ShardReady{Shard: x.ID})
	}
	return say
}

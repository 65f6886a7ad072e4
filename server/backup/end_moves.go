package backup

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// proposer leads a machine that was read from a file, alone and in memory.
type proposer struct {
	m *shard.Machine
	h shard.Header
}

func takeOver(m *shard.Machine) (*proposer, protocol.Status) {
	l := &proposer{m: m, h: shard.Header{Format: m.Format(), Epoch: (m.Epoch()>>16 + 1) << 16}}
	return l, l.propose(shard.Command{Kind: shard.CmdTakeOver})
}

func (p *proposer) propose(c shard.Command) protocol.Status {
	p.h.Seq++
	p.h.LogTime = p.m.LogTime()
	var out shard.Events
	p.m.Apply(p.m.AppliedIndex()+1, shard.AppendCommand(shard.AppendHeader(nil, p.h), c), &out)
	status := protocol.StatusOK
	for _, e := range out.List {
		if e.Kind == shard.EventReply && e.Status != protocol.StatusOK {
			status = e.Status
		}
	}
	return status
}

// proposeUntilDone proposes a step of a move until no work is left over.
func (p *proposer) proposeUntilDone(kind shard.CommandKind, run shard.BucketsBody) protocol.Status {
	body := shard.AppendBuckets(nil, run)
	st := protocol.StatusAborted
	for n := 0; st == protocol.StatusAborted && n < maxProposals; n++ {
		st = p.propose(shard.Command{Kind: kind, Body: body})
	}
	return st
}

// lead takes a machine over for some steps of a move.
func lead(m *shard.Machine, run shard.BucketsBody, steps ...shard.CommandKind) protocol.Status {
	l, st := takeOver(m)
	for _, kind := range steps {
		if st == protocol.StatusOK {
			st = l.proposeUntilDone(kind, run)
		}
	}
	return st
}

// EndMoves ends the moves of buckets under way in a map and its machines, without a governor.
// Undecided moves are aborted; others are completed, also those whose commit only the shards know.
// Older copies, which a shard serves because its log ends before a move, are dropped. It is for a
// cluster that is gone.
func EndMoves(m *meta.Machine, machines map[uint64]*shard.Machine) error {
	for _, x := range m.Moves() {
		ref := x.Ref()
		if x.Phase == meta.Moving {
			// Buckets are active at the target under the move's epoch only after a commit, which
			// the remaining map may not have.
			var decide meta.Command = &meta.MoveAbort{MoveRef: ref}
			x.Phase = meta.Aborted
			if to := machines[x.To]; to != nil {
				if epoch, active := to.Bucket(x.First); active && epoch == x.Epoch {
					decide = &meta.MoveCommit{MoveRef: ref}
					x.Phase = meta.Committed
				}
			}
			if err := applyMeta(m, decide); err != nil {
				return err
			}
		}
		keeper, other := x.To, x.From
		if x.Phase == meta.Aborted {
			keeper, other = x.From, x.To
		}
		if newer := newerCopy(machines, keeper, x); newer != 0 {
			return fmt.Errorf("buckets %d to %d were moving from shard %d to %d, and what is left of shard %d is older than what "+
				"shard %d has; give the folder of another instance that had shard %d",
				x.First, x.First+x.Count-1, x.From, x.To, keeper, newer, keeper)
		}
		t, _ := m.Tier(x.Tier)
		run := shard.BucketsBody{Tier: x.Tier, Total: t.Buckets, First: x.First, Count: x.Count, Epoch: x.OwnerEpoch()}
		for _, part := range []struct {
			shard uint64
			kind  shard.CommandKind
		}{{keeper, shard.CmdActivate}, {other, shard.CmdDropBuckets}} {
			st := protocol.StatusOK
			if part.shard == other {
				st = dropStale(machines[other], machines[keeper], run)
			}
			if st == protocol.StatusOK {
				st = lead(machines[part.shard], run, part.kind)
			}
			if st != protocol.StatusOK {
				return fmt.Errorf("buckets %d to %d were moving from shard %d to %d, and what is left of shard %d does not allow to end that (%w): its copy is not whole; "+
					"give the folder of another instance that had it", x.First, x.First+x.Count-1, x.From, x.To, part.shard, st)
			}
		}
		if err := applyMeta(m, &meta.MoveEnd{MoveRef: ref}); err != nil {
			return err
		}
	}
	// A move that has ended may be unknown to the log of a shard that had the buckets before it.
	for _, t := range m.Tiers() {
		for _, r := range t.Runs {
			run := shard.BucketsBody{Tier: t.ID, Total: t.Buckets, First: r.First, Count: r.Count, Epoch: r.Epoch}
			for id, x := range machines {
				if tier, total := x.Tier(); id == r.Shard || total == 0 || tier != t.ID || machines[r.Shard] == nil {
					continue
				}
				if st := dropStale(x, machines[r.Shard], run); st != protocol.StatusOK {
					return fmt.Errorf("buckets %d to %d have moved to shard %d, and the older copy of shard %d cannot be dropped (%w); "+
						"give the folder of another instance that had it", r.First, r.First+r.Count-1, r.Shard, id, st)
				}
			}
		}
	}
	return nil
}

// newerCopy finds the shard that has owned one of the buckets later than the keeper's copy of it,
// the move that is under way aside. Activating that copy would lose what came since. 0: there is
// none.
func newerCopy(machines map[uint64]*shard.Machine, keeper uint64, x meta.Move) uint64 {
	m := machines[keeper]
	if m == nil {
		return 0 // which is said elsewhere
	}
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		if tier, total := machines[id].Tier(); id == keeper || total == 0 || tier != x.Tier {
			continue
		}
		for b := x.First; b < x.First+x.Count; b++ {
			has, owned := m.Owned(b)
			if epoch, later := machines[id].Owned(b); owned && later && has < epoch && epoch < x.Epoch {
				return id
			}
		}
	}
	return 0
}

// dropStale drops what a shard still serves of a run, because its log ends before the run moved on:
// of buckets that the run's owner serves under its epoch.
func dropStale(m, owner *shard.Machine, run shard.BucketsBody) protocol.Status {
	stale := func(b uint32) bool {
		owned, serves := owner.Bucket(b)
		epoch, active := m.Bucket(b)
		return serves && owned == run.Epoch && active && epoch < run.Epoch
	}
	part := run
	for b, end := run.First, run.First+run.Count; b < end; b++ {
		for part.First, part.Count = b, 0; b < end && stale(b); b++ {
			part.Count++
		}
		if part.Count == 0 {
			continue
		}
		if st := lead(m, part, shard.CmdFreeze, shard.CmdDropBuckets); st != protocol.StatusOK {
			return st
		}
	}
	return protocol.StatusOK
}

func applyMeta(m *meta.Machine, c meta.Command) error {
	index := m.AppliedIndex() + 1
	var op meta.OpID // differs from the random ones of proposers
	copy(op[:], "endmoves")
	binary.BigEndian.PutUint64(op[len(op)-8:], index)
	entry, err := m.Entry(op, c)
	if err != nil {
		return err
	}
	r, err := meta.DecodeResult(m.Apply(index, entry))
	if err == nil {
		err = r.Err()
	}
	return err
}

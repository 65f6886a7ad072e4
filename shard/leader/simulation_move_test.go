package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// simMap is where buckets are: the truth, or what a replica knows of it.
type simMap struct {
	owner, epoch [simBuckets]uint64
}

// simMove carries one bucket from shard to shard, a step at a time. Steps go into the logs of the
// leaders; any of them may come again later.
type simMove struct {
	bucket   uint32
	epoch    uint64
	from, to *simShard
	phase    string
	cursor   []byte
}

type simStepSent struct {
	s *simShard
	c shard.Command
}

func (w *sim) ownerOf(bucket uint32) *simShard { return w.shards[w.routes.owner[bucket]-1] }

// serving is the shard in which a bucket is active, nil while it moves.
func (w *sim) serving(bucket uint32) *simShard {
	for _, s := range w.shards {
		if _, active := s.authority.Bucket(bucket); active {
			return s
		}
	}
	return nil
}

// decide changes the map, which replicas learn late.
func (w *sim) decide(v *simMove, owner *simShard) {
	w.routes.owner[v.bucket], w.routes.epoch[v.bucket] = owner.id, v.epoch
	at := w.routes
	for _, s := range w.shards {
		for _, r := range s.replicas {
			w.after(w.delay(1_000), func() {
				r.act(func() {
					if at.epoch[v.bucket] > r.routes.epoch[v.bucket] {
						r.routes.owner[v.bucket], r.routes.epoch[v.bucket] = at.owner[v.bucket], at.epoch[v.bucket]
					}
					r.l.RouteChanged(r.clock())
				})
			})
		}
	}
}

// take brings a step into a shard's log, if it can.
func (w *sim) take(s *simShard, kind shard.CommandKind, body []byte) (protocol.Status, bool) {
	if !s.master.leads || w.now < s.master.isolatedUntil || w.now < s.master.pausedUntil || w.chance(0.1) {
		return 0, false
	}
	c := shard.Command{Kind: kind, Body: body}
	w.steps = append(w.steps, simStepSent{s, c})
	var out shard.Event
	w.commit(s.master, func(x shard.Event) { out = x }, c)
	return out.Status, out.Status == protocol.StatusOK
}

// mover is a step of the move that is under way.
func (w *sim) mover() {
	if n := len(w.steps); n > 0 && w.chance(0.02) {
		again := w.steps[n-1-w.rand.IntN(min(n, 30))]
		if again.s.master.leads {
			w.counts["step again"]++
			w.commit(again.s.master, nil, again.c)
		}
	}
	v := w.moving
	if v == nil {
		if w.chance(0.02) {
			b := uint32(w.rand.IntN(simBuckets))
			v = &simMove{bucket: b, epoch: w.routes.epoch[b] + 1, from: w.ownerOf(b),
				to: w.shards[w.rand.IntN(simShards)], phase: "freeze"}
			if v.to != v.from {
				w.moving = v
			}
		}
		return
	}
	if !w.quiet && !w.chance(0.2) {
		return
	}
	run := shard.BucketsBody{Total: simBuckets, First: v.bucket, Count: 1, Epoch: v.epoch}
	body := shard.AppendBuckets(nil, run)
	if (v.phase == "freeze" || v.phase == "import" || v.phase == "commit") && w.chance(0.05) {
		w.counts["move aborted"]++
		v.epoch++
		v.phase, v.from, v.to = "activate", v.to, v.from
		w.decide(v, v.to)
		return
	}
	switch v.phase {
	case "freeze":
		st, ok := w.take(v.from, shard.CmdFreeze, body)
		if ok {
			v.phase = "import"
		}
		w.must(v, st)
	case "import":
		part, next, err := v.from.authority.Buckets().Export(v.bucket, 1, v.epoch, v.cursor, 50)
		if err != nil {
			w.t.Fatal(err)
		}
		st, ok := w.take(v.to, shard.CmdImport,
			shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: part}))
		w.must(v, st)
		if ok {
			v.cursor = next
			if next == nil {
				v.phase = "commit"
			}
		}
	case "commit":
		w.decide(v, v.to)
		v.phase = "activate"
	case "activate":
		st, ok := w.take(v.to, shard.CmdActivate, body)
		w.must(v, st)
		if ok {
			v.phase = "drop"
		}
	case "drop":
		st, ok := w.take(v.from, shard.CmdDropBuckets, body)
		w.must(v, st)
		if ok {
			w.moving = nil
			w.counts["moved"]++
		}
	}
}

func (w *sim) must(v *simMove, st protocol.Status) {
	switch st {
	case protocol.StatusOK, protocol.StatusAborted, protocol.StatusUnavailable:
	default:
		w.t.Fatalf("at %d %s of bucket %d under epoch %d: %v", w.now, v.phase, v.bucket, v.epoch, st)
	}
}

// compare gives the leader the machine's list of what is held, as its driver does.
func (r *simReplica) compare() {
	var remotes []uint64
	r.m.Sessions().Remotes(func(id, _ uint64) bool {
		remotes = append(remotes, id)
		return true
	})
	r.l.Holdings(r.clock(), remotes)
}

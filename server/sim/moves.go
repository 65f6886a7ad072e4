package sim

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// places is where buckets are: the truth, or what somebody knows of it.
type places struct {
	owner, epoch [buckets]uint64
}

// move carries one bucket from shard to shard, a step at a time, through the logs of whoever leads.
type move struct {
	bucket   uint32
	epoch    uint64
	from, to *group
	phase    string
	cursor   []byte
}

type sentStep struct {
	s *group
	c shard.Command
}

func (w *world) ownerOf(bucket uint32) *group { return w.shards[w.places.owner[bucket]-1] }

// serving is the shard in which a bucket is active, nil while it moves.
func (w *world) serving(bucket uint32) *group {
	for _, s := range w.shards {
		if _, active := s.authority.Bucket(bucket); active {
			return s
		}
	}
	return nil
}

// decide changes the map, which replicas learn late.
func (w *world) decide(v *move, owner *group) {
	w.places.owner[v.bucket], w.places.epoch[v.bucket] = owner.id, v.epoch
	b, id, epoch := v.bucket, owner.id, v.epoch
	for _, s := range w.shards {
		for _, r := range s.replicas {
			var learn func()
			learn = func() {
				if !r.running() {
					w.after(500, learn) // maps are learned whole: nobody misses one for good
					return
				}
				r.act(func() {
					if epoch > r.places.epoch[b] {
						r.places.owner[b], r.places.epoch[b] = id, epoch
						r.l.RouteChanged(r.clock())
					}
				})
			}
			w.after(w.delay(r.n)*3, learn)
		}
	}
}

// take brings a step into a shard's log, if it can.
func (w *world) take(s *group, kind shard.CommandKind, body []byte) (protocol.Status, bool) {
	if !s.accepts() || w.chance(Move, uint32(s.id), 0.1) && !w.calm {
		return 0, false
	}
	c := shard.Command{Kind: kind, Body: body}
	w.steps = append(w.steps, sentStep{s, c})
	x, ok := s.commit(s.master, c)
	return x.Status, ok && x.Status == protocol.StatusOK
}

// mover takes a step of the move that is under way.
func (w *world) mover() {
	if n := uint64(len(w.steps)); n > 0 && w.fault(StepAgain, 0, 0.02) {
		again := w.steps[n-1-w.pick(StepAgain, 0, min(n, 30))]
		if again.s.accepts() {
			again.s.commit(again.s.master, again.c)
		}
	}
	v := w.moving
	if v == nil {
		if w.fault(Move, 0, 0.01) {
			b := uint32(w.pick(Move, 1, buckets))
			v = &move{bucket: b, epoch: w.places.epoch[b] + 1, from: w.ownerOf(b), to: w.shards[w.pick(Move, 2, shards)], phase: "freeze"}
			if v.to != v.from {
				w.moving = v
			}
		}
		return
	}
	if !w.calm && !w.chance(Move, 3, 0.2) {
		return
	}
	run := shard.BucketsBody{Total: buckets, First: v.bucket, Count: 1, Epoch: v.epoch}
	body := shard.AppendBuckets(nil, run)
	if (v.phase == "freeze" || v.phase == "import" || v.phase == "commit") && w.fault(Abort, 0, 0.05) {
		v.epoch++
		v.phase, v.from, v.to = "activate", v.to, v.from
		w.decide(v, v.to)
		return
	}
	var (
		st protocol.Status
		ok bool
	)
	switch v.phase {
	case "freeze":
		if st, ok = w.take(v.from, shard.CmdFreeze, body); ok {
			v.phase = "import"
		}
	case "import":
		part, next, err := v.from.authority.Export(v.bucket, 1, v.epoch, v.cursor, 200)
		if err != nil {
			w.fail("bucket %d under epoch %d is frozen and not exported: %v", v.bucket, v.epoch, err)
		}
		if st, ok = w.take(v.to, shard.CmdImport, shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: part})); ok {
			if v.cursor = next; next == nil {
				v.phase = "commit"
			}
		}
	case "commit":
		w.decide(v, v.to)
		v.phase = "activate"
	case "activate":
		if st, ok = w.take(v.to, shard.CmdActivate, body); ok {
			v.phase = "drop"
		}
	case "drop":
		if st, ok = w.take(v.from, shard.CmdDropBuckets, body); ok {
			w.moving = nil
			w.seen["moved"]++
		}
	}
	switch st {
	case protocol.StatusOK, protocol.StatusAborted, protocol.StatusUnavailable:
	default:
		w.fail("%s of bucket %d under epoch %d: %v", v.phase, v.bucket, v.epoch, st)
	}
}

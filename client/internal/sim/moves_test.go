package sim

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// move moves one bucket from shard to shard, a step at a time, through the logs of the shards'
// leaders.
type move struct {
	bucket   uint32
	epoch    uint64
	from, to *raftGroup
	phase    string
	cursor   []byte
	bounds   []ownerBound // when it was frozen
}

type moveStep struct {
	s *raftGroup
	c shard.Command
}

func (w *simulation) ownerOf(bucket uint32) *raftGroup {
	return w.shards[placeOf(w.routes.owner[bucket])]
}

// activeShard is the shard in which a bucket is active, nil while it moves.
func (w *simulation) activeShard(bucket uint32) *raftGroup {
	for _, s := range w.shards {
		if _, active := s.committed.Bucket(bucket); active {
			return s
		}
	}
	return nil
}

// changeRoute changes the map in the bucket of a move.
func (w *simulation) changeRoute(v *move, owner *raftGroup) {
	m := *w.routes
	m.owner[v.bucket], m.epoch[v.bucket] = owner.id, v.epoch
	w.publish(&m)
}

// publish makes a map the newest one. Instances learn it late.
func (w *simulation) publish(m *clusterMap) {
	m.version = w.routes.version + 1
	w.routes = m
	for _, in := range w.instances {
		var learn func()
		learn = func() {
			if !in.running() {
				w.afterOrEnd(500, learn) // no instance misses a map for good
				return
			}
			in.learn(m)
		}
		d := w.delay(in.n) * 3
		if w.fault(MapLate, in.n, 0.1) {
			d += w.pick(MapLate, in.n, 3_000)
		}
		w.afterOrEnd(d, learn)
	}
}

// moves reports whether a bucket moves from a shard or to it.
func (w *simulation) moves(s *raftGroup, bucket uint64) bool {
	return w.move != nil && uint64(w.move.bucket) == bucket && (w.move.from == s || w.move.to == s)
}

// commitMoveStep brings a step into a shard's log, if it can.
func (w *simulation) commitMoveStep(s *raftGroup, kind shard.CommandKind, body []byte) (protocol.Status, bool) {
	if !s.accepts() || w.chance(MoveBucket, uint32(s.id), 0.1) && !w.faultsOver {
		return 0, false
	}
	c := shard.Command{Kind: kind, Body: body}
	w.moveSteps = append(w.moveSteps, moveStep{s, c})
	x, ok := s.commit(s.leader, c)
	return x.Status, ok && x.Status == protocol.StatusOK
}

// beginMove begins to move a bucket to some shard, unless that is where it is.
func (w *simulation) beginMove(bucket uint32) {
	v := &move{bucket: bucket, epoch: w.routes.epoch[bucket] + 1, from: w.ownerOf(bucket),
		to: w.shards[w.pick(MoveBucket, 2, shards)], phase: "freeze"}
	if v.to != v.from && v.to != w.surplus {
		w.move = v
	}
}

// stepMove takes the next step of the current move.
func (w *simulation) stepMove() {
	if n := uint64(len(w.moveSteps)); n > 0 && w.fault(RepeatMoveStep, 0, 0.02) {
		again := w.moveSteps[n-1-w.pick(RepeatMoveStep, 0, min(n, 30))]
		if again.s.accepts() {
			again.s.commit(again.s.leader, again.c)
		}
	}
	v := w.move
	if v == nil {
		likely := 0.01
		if w.surplus != nil {
			likely = 0.1
		}
		if w.fault(MoveBucket, 0, likely) {
			b := uint32(w.pick(MoveBucket, 1, buckets))
			for i := uint32(0); i < buckets && w.surplus != nil && w.ownerOf(b) != w.surplus; i++ {
				b = (b + 1) % buckets
			}
			w.beginMove(b)
		}
		return
	}
	if !w.faultsOver && !w.chance(MoveBucket, 3, 0.2) {
		return
	}
	run := shard.BucketsBody{Tier: w.tier, Total: buckets, First: v.bucket, Count: 1, Epoch: v.epoch}
	body := shard.AppendBuckets(nil, run)
	if (v.phase == "freeze" || v.phase == "import" || v.phase == "commit") && w.fault(AbortMove, 0, 0.05) {
		v.epoch++
		v.phase, v.from, v.to = "activate", v.to, v.from
		w.changeRoute(v, v.to)
		return
	}
	var (
		st protocol.Status
		ok bool
	)
	switch v.phase {
	case "freeze":
		bounds := v.from.bounds(func(bucket uint32) bool { return bucket == v.bucket })
		if st, ok = w.commitMoveStep(v.from, shard.CmdFreeze, body); ok {
			v.phase, v.bounds = "import", bounds
		}
	case "import":
		part, next, err := v.from.committed.Buckets().Export(v.bucket, 1, v.epoch, v.cursor, 200)
		if err != nil {
			w.fail("bucket %d under epoch %d is frozen and not exported: %v", v.bucket, v.epoch, err)
		}
		if st, ok = w.commitMoveStep(v.to, shard.CmdImport, shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: part})); ok {
			if v.cursor = next; next == nil {
				v.phase = "commit"
			}
		}
	case "commit":
		w.changeRoute(v, v.to)
		v.phase = "activate"
	case "activate":
		_, before := v.to.committed.Bucket(v.bucket) // by a repeated step; holds may have got more time since
		if st, ok = w.commitMoveStep(v.to, shard.CmdActivate, body); ok {
			if !before {
				v.to.checkBounds(v.bounds)
			}
			v.phase = "drop"
		}
	case "drop":
		if st, ok = w.commitMoveStep(v.from, shard.CmdDropBuckets, body); ok {
			w.move = nil
			w.counts["moved"]++
		}
	}
	switch st {
	case protocol.StatusOK, protocol.StatusAborted, protocol.StatusUnavailable:
	default:
		w.fail("%s of bucket %d under epoch %d: %v", v.phase, v.bucket, v.epoch, st)
	}
}

// placeOf is the place of a shard in simulation.shards. A shard that takes the place of a removed
// one has an id of its own.
func placeOf(id uint64) uint64 { return (id - 1) % shards }

// shardByID finds a shard; nil for one that was removed.
func (w *simulation) shardByID(id uint64) *raftGroup {
	if s := w.shards[placeOf(id)]; s.id == id {
		return s
	}
	return nil
}

// stepRemoval picks a shard that is to go, now and then, and removes it when its buckets have
// moved: nothing in it is kept. Another one takes its place, with a new id and with the nodes, and
// gets buckets by moves.
func (w *simulation) stepRemoval() {
	if w.faultsOver {
		w.surplus = nil
	}
	s := w.surplus
	if s == nil {
		if w.fault(RemoveShard, 0, 0.002) {
			w.surplus = w.shards[w.pick(RemoveShard, 1, shards)]
		}
		return
	}
	if w.move != nil {
		return
	}
	for b := range uint32(buckets) {
		if w.ownerOf(b) == s {
			return
		}
	}
	w.removeShard(s)
}

// removeShard removes a shard, once an instance is up that can lead the one that takes its place: what
// begins on an instance that is down never ends.
func (w *simulation) removeShard(s *raftGroup) {
	lead := slices.IndexFunc(s.replicas[:], func(r *replica) bool { return r.up() })
	if lead < 0 {
		return
	}
	for _, r := range s.replicas {
		r.life++
		r.hosted = slices.DeleteFunc(r.hosted, func(x *replica) bool { return x == r })
		for _, k := range slices.Clone(r.conns) {
			k.close("the shard does not run on this instance any more") // what is in its log is not answered
		}
		r.leader.Stop()
		r.leading = false
	}
	next := newGroup(w, s.id+shards)
	w.shards[placeOf(s.id)], w.surplus = next, nil
	m := *w.routes
	m.shards = w.shards
	w.publish(&m)
	for _, r := range next.replicas {
		r.learn(&m)
	}
	w.faultsOver = true // it begins without any
	next.elect(next.replicas[lead])
	next.leader.apply(1)
	next.commit(next.leader, shard.Command{Kind: shard.CmdNodePut, Body: w.nodePut()})
	w.faultsOver = false
	w.appliedRevision[placeOf(s.id)] = w.revision
	w.counts["shard removed"]++
}

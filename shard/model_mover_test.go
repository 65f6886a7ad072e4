package shard

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// take sends a step of a move, which may be sent again at any later time.
func (x *moving) take(to int, kind CommandKind, body []byte) protocol.Status {
	c := Command{Kind: kind, Body: body}
	x.sent = append(x.sent, movingStep{to, c})
	e := x.command(to, c)
	x.say("shard %d: step %d -> %v %s", to, kind, e.Status, e.Text)
	return e.Status
}

// again repeats a step of any move there ever was.
func (x *moving) again() {
	if len(x.sent) == 0 {
		return
	}
	s := x.sent[len(x.sent)-1-x.r.IntN(min(len(x.sent), 40))]
	x.saw("step sent again")
	if s.c.Kind == CmdImport {
		x.saw("late chunk")
	}
	e := x.command(s.to, s.c)
	x.say("shard %d: step %d again -> %v %s", s.to, s.c.Kind, e.Status, e.Text)
	x.reattach()
}

// reattach has the clients of sessions that a move has detached come back, as they do.
func (x *moving) reattach() {
	for _, c := range x.clients {
		i, ok := x.serving(protocol.SessionBucket(c.id))
		if !ok {
			continue
		}
		if v, found := x.shards[i].m.Session(c.id); !found || !v.Attached {
			if !found {
				x.t.Fatalf("session %x is lost\n%v", c.id, x.told[max(0, len(x.told)-30):])
			}
			if err := x.attach(c, c.epoch, c.nonce); err != nil {
				x.t.Fatal(err)
			}
		}
	}
}

func (x *moving) move() error {
	if len(x.moves) == 0 || len(x.moves) < 2 && x.r.IntN(10) == 0 {
		x.begin()
		return nil
	}
	v := x.moves[x.r.IntN(len(x.moves))]
	if (v.phase == "frozen" || v.phase == "there" || v.phase == "committed" || v.phase == "activated") && stillIn(x.shards[v.from].m, v) != v.still {
		return fmt.Errorf("processes or tracks in copies frozen for epoch %d have changed", v.run.Epoch)
	}
	body := AppendBuckets(nil, v.run)
	if x.r.IntN(12) == 0 && (v.phase == "begun" || v.phase == "frozen" || v.phase == "there") {
		x.saw(map[string]string{"begun": "move aborted before the freeze", "frozen": "move aborted after it", "there": "move aborted after the import"}[v.phase])
		v.run.Epoch++
		v.phase = "aborted"
		x.commit(v, v.from)
		return nil
	}
	switch v.phase {
	case "begun":
		switch st := x.take(v.from, CmdFreeze, body); st {
		case protocol.StatusOK:
			v.phase, v.still = "frozen", stillIn(x.shards[v.from].m, v)
		case protocol.StatusAborted:
			x.saw("freeze had to wait")
		default:
			return fmt.Errorf("freeze: %v", st)
		}
	case "frozen":
		return x.carry(v)
	case "there":
		x.commit(v, v.to)
		v.phase = "committed"
	case "committed", "aborted":
		to, next := v.to, "activated"
		if v.phase == "aborted" {
			to, next = v.from, "returned"
		}
		if st := x.take(to, CmdActivate, body); st != protocol.StatusOK {
			return fmt.Errorf("activate: %v", st)
		}
		x.catchUp(false)
		x.reattach()
		v.phase = next
	case "activated", "returned":
		to := v.from
		if v.phase == "returned" {
			to = v.to
		}
		if st := x.take(to, CmdDropBuckets, body); st != protocol.StatusOK {
			return fmt.Errorf("drop: %v", st)
		}
		if x.shards[to].m.clearing.on {
			x.saw("drop goes on")
		}
		x.moves = without(x.moves, v)
		x.saw("move done")
	}
	return nil
}

func (x *moving) begin() {
	first := uint32(x.r.IntN(movingBuckets))
	count := uint32(1 + x.r.IntN(2))
	v := &movingMove{from: x.owner[first], to: x.r.IntN(movingShards), phase: "begun"}
	epoch := uint64(0)
	for b := first; b < first+count; b++ {
		if b >= movingBuckets || x.owner[b] != v.from || v.to == v.from {
			return
		}
		for _, o := range x.moves {
			if b >= o.run.First && b < o.run.First+o.run.Count {
				return
			}
		}
		epoch = max(epoch, x.epochs[b])
	}
	v.run = BucketsBody{Total: movingBuckets, First: first, Count: count, Epoch: epoch + 1}
	x.moves = append(x.moves, v)
	x.say("move of %d+%d from %d to %d, epoch %d", first, count, v.from, v.to, v.run.Epoch)
}

func (x *moving) commit(v *movingMove, owner int) {
	for b := v.run.First; b < v.run.First+v.run.Count; b++ {
		x.owner[b], x.epochs[b] = owner, v.run.Epoch
	}
}

// carry brings the next chunk over, or forgets how far it was.
func (x *moving) carry(v *movingMove) error {
	from, to := x.shards[v.from].m, x.shards[v.to].m
	switch x.r.IntN(10) {
	case 0:
		x.saw("crash")
		v.cursor = nil
	case 1:
		cursor, complete, ok := to.Imported(v.run.First, v.run.Count, v.run.Epoch)
		if !ok {
			return fmt.Errorf("nothing can be imported")
		}
		x.saw("resumed")
		if v.cursor = cursor; complete {
			v.phase = "there"
			return nil
		}
	}
	part, next, err := from.Export(v.run.First, v.run.Count, v.run.Epoch, v.cursor, []int{1, 40, 300, 0}[x.r.IntN(4)])
	if err != nil {
		return err
	}
	switch st := x.take(v.to, CmdImport, AppendImport(nil, ImportBody{v.run, part})); st {
	case protocol.StatusAborted:
		if to.clearing.on {
			x.saw("outdated copy replaced")
			return nil
		}
		x.saw("chunk out of order")
		v.cursor, _, _ = to.Imported(v.run.First, v.run.Count, v.run.Epoch)
	case protocol.StatusOK:
		v.cursor = next
		if i := to.importOf(&v.run); i >= 0 && len(to.imports[i].part) > 0 {
			x.saw("track in parts")
		}
		if _, complete, _ := to.Imported(v.run.First, v.run.Count, v.run.Epoch); complete {
			v.phase = "there"
			if c, err := sameCopies(from, to, v, x.saw); err != nil {
				return err
			} else if c > 0 {
				x.saw("waiter moved")
			}
			if slices.ContainsFunc(x.clients, func(c *modelClient) bool { return v.run.inRun(uint64(protocol.SessionBucket(c.id))) }) {
				x.saw("home moved with guests")
			}
		}
	default:
		return fmt.Errorf("import: %v", st)
	}
	return nil
}

func (x *moving) restart() error {
	s := x.shards[x.r.IntN(movingShards)]
	if s.snap != nil {
		return nil
	}
	m, err := restored(s.m)
	if err != nil {
		return err
	}
	if m.Digest() != s.m.Digest() {
		return fmt.Errorf("restored it is another machine")
	}
	s.m = m
	x.saw("restart")
	return nil
}

// sameCopies compares the copies of source and target, and counts waiters.
func sameCopies(from, to *Machine, v *movingMove, seen func(string)) (waiters int, err error) {
	for b := v.run.First; b < v.run.First+v.run.Count; b++ {
		x, y := &from.buckets[b], &to.buckets[b]
		if x.orders != y.orders || x.sessions != y.sessions || x.stood != y.stood || len(x.semaphores) != len(y.semaphores) {
			return 0, fmt.Errorf("bucket %d is another at the target: %d semaphores, want %d", b, len(y.semaphores), len(x.semaphores))
		}
		if members, err := sameProcessCopies(x, y); err != nil {
			return 0, err
		} else if members > 0 {
			seen("process moved")
		}
		if instances, err := sameTrackCopies(x, y); err != nil {
			return 0, err
		} else if instances > 0 {
			seen("track moved")
		}
		for key, s := range x.semaphores {
			o := y.semaphores[key]
			if o == nil || o.owners.n != s.owners.n || o.waiters.n != s.waiters.n || o.used != s.used {
				return 0, fmt.Errorf("semaphore %q is another at the target", key)
			}
			waiters += s.waiters.n
		}
	}
	return waiters, nil
}

// rest compares everything and lets time pass, when no move is under way.
func (x *moving) rest() error {
	if len(x.moves) > 0 {
		return nil
	}
	x.catchUp(true)
	if err := x.same(); err != nil {
		return err
	}
	x.now += uint64(x.r.IntN(3000))
	x.model(op{kind: CmdDetach, msg: DetachBody{}})
	for i := range x.shards {
		x.apply(i, nil)
	}
	x.catchUp(true)
	x.tickTracks()
	return x.same()
}

func (x *moving) same() error {
	if err := x.sameProcesses(); err != nil {
		return err
	}
	if err := x.sameTracks(); err != nil {
		return err
	}
	count := 0
	for i, s := range x.shards {
		count += s.m.Sizes().Semaphores
		for b := range uint32(movingBuckets) {
			if _, active := s.m.Bucket(b); active != (x.owner[b] == i) {
				return fmt.Errorf("bucket %d at shard %d: active %v, its owner is %d", b, i, active, x.owner[b])
			}
		}
	}
	if count != len(x.w.sems) {
		return fmt.Errorf("%d semaphores in all shards, want %d", count, len(x.w.sems))
	}
	for _, w := range x.w.sems {
		b := x.w.bucketOf(w)
		s := x.shards[x.owner[b]]
		got := s.m.buckets[b].lookup(1, w.name)
		if got == nil {
			return fmt.Errorf("semaphore %q is lost", w.name)
		}
		if got.limit != w.limit || got.version != w.version || !bytes.Equal(got.data, w.data) || got.ephemeral != w.ephemeral || got.used != w.used() {
			return fmt.Errorf("semaphore %q is %+v, want %+v", w.name, got, w)
		}
		var rows []string
		for _, t := range []*treap{&got.owners, &got.waiters} {
			for e := t.first; e != nil; e = next(e, byOrder) {
				left := uint64(0)
				if e.timer.pos > 0 {
					left = e.timer.at - s.m.time(e.sem.bucket)
				}
				rows = append(rows, fmt.Sprint(e.party.id, e.orderID, e.count, e.seq, e.timeout, string(e.data), !e.waiting, left))
			}
		}
		var want []string
		for _, r := range w.rows {
			left := uint64(0)
			if r.timed && !r.owner {
				left = r.deadline - x.w.now
			}
			want = append(want, fmt.Sprint(r.session.id, r.order, r.count, r.seq, r.timeout, string(r.data), r.owner, left))
		}
		if !slices.Equal(rows, want) {
			return fmt.Errorf("semaphore %q has %q, want %q", w.name, rows, want)
		}
	}
	for _, w := range x.w.sessions {
		if !w.home {
			continue
		}
		v, ok := x.shards[x.owner[protocol.SessionBucket(w.id)]].m.Session(w.id)
		if !ok || v.Epoch != w.epoch || v.Attached != w.attached || v.Key != w.key {
			return fmt.Errorf("session %x is %+v, want %+v", w.id, v, w)
		}
	}
	return nil
}

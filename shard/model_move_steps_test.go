package shard

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sendStep sends a step of a move, which may be sent again at any later time.
func (x *moveTest) sendStep(to int, kind CommandKind, body []byte) protocol.Status {
	c := Command{Kind: kind, Body: body}
	x.sent = append(x.sent, sentStep{to, c})
	e := x.command(to, c)
	x.logf("shard %d: step %d -> %v %s", to, kind, e.Status, e.Text)
	return e.Status
}

// again repeats a step of any move there ever was.
func (x *moveTest) repeatStep() {
	if len(x.sent) == 0 {
		return
	}
	s := x.sent[len(x.sent)-1-x.r.IntN(min(len(x.sent), 40))]
	x.count("step sent again")
	if s.c.Kind == CmdImport {
		x.count("late chunk")
	}
	e := x.command(s.to, s.c)
	x.logf("shard %d: step %d again -> %v %s", s.to, s.c.Kind, e.Status, e.Text)
	x.reattach()
}

// reattach has the clients of sessions that a move has detached come back, as they do.
func (x *moveTest) reattach() {
	for _, c := range x.clients {
		i, ok := x.serving(protocol.SessionBucket(c.id))
		if !ok {
			continue
		}
		if v, found := x.shards[i].m.Sessions().Home(c.id); !found || !v.Attached {
			if !found {
				x.t.Fatalf("session %x is lost\n%v", c.id, x.notified[max(0, len(x.notified)-30):])
			}
			if err := x.attach(c, c.epoch, c.nonce); err != nil {
				x.t.Fatal(err)
			}
		}
	}
}

func (x *moveTest) move() error {
	if len(x.moves) == 0 || len(x.moves) < 2 && x.r.IntN(10) == 0 {
		x.begin()
		return nil
	}
	v := x.moves[x.r.IntN(len(x.moves))]
	if (v.phase == "frozen" || v.phase == "there" || v.phase == "committed" || v.phase == "activated") &&
		stillIn(x.shards[v.from].m, v) != v.still {
		return fmt.Errorf("processes or tracks in copies frozen for epoch %d have changed", v.run.Epoch)
	}
	body := AppendBuckets(nil, v.run)
	if x.r.IntN(12) == 0 && (v.phase == "begun" || v.phase == "frozen" || v.phase == "there") {
		x.count(map[string]string{"begun": "move aborted before the freeze", "frozen": "move aborted after it",
			"there": "move aborted after the import"}[v.phase])
		v.run.Epoch++
		v.phase = "aborted"
		x.commit(v, v.from)
		return nil
	}
	switch v.phase {
	case "begun":
		switch st := x.sendStep(v.from, CmdFreeze, body); st {
		case protocol.StatusOK:
			v.phase, v.still = "frozen", stillIn(x.shards[v.from].m, v)
			for b := v.run.First; b < v.run.First+v.run.Count; b++ { // from now on above what objects gave out
				for _, objects := range x.shards[v.from].m.buckets[b].objects {
					for _, o := range objects {
						x.w.orders[b] = max(x.w.orders[b], o.state.highest())
					}
				}
			}
		case protocol.StatusAborted:
			x.count("freeze had to wait")
		default:
			return fmt.Errorf("freeze: %v", st)
		}
	case "frozen":
		return x.transferChunk(v)
	case "there":
		x.commit(v, v.to)
		v.phase = "committed"
	case "committed", "aborted":
		to, next := v.to, "activated"
		if v.phase == "aborted" {
			to, next = v.from, "returned"
		}
		if st := x.sendStep(to, CmdActivate, body); st != protocol.StatusOK {
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
		if st := x.sendStep(to, CmdDropBuckets, body); st != protocol.StatusOK {
			return fmt.Errorf("drop: %v", st)
		}
		if x.shards[to].m.clearing.active {
			x.count("drop goes on")
		}
		x.moves = without(x.moves, v)
		x.count("move done")
	}
	return nil
}

func (x *moveTest) begin() {
	first := uint32(x.r.IntN(moveTestBuckets))
	count := uint32(1 + x.r.IntN(2))
	v := &bucketMove{from: x.owner[first], to: x.r.IntN(moveTestShards), phase: "begun"}
	epoch := uint64(0)
	for b := first; b < first+count; b++ {
		if b >= moveTestBuckets || x.owner[b] != v.from || v.to == v.from {
			return
		}
		for _, o := range x.moves {
			if b >= o.run.First && b < o.run.First+o.run.Count {
				return
			}
		}
		epoch = max(epoch, x.epochs[b])
	}
	v.run = BucketsBody{Total: moveTestBuckets, First: first, Count: count, Epoch: epoch + 1}
	x.moves = append(x.moves, v)
	x.logf("move of %d+%d from %d to %d, epoch %d", first, count, v.from, v.to, v.run.Epoch)
}

func (x *moveTest) commit(v *bucketMove, owner int) {
	for b := v.run.First; b < v.run.First+v.run.Count; b++ {
		x.owner[b], x.epochs[b] = owner, v.run.Epoch
	}
}

// carry brings the next chunk over, or forgets how far it was.
func (x *moveTest) transferChunk(v *bucketMove) error {
	from, to := x.shards[v.from].m, x.shards[v.to].m
	switch x.r.IntN(10) {
	case 0:
		x.count("crash")
		v.cursor = nil
	case 1:
		cursor, complete, ok := to.Buckets().Imported(v.run.First, v.run.Count, v.run.Epoch)
		if !ok {
			return fmt.Errorf("nothing can be imported")
		}
		x.count("resumed")
		if v.cursor = cursor; complete {
			v.phase = "there"
			return nil
		}
	}
	part, next, err := from.Buckets().Export(v.run.First, v.run.Count, v.run.Epoch, v.cursor, []int{1, 40, 300, 0}[x.r.IntN(4)])
	if err != nil {
		return err
	}
	switch st := x.sendStep(v.to, CmdImport, AppendImport(nil, ImportBody{v.run, part})); st {
	case protocol.StatusAborted:
		if to.clearing.active {
			x.count("outdated copy replaced")
			return nil
		}
		x.count("chunk out of order")
		v.cursor, _, _ = to.Buckets().Imported(v.run.First, v.run.Count, v.run.Epoch)
	case protocol.StatusOK:
		v.cursor = next
		if i := to.imports.find(&v.run); i >= 0 && len(to.imports[i].objectBytes) > 0 {
			x.count("track in parts")
		}
		if _, complete, _ := to.Buckets().Imported(v.run.First, v.run.Count, v.run.Epoch); complete {
			v.phase = "there"
			if c, err := sameCopies(from, to, v, x.count); err != nil {
				return err
			} else if c > 0 {
				x.count("waiter moved")
			}
			if slices.ContainsFunc(x.clients, func(c *modelClient) bool { return v.run.contains(uint64(protocol.SessionBucket(c.id))) }) {
				x.count("home moved with remote sessions")
			}
		}
	default:
		return fmt.Errorf("import: %v", st)
	}
	return nil
}

func (x *moveTest) restart() error {
	s := x.shards[x.r.IntN(moveTestShards)]
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
	x.count("restart")
	return nil
}

// sameCopies compares the copies of source and target, and counts waiters.
func sameCopies(from, to *Machine, v *bucketMove, seen func(string)) (waiters int, err error) {
	for b := v.run.First; b < v.run.First+v.run.Count; b++ {
		x, y := &from.buckets[b], &to.buckets[b]
		nx, ny := x.semaphores.Len()+int(x.newestCount), y.semaphores.Len()+int(y.newestCount)
		if x.orderCounter != y.orderCounter || x.versionFloor != y.versionFloor || x.sessionCounter != y.sessionCounter ||
			x.timeBase != y.timeBase || nx != ny {
			return 0, fmt.Errorf("bucket %d is another at the target: %d semaphores, want %d",
				b, ny, nx)
		}
		if members, err := sameObjectCopies(kindProcess, x, y); err != nil {
			return 0, err
		} else if members > 0 {
			seen("process moved")
		}
		if instances, err := sameObjectCopies(kindTrack, x, y); err != nil {
			return 0, err
		} else if instances > 0 {
			seen("track moved")
		}
		for s := range from.semaphores.in(x) {
			o := to.semaphores.lookup(y, s.node.id, s.name)
			if o == nil || o.owners.n != s.owners.n || o.waiters.n != s.waiters.n || o.used != s.used {
				return 0, fmt.Errorf("semaphore %q is another at the target", s.name)
			}
			waiters += s.waiters.n
			if s.waiters.n > 0 && s.queue().laned() {
				seen("lanes moved")
			}
			if s.owners.n > 0 && s.core().HasSlots() {
				seen("slots moved")
			}
			if q := s.queue(); q != nil && len(q.History()) > 0 {
				seen("history moved")
			}
		}
	}
	return waiters, nil
}

// rest compares everything and lets time pass, when no move is under way.
func (x *moveTest) compareAtRest() error {
	if len(x.moves) > 0 {
		return nil
	}
	x.catchUp(true)
	if err := x.compare(); err != nil {
		return err
	}
	x.now += uint64(x.r.IntN(3000))
	x.model(op{kind: CmdDetach, msg: DetachBody{}})
	for i := range x.shards {
		x.apply(i, nil)
	}
	x.catchUp(true)
	x.tickTracks()
	return x.compare()
}

// sameQueue compares what a semaphore has beyond a plain one.
func (x *moveTest) sameQueue(m *Machine, w *modelSemaphore) error {
	var d protocol.DescribeReply
	err := m.Semaphores().Describe(&protocol.Describe{Node: 1, Name: w.name,
		Flags: protocol.WithOwners | protocol.WithWaiters | protocol.WithSlots}, &d)
	if err != nil {
		return err
	}
	for i, q := range w.describedWaiters() {
		if !reflect.DeepEqual(d.Waiters[i].Options, q.Options) {
			return fmt.Errorf("waiter %d has %+v, want %+v", q.OrderID, d.Waiters[i].Options, q.Options)
		}
	}
	i := 0
	for _, r := range w.entries {
		if r.owner && !reflect.DeepEqual(d.Owners[i].Options, x.w.described(w, r).Options) {
			return fmt.Errorf("owner %d has %+v, want %+v", r.order, d.Owners[i].Options, x.w.described(w, r).Options)
		}
		if r.owner {
			i++
		}
	}
	return sameDetails(m, x.w, &d, w)
}

func (x *moveTest) compare() error {
	if err := x.sameProcesses(); err != nil {
		return err
	}
	if err := x.sameTracks(); err != nil {
		return err
	}
	count := 0
	for i, s := range x.shards {
		count += s.m.Metrics().Sizes().Semaphores
		for b := range uint32(moveTestBuckets) {
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
		got := s.m.semaphores.lookup(&s.m.buckets[b], 1, w.name)
		if got == nil {
			return fmt.Errorf("semaphore %q is lost", w.name)
		}
		if got.limit != w.limit || got.version != w.version || !bytes.Equal(got.data, w.data) ||
			got.ephemeral != w.ephemeral || got.used != w.used() {
			return fmt.Errorf("semaphore %q is %+v, want %+v", w.name, got, w)
		}
		var rows []string
		for _, t := range []*treap{&got.owners, &got.waiters} {
			for e := t.first; e != nil; e = next(e, byOrder) {
				left := uint64(0)
				if e.timer.pos > 0 {
					left = e.timer.at - s.m.bucketTime(e.semaphore.bucket)
				}
				rows = append(rows,
					fmt.Sprint(e.session.id, e.orderID, e.count, e.seq, e.timeout, string(e.data), !e.waiting, left))
			}
		}
		var want []string
		for _, r := range w.entries {
			left := uint64(0)
			if r.timed && !r.owner {
				left = r.deadline - x.w.now
			}
			if at := r.bound(); r.owner && at > 0 {
				left = at - x.w.now
			}
			want = append(want,
				fmt.Sprint(r.session.id, r.order, r.count, r.seq, r.timeout, string(r.data), r.owner, left))
		}
		if !slices.Equal(rows, want) {
			return fmt.Errorf("semaphore %q has %q, want %q", w.name, rows, want)
		}
		if err := x.sameQueue(s.m, w); err != nil {
			return fmt.Errorf("semaphore %q: %w", w.name, err)
		}
	}
	for _, w := range x.w.sessions {
		if !w.home {
			continue
		}
		v, ok := x.shards[x.owner[protocol.SessionBucket(w.id)]].m.Sessions().Home(w.id)
		if !ok || v.Epoch != w.epoch || v.Attached != w.attached || v.Key != w.key {
			return fmt.Errorf("session %x is %+v, want %+v", w.id, v, w)
		}
	}
	return nil
}

package shard

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// history is one random run: batches of commands at random log times under random leader epochs,
// applied to a machine, to the model, and to a second machine that is a replica. After each batch
// these hold:
//
//   - the events and changes, and all that can be read, are those of the model;
//   - no semaphore holds more than its limit, and its owners are the greedy prefix of its queue by
//     order id;
//   - order ids rise with every entry, for each node and name, through everything;
//   - owners and waiters belong to living sessions, unless an end is due;
//   - nothing is addressed to a session that ended before;
//   - the machine's own check of its records finds nothing, and the replica's digest is the
//     machine's;
//   - log time has not gone back.
//
// Now and then a machine is replaced by what a snapshot of it restores to; a snapshot is written
// while batches go on, and what it restores to, with the rest of the log, is the machine; and bytes
// that were changed at random are applied to two copies, which must live and agree.
type history struct {
	*gen
	machine, replica *Machine
	index, seq       uint64
	log              [][]byte // entries, from index 1 on
	moments          []moment
	commands         int

	debts  *pendingEvents // of a slow machine
	ended  map[uint64]bool
	orders map[nodeName]*orderIDs
}

type nodeName struct {
	node uint64
	name string
}

// orderIDs are the order ids seen on a name, and whose they were.
type orderIDs struct {
	last uint64
	of   map[uint64]uint64
}

func newHistory(src source, seen map[string]int) *history {
	h := &history{gen: newGen(src), machine: New(1), replica: New(1),
		ended: map[uint64]bool{}, orders: map[nodeName]*orderIDs{}}
	h.m.seen = seen
	if h.chance(30) {
		h.m.limits = Limits{Waiters: 2, Semaphores: 2, Answers: 5}
	}
	h.machine.limits, h.replica.limits = h.m.limits, h.m.limits
	setRing(h.replica, 2) // which are the newest decides nothing
	return h
}

// moment is what happened once, kept to be told after a failure.
type moment struct {
	note   string
	header Header
	ops    []op
	events []Event // of the model
}

func (h *history) note(what string) { h.moments = append(h.moments, moment{note: what}) }

func (h *history) trace() string {
	var b bytes.Buffer
	for i, at := range h.moments {
		if i > 0 && i < len(h.moments)-1 && at.note == "" && len(at.ops)+len(at.events)+len(h.moments[i-1].ops) == 0 {
			continue // a tick after a tick
		}
		if at.note != "" {
			fmt.Fprintln(&b, at.note)
			continue
		}
		fmt.Fprintf(&b, "batch %+v\n", at.header)
		for _, o := range at.ops {
			fmt.Fprintf(&b, "   %d node %d epoch %d: %s\n", o.kind, o.node, o.epoch, short(o))
		}
		for _, e := range at.events {
			fmt.Fprintf(&b, "      -> %s\n", show(e))
		}
	}
	return b.String()
}

// run runs the history to its end, and then lets everything that is due happen.
func (h *history) run() (err error) {
	for _, part := range []func() []op{h.opening, h.begin, h.semaphoreOps} {
		if err := h.apply(h.header(h.m.now+uint64(h.n(3))), part()); err != nil {
			return err
		}
	}
	step := h.step
	if h.slow() {
		step = h.slowStep
	} else {
		h.queues = h.chance(60)
	}
	for range 10 + h.n(50) {
		if err := step(); err != nil {
			return err
		}
	}
	for range 500 {
		at, ok := h.machine.NextDeadline()
		if !ok {
			return nil
		}
		if err := h.applyAny(h.header(at), nil); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return errors.New("ticks are asked for without end")
}

func (h *history) header(logTime uint64) Header {
	return Header{Format: 1, Epoch: h.m.epoch, LogTime: logTime, Wall: 1_700_000_000_000 + logTime*2}
}

func (h *history) step() error {
	// A session that is overdue and has not been ended is rare, and a take-over then more so.
	overdue := func(s *modelSession) bool { return s.home && !h.m.alive(s) }
	if slices.ContainsFunc(h.m.sessions, overdue) && h.chance(40) {
		return h.apply(h.takeOverHeader(), []op{{kind: CmdTakeOver}})
	}
	switch h.n(32) {
	case 26, 27:
		return h.apply(h.takeOverHeader(), []op{{kind: CmdTakeOver}})
	case 28:
		return h.restart()
	case 29:
		return h.mutate()
	case 30, 31:
		return h.snapshotWhileApplying(h.batch)
	default:
		return h.batch()
	}
}

func (h *history) takeOverHeader() Header {
	hd := h.header(h.stamp())
	term, again := h.m.epoch>>16, h.m.epoch&0xffff
	hd.Epoch = pick(h.gen, (term+1)<<16, term<<16|again+1, h.m.epoch, (term+2)<<16|1, h.m.epoch-min(h.m.epoch, 1))
	return hd
}

func (h *history) batch() error {
	hd := h.header(h.stamp())
	if h.chance(3) {
		hd.Epoch = pick(h.gen, hd.Epoch-min(hd.Epoch, 1), hd.Epoch+1)
	}
	var ops []op
	for range h.n(7) {
		ops = append(ops, h.op())
	}
	return h.apply(hd, ops)
}

// apply applies a batch everywhere, and compares.
func (h *history) apply(hd Header, ops []op) error {
	out, err := h.push(hd, ops)
	if err != nil {
		return err
	}
	if err := sameEvents(out.List, h.m.events); err != nil {
		return err
	}
	if err := sameChanges(out.SemaphoreChanges, h.m.changes); err != nil {
		return err
	}
	if err := sameState(h.machine, h.m, []uint32{0, 1, 2, 5}[h.index%4], h.known()); err != nil {
		return err
	}
	return h.checkOrders()
}

// known are the sessions that were ever heard of.
func (h *history) known() (ids []uint64) {
	for _, c := range h.clients {
		ids = append(ids, c.id)
	}
	return ids
}

// push applies a batch to the machine, its replica and the model, and checks what needs no model.
func (h *history) push(hd Header, ops []op) (*Events, error) {
	h.index++
	h.seq++
	hd.Seq = h.seq
	h.commands += len(ops)
	entry := encode(hd, ops)
	h.log = append(h.log, entry)
	before := h.machine.LogTime()
	scratch := bytes.Clone(entry)
	var out, other Events
	h.machine.Apply(h.index, scratch, &out)
	for i := range scratch {
		scratch[i] = 0xa5 // nothing may keep it
	}
	h.replica.Apply(h.index, entry, &other)
	h.m.apply(h.index, hd, ops)
	h.moments = append(h.moments, moment{header: hd, ops: ops, events: h.m.events})
	h.learn(ops, h.m.events)
	if h.machine.LogTime() < before {
		return nil, errors.New("log time went back")
	}
	if err := h.machine.Check(); err != nil {
		return nil, err
	}
	if err := sameText(out.List, other.List); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	if a, b := h.machine.Digest(), h.replica.Digest(); a != b {
		return nil, fmt.Errorf("digest %x, the replica's is %x", a, b)
	}
	return &out, h.checkEnds(out.List)
}

// checkEnds checks that nothing is addressed to a session after its end.
func (h *history) checkEnds(events []Event) error {
	for _, e := range events {
		switch e.Kind {
		case EventSessionEnded:
			if h.ended[e.Session] {
				return fmt.Errorf("session %d ended twice", e.Session)
			}
			h.ended[e.Session] = true
		case EventAcquireResult, EventLeaseLost, EventSessionAttached, EventSessionDetached:
			if h.ended[e.Session] {
				return fmt.Errorf("after the end of its session: %s", show(e))
			}
		}
	}
	return nil
}

// checkOrders checks that order ids rise, and that nobody holds anything after the end.
func (h *history) checkOrders() error {
	for _, s := range h.m.sems {
		if len(s.entries) > 0 && len(s.entries) == s.waiters() {
			h.m.countRule("a queue without owners")
		}
		key := nodeName{s.node, string(s.name)}
		if h.orders[key] == nil {
			h.orders[key] = &orderIDs{of: map[uint64]uint64{}}
		}
		known := h.orders[key]
		top := known.last
		req := protocol.Describe{Node: s.node, Name: s.name, Flags: protocol.WithOwners | protocol.WithWaiters}
		var d protocol.DescribeReply
		if err := h.machine.Semaphores().Describe(&req, &d); err != nil {
			return err
		}
		entries := d.Owners
		for _, w := range d.Waiters {
			entries = append(entries, protocol.Owner{OrderID: w.OrderID, Session: w.Session, Since: w.Since})
		}
		for _, o := range entries {
			if h.ended[o.Session] {
				return fmt.Errorf("%q is held by session %d, which has ended", s.name, o.Session)
			}
			// A new entry's order id is above all that were there before.
			session, seen := known.of[o.OrderID]
			switch {
			case seen && session != o.Session:
				return fmt.Errorf("%q: order id %d was another session's", s.name, o.OrderID)
			case !seen && o.OrderID <= top:
				return fmt.Errorf("%q: order id %d after %d", s.name, o.OrderID, top)
			}
			known.of[o.OrderID] = o.Session
			known.last = max(known.last, o.OrderID)
		}
	}
	return nil
}

// sameText compares the events of two machines, sentences included.
func sameText(a, b []Event) error {
	if !slices.EqualFunc(a, b, func(x, y Event) bool { return show(x) == show(y) && x.Text == y.Text }) {
		return fmt.Errorf("events %v and %v", a, b)
	}
	return nil
}

// short writes a command so that a line can hold it.
func short(o op) string {
	s := fmt.Sprintf("%T %+v", o.msg, o.msg)
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

package shard

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pendingEvents are what a slow machine owes: one that does little beyond its commands in one
// Apply, so that work is left over. The model does everything at once, so events are compared when
// the machine has caught up, then without regard to their order. What may be asked meanwhile must
// be answered as by the model: an overdue session counts as gone, whether its end was logged or
// not.
type pendingEvents struct {
	got, want               []Event
	gotChanges, wantChanges []SemaphoreChange
}

// slow makes the history's machine a slow one, or not.
func (h *history) slow() bool {
	if !h.chance(30) {
		return false
	}
	h.debts = &pendingEvents{}
	h.m.loose = true
	h.machine.work = workLimits{deadlines: 1 + h.n(3), sweeps: 1 + h.n(3), releases: 1 + h.n(3)}
	h.replica.work = h.machine.work
	h.note(fmt.Sprintf("slow: %+v", h.machine.work))
	return true
}

// slowStep is a command and all that follows from it, then a leap of time or a take-over, then what
// may happen before the machine has caught up.
func (h *history) slowStep() error {
	switch h.n(16) {
	case 14:
		return h.restart()
	case 15:
		return h.mutate()
	}
	o := h.op()
	if x, ok := o.msg.(DetachBody); ok {
		o.msg = DetachBody{x.Sessions[:1], x.Stood, x.StoodAt} // with timeout 0 each ends before the next, as far as the work goes
	}
	if err := h.applyAny(h.header(h.m.now), []op{o}); err != nil {
		return err
	}
	if h.chance(40) {
		return nil
	}
	if err := h.jump(); err != nil {
		return err
	}
	for range h.n(4) {
		var err error
		switch h.n(6) {
		case 0:
			err = h.applySlow(h.header(h.m.now), []op{h.nodePutOp()})
		case 1:
			hd := h.header(h.m.now)
			hd.Epoch = h.takeOverHeader().Epoch
			err = h.applySlow(hd, []op{{kind: CmdTakeOver}})
		case 2, 3:
			err = h.applySlow(h.header(h.m.now), []op{h.attachOp()})
		case 4:
			err = h.restart()
		default:
			err = h.snapshotWhileApplying(func() error { return h.applySlow(h.header(h.m.now), []op{h.attachOp()}) })
		}
		if err != nil {
			return err
		}
	}
	return h.catchUp()
}

// leap moves log time, maybe with a take-over, and asks about what is overdue then.
func (h *history) jump() error {
	if h.chance(30) {
		return h.applySlow(h.takeOverHeader(), []op{{kind: CmdTakeOver}})
	}
	hd := h.header(h.stamp())
	var ops []op
	for _, s := range h.m.sems {
		for _, r := range s.entries {
			if r.timed && r.deadline < hd.LogTime {
				ops = append(ops, op{kind: CmdAcquire, node: s.node, epoch: r.session.epoch, msg: &protocol.Acquire{
					Head: protocol.Head{Session: r.session.id, Seq: r.seq, Low: 1},
					Name: s.name, Count: r.count, Timeout: r.timeout,
					Ephemeral: s.ephemeral,
				}})
			}
		}
	}
	for _, c := range h.clients {
		if h.m.isHome(c.id) {
			// Refused either way, and the status shows whether it lives.
			x := &protocol.SessionAttach{Session: c.id, Node: c.node, Key: modelKey(999), Nonce: 1}
			ops = append(ops, op{kind: CmdSessionAttach, node: c.node, msg: x})
		}
	}
	return h.applySlow(hd, ops)
}

// applyAny applies a batch, and lets a slow machine catch up.
func (h *history) applyAny(hd Header, ops []op) error {
	if h.debts == nil {
		return h.apply(hd, ops)
	}
	if err := h.applySlow(hd, ops); err != nil {
		return err
	}
	return h.catchUp()
}

// applySlow applies a batch to a slow machine. Answers, and what is known of sessions, are the
// model's at once.
func (h *history) applySlow(hd Header, ops []op) error {
	out, err := h.push(hd, ops)
	if err != nil {
		return err
	}
	if err := h.bounded(out.List, len(ops)); err != nil {
		return err
	}
	d := h.debts
	got, late := splitEvents(out.List)
	want, lateWant := splitEvents(h.m.events)
	d.got, d.want = append(d.got, late...), append(d.want, lateWant...)
	d.gotChanges, d.wantChanges = append(d.gotChanges, out.SemaphoreChanges...), append(d.wantChanges, h.m.changes...)
	if err := sameEvents(got, want); err != nil {
		return err
	}
	for _, id := range h.known() {
		if s := h.m.session(id); s == nil || s.home {
			if err := sameHome(h.machine, h.m, id); err != nil {
				return fmt.Errorf("session %d: %w", id, err)
			}
		}
	}
	for _, n := range h.m.nodes {
		if err := sameSessions(h.machine, h.m, n.id, 2); err != nil {
			return err
		}
	}
	return sameDeadline(h.machine, h.m)
}

// bounded checks that a batch without commands did no more than it may.
func (h *history) bounded(events []Event, commands int) error {
	ends, lapses := 0, 0
	for _, e := range events {
		switch {
		case e.Kind == EventSessionEnded && e.Reason == protocol.EndExpired:
			ends++
		case e.Kind == EventAcquireResult && e.State == protocol.NotAcquired:
			lapses++
		}
	}
	if w := h.machine.work; commands == 0 && (ends > w.deadlines || lapses > w.deadlines+w.releases) {
		return fmt.Errorf("%d sessions and %d waiters ended in one apply: %+v", ends, lapses, w)
	}
	return nil
}

// prompt parts the events that belong to a command from those that may come later. The end of the
// waiters of an ended session is not compared: those that do not fit into the work of one Apply are
// covered by the event of the session's end.
func splitEvents(events []Event) (now, late []Event) {
	for _, e := range events {
		switch {
		case e.Kind == EventAcquireResult && e.Status == protocol.StatusSessionExpired:
		case e.Kind == EventReply || e.Kind == EventSessionAttached || e.Kind == EventTookOver ||
			e.Kind == EventRefused || e.Kind == EventNodeDropped:
			now = append(now, e)
		default:
			e.Text, e.Epoch = "", 0 // an attach meanwhile changes it
			late = append(late, e)
		}
	}
	return now, late
}

// catchUp lets the machine catch up, and compares everything.
func (h *history) catchUp() error {
	for range 300 {
		if at, ok := h.machine.NextDeadline(); !ok || at > h.m.now {
			d := *h.debts
			*h.debts = pendingEvents{}
			if err := sameEvents(sorted(d.got, show), sorted(d.want, show)); err != nil {
				return fmt.Errorf("when the machine has caught up: %w", err)
			}
			for i := range d.gotChanges {
				d.gotChanges[i].Owner.Description = "" // as above
			}
			for i := range d.wantChanges {
				d.wantChanges[i].Owner.Description = ""
			}
			text := func(c SemaphoreChange) string { return fmt.Sprintf("%+v", c) }
			if err := sameChanges(sorted(d.gotChanges, text), sorted(d.wantChanges, text)); err != nil {
				return fmt.Errorf("when the machine has caught up: %w", err)
			}
			if err := sameState(h.machine, h.m, 2, h.known()); err != nil {
				return err
			}
			return h.checkOrders()
		}
		if err := h.applySlow(h.header(h.m.now), nil); err != nil {
			return err
		}
	}
	return fmt.Errorf("the machine does not catch up")
}

func sorted[T any](list []T, text func(T) string) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int {
		switch x, y := text(a), text(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

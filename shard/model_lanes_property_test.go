package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// TestQueuesMatchModel is TestMachineMatchesModel with histories in which many sessions want few
// semaphores, all of which have options.
func TestQueuesMatchModel(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds.Of(t, 40, 400) {
		h := newHistory(randSource{rand.New(rand.NewPCG(seed, 1))}, seen)
		if err := h.runQueues(); err != nil {
			t.Fatalf("%v\n%s", err, h.trace())
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[rule], rule)
	}
	for _, rule := range []string{
		"alter to options that do not fit", "bound extended", "bound for a client that knows of none", "drain of an unknown slot", "fair: a key is granted and waits on",
		"first of a lane is overdue", "granted at once past waiters", "granted past an older waiter",
		"transfer", "transfer of slots", "transfer past somebody", "transfer to nobody",
		"extension that is no later than the bound", "extension where there is none",
		"granted without a bound, for it knows of none", "hold above the longest", "hold ends at its bound, and others wait",
		"hold ends at its first moment", "hold in the history", "late token without lanes", "numbered slots resized", "owner asks with other slots",
		"policy or slots altered while others wait", "known of somebody else than an owner", "owner is silent",
		"owner is preempted", "owner is preempted no more", "owner knows another preemption", "owner knows its preemption",
		"owner that is preempted asks for more time", "rule of preemption altered", "several owners are preempted",
		"silent owner answers", "silent owner is preempted still", "preempted owner ends at its bound",
		"preempted owner has an earlier bound", "resize above what options allow", "resize of named slots",
		"selector with too few slots", "selector without slots", "slot drained or undrained", "slots altered",
		"slots on or off while in use", "waiter asks for less and is granted", "waiter changes its lane",
	} {
		if seen[rule] == 0 && form.Is(form.Full) && !seeds.Chosen() {
			t.Errorf("%q never came to bear; let histories be made that do more of it", rule)
		}
	}
}

// runQueues is run for histories of semaphores with options.
func (h *history) runQueues() error {
	h.queues, h.strange, h.wrong, h.jumps = true, 0, pick(h.gen, 5, 0, 30), pick(h.gen, 5, 20)
	h.m.limits = Limits{1 << 20, 1 << 20, 1 << 14}
	h.machine.limits, h.replica.limits = h.m.limits, h.m.limits
	config := protocol.DefaultNodeConfig()
	if h.chance(20) {
		config.MaxBytes = 7_000
	}
	ops := []op{
		{kind: CmdBuckets, msg: BucketsBody{Total: modelBuckets, Count: modelBuckets}},
		{kind: CmdNodePut, msg: NodePutBody{Node: 1, Revision: 1, Config: config}},
	}
	h.names = modelNames[:1+h.n(2)]
	begin := func() (ops []op) {
		for range 6 + h.n(6) {
			o := h.freshStart()
			o.msg.(*protocol.SessionStart).Node, o.msg.(*protocol.SessionStart).Timeout = 1, 60_000
			ops = append(ops, o)
		}
		return ops
	}
	create := func() (ops []op) {
		for _, name := range h.names {
			o := h.createOp()
			x := o.msg.(*protocol.Create)
			x.Name, x.Limit = name, uint64(1+h.n(5))
			if x.Options = nil; h.chance(80) {
				x.Options = h.options(x.Limit)
			}
			ops = append(ops, o)
		}
		return ops
	}
	for _, part := range []func() []op{func() []op { return ops }, begin, create} {
		if err := h.apply(h.header(h.m.now+uint64(h.n(3))), part()); err != nil {
			return err
		}
	}
	for i, w := range []int{60, 25, 3, 1, 4, 1, 8 * h.n(2), 6, 0, 3, 2, 0, 1, 0, 3} {
		h.weights[i] = w
	}
	clear(h.weights[15:])
	for range 30 + h.n(60) {
		if err := h.step(); err != nil {
			return err
		}
	}
	for range 500 {
		at, ok := h.machine.NextDeadline()
		if !ok {
			return nil
		}
		if err := h.apply(h.header(at), nil); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}

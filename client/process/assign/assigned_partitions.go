package assign

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
)

// Partition is a partition that a worker holds.
type Partition struct {
	Number int
	// Token is the fencing token: it is higher than those of all who had the partition before. Send
	// it with every write that the partition protects, and have the resource refuse lower ones:
	// that holds also against a worker that was stopped, and wakes up after its session has ended.
	Token uint64
}

// Holder works on partitions. Its methods are called one at a time; a panic is recovered and
// logged.
type Holder interface {
	// Assigned reports that the partition is this worker's, and that nobody else works on it. It
	// begins the work and returns. ctx ends when the work has to stop: when the partition is
	// revoked, or before the session ends.
	Assigned(ctx context.Context, p Partition)
	// Revoked reports that the partition goes to another. ctx of Assigned has ended. It must not
	// return before the work has stopped: somebody else begins then.
	Revoked(p Partition)
}

// Run is a Holder with a goroutine for each partition, which runs work until its context ends. A
// partition moves when work has returned. If work returns by itself, the partition stays with this
// worker, idle.
func Run(work func(ctx context.Context, p Partition)) Holder {
	return &goroutineHolder{work: work, done: make(map[int]chan struct{})}
}

type goroutineHolder struct {
	work func(context.Context, Partition)
	done map[int]chan struct{} // of one caller at a time
}

func (g *goroutineHolder) Assigned(ctx context.Context, p Partition) {
	done := make(chan struct{})
	g.done[p.Number] = done
	go func() {
		defer close(done)
		g.work(ctx, p)
	}()
}

func (g *goroutineHolder) Revoked(p Partition) {
	<-g.done[p.Number]
	delete(g.done, p.Number)
}

// assignedPartitions are a worker's partitions. Its methods call the Holder's, one at a time.
//
// Invariant: a partition is in it from before Assigned is called until Revoked has returned.
type assignedPartitions struct {
	holder Holder
	log    *slog.Logger

	callbackMu sync.Mutex // held while the Holder's methods run; before mu
	closed     bool       // takes nothing more

	mu          sync.Mutex
	assignments map[int]*assignment // changed with callbackMu held, too
}

type assignment struct {
	Partition
	cancel context.CancelFunc
}

func (a *assignedPartitions) list() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.assignments))
}

// assign adds those of the partitions that it does not hold. life ends what it begins.
func (a *assignedPartitions) assign(life context.Context, partitions []int, token uint64) {
	a.callbackMu.Lock()
	defer a.callbackMu.Unlock()
	for _, n := range partitions {
		if a.closed || life.Err() != nil {
			return
		}
		if a.assignments[n] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(life)
		g := &assignment{Partition{n, token}, cancel}
		a.set(n, g)
		a.guard("assigned", n, func() { a.holder.Assigned(ctx, g.Partition) })
	}
}

// retain gives up what is not among the partitions, which rise.
func (a *assignedPartitions) retain(partitions []int) {
	a.callbackMu.Lock()
	defer a.callbackMu.Unlock()
	a.revoke(func(n int) bool {
		_, found := slices.BinarySearch(partitions, n)
		return !found
	})
}

func (a *assignedPartitions) close() {
	a.callbackMu.Lock()
	defer a.callbackMu.Unlock()
	a.closed = true
	a.revoke(func(int) bool { return true })
}

// revoke revokes what goes: all contexts end before the first one is waited for. callbackMu is
// held.
func (a *assignedPartitions) revoke(goes func(n int) bool) {
	numbers := slices.DeleteFunc(slices.Sorted(maps.Keys(a.assignments)), func(n int) bool { return !goes(n) })
	for _, n := range numbers {
		a.assignments[n].cancel()
	}
	for _, n := range numbers {
		a.guard("revoked", n, func() { a.holder.Revoked(a.assignments[n].Partition) })
		a.set(n, nil)
	}
}

// set holds a partition, or drops it for nil. callbackMu is held.
func (a *assignedPartitions) set(n int, g *assignment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g == nil {
		delete(a.assignments, n)
	} else {
		a.assignments[n] = g
	}
}

// guard calls f on a goroutine of its own, which it may end, as FailNow of a test does: the partitions
// behind are assigned and revoked all the same.
func (a *assignedPartitions) guard(what string, n int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if v := recover(); v != nil {
				a.log.Error("holder of partitions panicked", "callback", what, "partition", n, "panic", fmt.Sprint(v),
					"stack", string(debug.Stack()))
			} else if !returned {
				a.log.Error("holder of partitions ended its goroutine", "callback", what, "partition", n)
			}
		}()
		f()
		returned = true
	}()
	<-done
}

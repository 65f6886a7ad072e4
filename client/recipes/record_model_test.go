package recipes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// recordWorld is the record of a gate or a latch, with the programs that change it: each step of a
// change, by any of them in any order. They die between any two steps.
type recordWorld[T any] struct {
	t      *testing.T
	r      *rand.Rand
	states [][]byte // all that it had, the newest last; the first one: it is not there
	actors []*recordActor[T]
	deaths [3]int // before the read, before the write, before its answer
}

// recordActor is a change by a program.
type recordActor[T any] struct {
	at      int // the next step: 0 reads, 1 writes, 2 has the answer
	change  func(r *T, exists bool) (changed bool, err error)
	done    func()
	version int // that it read
	write   []byte
	failed  bool // the answer is that another one was faster
}

func newRecordWorld[T any](t *testing.T, seed int) *recordWorld[T] {
	return &recordWorld[T]{t: t, r: rand.New(rand.NewPCG(uint64(seed), 11)), states: [][]byte{nil}}
}

func (w *recordWorld[T]) version() int { return len(w.states) - 1 }

// read is a strict read of a state.
func (w *recordWorld[T]) read(version int) (record T) {
	if b := w.states[version]; b != nil {
		if err := json.Unmarshal(b, &record); err != nil {
			w.t.Fatal(err)
		}
	}
	return record
}

// begin begins a change. done is called when the caller knows that it is made.
func (w *recordWorld[T]) begin(change func(*T, bool) (bool, error), done func()) {
	w.actors = append(w.actors, &recordActor[T]{change: change, done: done})
}

// step has some program go on, or die.
func (w *recordWorld[T]) step() {
	if len(w.actors) == 0 {
		return
	}
	i := w.r.IntN(len(w.actors))
	a := w.actors[i]
	over := w.r.IntN(8) == 0
	if over {
		w.deaths[a.at]++
	} else {
		over = w.act(a)
	}
	if over {
		w.actors = slices.Delete(w.actors, i, i+1)
	}
}

// act is a step of sharedRecord.change. An answer that is lost changes nothing: the request is sent
// again under its number, and gets the same answer.
func (w *recordWorld[T]) act(a *recordActor[T]) (over bool) {
	switch a.at {
	case 0:
		record := w.read(w.version())
		a.version = w.version()
		changed, err := a.change(&record, a.version > 0)
		if err == nil && changed {
			a.write, err = json.Marshal(record)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if !changed {
			a.done()
			return true
		}
	case 1:
		if a.failed = w.version() != a.version; !a.failed {
			w.states = append(w.states, a.write)
		}
	case 2:
		if !a.failed {
			a.done()
			return true
		}
		a.at = 0
		return false
	}
	a.at++
	return false
}

// checkDeaths fails a test in which programs did not die often enough at each step.
func checkDeaths(t *testing.T, deaths [3]int) {
	t.Helper()
	t.Logf("deaths by step %v", deaths)
	if slices.Min(deaths[:]) < 50 {
		t.Errorf("too few programs died: %v", deaths)
	}
}

// TestGateModel: programs open and close a gate, and die at each step. A wait looks at it now and then,
// and passes exactly if the gate was open at some moment since its first look.
func TestGateModel(t *testing.T) {
	var deaths [3]int
	var passed, pulses int
	for seed := range 300 {
		w := newRecordWorld[gateRecord](t, seed)
		type wait struct {
			gateWait
			since int
		}
		var waits []*wait
		for range 200 {
			switch w.r.IntN(6) {
			case 0:
				open := w.r.IntN(2) == 0
				w.begin(func(r *gateRecord, exists bool) (bool, error) { return r.set(open, exists), nil }, func() {})
			case 1:
				if len(waits) < 5 {
					waits = append(waits, &wait{since: -1})
				}
			case 2:
				if len(waits) == 0 {
					break
				}
				i := w.r.IntN(len(waits))
				x := waits[i]
				if x.since < 0 {
					x.since = w.version()
				}
				want, now := false, w.read(w.version())
				for version := x.since; version <= w.version(); version++ {
					want = want || w.read(version).Open
				}
				got := x.passes(&now)
				if got != want {
					t.Fatalf("seed %d: a wait since version %d passes: %t, at version %d: %+v", seed, x.since, got, w.version(), now)
				}
				if got {
					waits = slices.Delete(waits, i, i+1)
					if passed++; !now.Open {
						pulses++
					}
				}
			default:
				w.step()
			}
		}
		for at, d := range w.deaths {
			deaths[at] += d
		}
	}
	checkDeaths(t, deaths)
	if t.Logf("%d waits passed, %d of them a gate that was closed again", passed, pulses); pulses < 50 {
		t.Error("too few waits passed a gate that was closed again")
	}
}

// TestLatchModel: programs count keys down, die at each step, and are started again with their keys. The
// latch has each key once, in the order in which they were written, and no more than open it. What a
// caller knows to be counted is counted.
func TestLatchModel(t *testing.T) {
	var deaths [3]int
	opened := 0
	for seed := range 300 {
		l := &Latch{n: 1 + seed%6}
		w := newRecordWorld[latchRecord](t, seed)
		for range 10 + w.r.IntN(110) {
			if w.r.IntN(4) > 0 {
				w.step()
				continue
			}
			key := fmt.Sprint(w.r.IntN(l.n + 2))
			w.begin(func(r *latchRecord, exists bool) (bool, error) { return l.count(r, exists, key) },
				func() { // the caller knows that it is counted
					if now := w.read(w.version()); !slices.Contains(now.Done, key) && len(now.Done) < l.n {
						t.Fatalf("seed %d: %q was counted, and %v are done", seed, key, now.Done)
					}
				})
		}
		var before latchRecord
		for version := 1; version <= w.version(); version++ {
			now := w.read(version)
			n := len(before.Done)
			if now.Latch != l.n || len(now.Done) != n+1 || !slices.Equal(now.Done[:n], before.Done) ||
				slices.Contains(before.Done, now.Done[n]) || len(now.Done) > l.n {
				t.Fatalf("seed %d: after %+v comes %+v", seed, before, now)
			}
			before = now
		}
		open, err := l.isOpen(&before)
		if err != nil || open != (len(before.Done) == l.n) {
			t.Fatalf("seed %d: open: %t, %v; %+v", seed, open, err, before)
		}
		if open {
			opened++
		}
		for at, d := range w.deaths {
			deaths[at] += d
		}
	}
	checkDeaths(t, deaths)
	if t.Logf("%d latches opened", opened); opened < 50 || opened > 250 {
		t.Errorf("%d latches opened, of 300", opened)
	}
}

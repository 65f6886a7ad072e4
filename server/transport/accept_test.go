package transport

import (
	"testing"
	"time"
)

// paceConnections lets connections in: each is there gap after the one before it, and accepting it
// takes accept, handing it over cost. It returns how long all took, and how long nobody was let in.
func paceConnections(n int, gap, cost func(i int) time.Duration, accept time.Duration) (took, paused time.Duration) {
	var p acceptPacer
	start := time.Now()
	now, there := start, start
	for i := range n {
		if there = there.Add(gap(i)); there.After(now) {
			now = there // Accept waits
		}
		from := now.Add(accept)
		now = from.Add(cost(i))
		rest := p.letIn(from, now)
		now, paused = now.Add(rest), paused+rest
	}
	return now.Sub(start), paused
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestFloodIsLetInByAThirdOfAProcessor(t *testing.T) {
	const n, cost = 100 * acceptBatch, 10 * time.Microsecond
	want := acceptPace*n*cost + cost // the batch begins when the first one was accepted
	if took, _ := paceConnections(n, always(0), always(cost), cost); took != want {
		t.Errorf("%d connections that take twice %v each were let in within %v, want %v", n, cost, took, want)
	}
	// One that waits for a loop costs no more than the others.
	slow := func(i int) time.Duration {
		if i%4 == 0 {
			return 3 * cost
		}
		return cost
	}
	if took, _ := paceConnections(n, always(0), slow, cost); took != want {
		t.Errorf("with some that wait, they were let in within %v, want %v", took, want)
	}
}

func TestConnectionsBelowThePaceAreNotHeldUp(t *testing.T) {
	for _, gap := range []time.Duration{70 * time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond} {
		if _, paused := paceConnections(1000, always(gap), always(10*time.Microsecond), 10*time.Microsecond); paused != 0 {
			t.Errorf("one each %v: held up for %v", gap, paused)
		}
	}
}

// A quiet time is no credit: the flood that follows is paced like any other.
func TestFloodAfterQuietTime(t *testing.T) {
	const n, cost = 10 * acceptBatch, 10 * time.Microsecond
	quiet := func(i int) time.Duration {
		if i == acceptBatch {
			return time.Hour
		}
		return 0
	}
	_, paused := paceConnections(n, quiet, always(cost), cost)
	if least := (n - 2*acceptBatch) * cost * (acceptPace - 2); paused < least {
		t.Errorf("paused for %v, want %v at least", paused, least)
	}
}

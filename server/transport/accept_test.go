package transport

import (
	"testing"
	"time"
)

// paceConnections lets connections in: each is there gap after the one before it, and accepting it
// takes cost, handing it over hand. It returns how long all took, and how long nobody was let in.
func paceConnections(n int, gap, cost func(i int) time.Duration, hand time.Duration) (took, paused time.Duration) {
	var p acceptPacer
	start := time.Now()
	now, there := start, start
	for i := range n {
		asked, accept := now, cost(i)
		now = now.Add(accept)
		if there = there.Add(gap(i)); there.After(asked) {
			now, accept = there.Add(accept), 0 // Accept waits
		}
		now = now.Add(hand)
		rest := p.letIn(asked, accept, now)
		now, paused = now.Add(rest), paused+rest
	}
	return now.Sub(start), paused
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestFloodIsLetInByAThirdOfAProcessor(t *testing.T) {
	const n, cost = 100 * acceptBatch, 10 * time.Microsecond
	const want = acceptPace * n * cost
	if took, _ := paceConnections(n, always(0), always(cost), cost); took != want {
		t.Errorf("%d connections that take twice %v each were let in within %v, want %v", n, cost, took, want)
	}
	// One that waits for a processor costs no more than the others, nor do loops that are slow.
	slow := func(i int) time.Duration {
		if i%4 == 0 {
			return 3 * cost
		}
		return cost
	}
	if took, _ := paceConnections(n, always(0), slow, cost); took != want {
		t.Errorf("with some that wait, they were let in within %v, want %v", took, want)
	}
	if took, _ := paceConnections(n, always(0), always(cost), 4*cost); took != want {
		t.Errorf("with slow loops they were let in within %v, want %v", took, want)
	}
}

func TestConnectionsBelowThePaceAreNotHeldUp(t *testing.T) {
	for _, gap := range []time.Duration{30 * time.Microsecond, 70 * time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond} {
		for _, hand := range []time.Duration{10 * time.Microsecond, 60 * time.Microsecond} {
			if _, paused := paceConnections(1000, always(gap), always(10*time.Microsecond), hand); paused != 0 && hand < gap {
				t.Errorf("one each %v: held up for %v", gap, paused)
			}
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

// TestDelayedAcceptSetsNoPace: the only one of a batch that found a client waiting was kept from a
// processor for longer than any accept takes.
func TestDelayedAcceptSetsNoPace(t *testing.T) {
	var p acceptPacer
	now := time.Now()
	for i := range acceptBatch {
		took := time.Duration(0)
		if i == 7 {
			took = 5 * time.Millisecond
		}
		asked := now
		now = now.Add(10*time.Millisecond + took)
		if rest := p.letIn(asked, took, now); rest != 0 {
			t.Fatalf("connection %d: held up for %v", i, rest)
		}
	}
}

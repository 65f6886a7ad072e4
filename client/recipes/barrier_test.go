package recipes

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// barrierWorld is a barrier's semaphore with its parties, which act in any order, look at old states,
// and die between any two steps.
type barrierWorld struct {
	t       *testing.T
	r       *rand.Rand
	n       int
	now     barrierState
	before  []barrierState // all earlier states
	token   uint64
	running []*barrierActor
	dead    []uint64                  // units of parties that died, until their sessions end
	met     map[uint64][]barrierEntry // by generation
	passed  map[string]bool           // generation and key
	deaths  [4]int                    // by step
	meets   int
}

type barrierState struct {
	record  barrierRecord
	version int
	entries []barrierEntry
}

func (s *barrierState) list() []barrierEntry { return slices.Clone(s.entries) }

type barrierActor struct {
	own   barrierEntry
	at    int // the next step: 0 takes a unit, 1 looks, 2 writes, 3 gives back
	seen  int // the state that it looked at last
	read  barrierRecord
	wrote int // the version that its compare-and-set expects
	write barrierRecord
}

func (w *barrierWorld) change(f func(*barrierState)) {
	w.before = append(w.before, w.now)
	w.now.entries = slices.Clone(w.now.entries)
	f(&w.now)
}

func (w *barrierWorld) leave(token uint64) {
	w.change(func(s *barrierState) {
		s.entries = slices.DeleteFunc(s.entries, func(p barrierEntry) bool { return p.Token == token })
	})
}

// step lets a party do one thing, and reports whether anything changed and whether the party is
// through.
func (w *barrierWorld) step(a *barrierActor, late bool) (changed, through bool) {
	switch a.at {
	case 0:
		w.token++
		a.own.Token, a.at, a.seen = w.token, 1, len(w.before)
		w.change(func(s *barrierState) { s.entries = append(s.entries, a.own) })
		return true, false
	case 1:
		seen := w.now
		if late {
			a.seen += w.r.IntN(len(w.before) - a.seen + 1)
			if a.seen < len(w.before) {
				seen = w.before[a.seen]
			}
		}
		switch seen.record.turn(&a.own, seen.list()) {
		case barrierMet:
			a.read, a.at = seen.record, 3
			return true, false
		case barrierWrites: // the strict read
			next, complete := w.now.record.meeting(w.now.list())
			if complete && next.has(a.own.Token) {
				w.checkLatest(next.Members)
				a.write, a.wrote, a.at = next, w.now.version, 2
				return true, false
			}
		}
		return false, false
	case 2:
		a.at = 1
		if w.now.version == a.wrote {
			w.checkWrite(a)
			w.change(func(s *barrierState) { s.record, s.version = a.write, s.version+1 })
			a.read, a.at = a.write, 3
		}
		return true, false
	default:
		w.checkMeeting(a)
		w.leave(a.own.Token)
		return true, true
	}
}

// checkWrite: each party of the last meeting that lives has read it.
func (w *barrierWorld) checkWrite(writer *barrierActor) {
	for _, a := range w.running {
		if a != writer && w.now.record.has(a.own.Token) {
			w.t.Fatalf("meeting %d is overwritten before its party %q read it", w.now.record.Generation, a.own.Key)
		}
	}
}

// checkLatest: of the parties with one key, the last to come is told of.
func (w *barrierWorld) checkLatest(members []barrierEntry) {
	for _, m := range members {
		for _, p := range w.now.entries {
			if p.Key == m.Key && p.Token > m.Token {
				w.t.Fatalf("%q meets with token %d, and token %d has come since", m.Key, m.Token, p.Token)
			}
		}
	}
}

func (w *barrierWorld) checkMeeting(a *barrierActor) {
	generation := a.read.Generation
	if known, ok := w.met[generation]; ok && !slices.EqualFunc(known, a.read.Members, sameEntry) {
		w.t.Fatalf("two meetings of generation %d: %v and %v", generation, known, a.read.Members)
	}
	w.met[generation] = a.read.Members
	keys := map[string]bool{}
	for _, p := range a.read.Members {
		keys[p.Key] = true
	}
	if len(keys) != w.n || len(a.read.Members) != w.n || !a.read.has(a.own.Token) {
		w.t.Fatalf("%q passed with %v at a barrier of %d", a.own.Key, a.read.Members, w.n)
	}
	if at := fmt.Sprint(generation, a.own.Key); w.passed[at] {
		w.t.Fatalf("%q passed twice in generation %d", a.own.Key, generation)
	} else {
		w.passed[at] = true
	}
	w.meets++
}

func sameEntry(a, b barrierEntry) bool {
	return a.Token == b.Token && a.Key == b.Key && string(a.Payload) == string(b.Payload)
}

// TestBarrierModel runs parties in random orders, with deaths at each step and restarts. What a party
// returns is one meeting of n living keys, the same for all of it, and once faults end nobody waits
// who could go on.
func TestBarrierModel(t *testing.T) {
	runs, deaths, meets := 200, [4]int{}, 0
	for seed := range runs {
		n := 1 + seed%4
		w := &barrierWorld{t: t, r: rand.New(rand.NewPCG(uint64(seed), 7)), n: n,
			met: map[uint64][]barrierEntry{}, passed: map[string]bool{}}
		w.now.record = barrierRecord{Barrier: n, Generation: 1}
		for range 400 {
			switch x := w.r.IntN(100); {
			case x < 12 && len(w.running) < n+2: // a key that is not there
				key := fmt.Sprint(w.r.IntN(n + 2))
				if !slices.ContainsFunc(w.running, func(a *barrierActor) bool { return a.own.Key == key }) {
					w.running = append(w.running, &barrierActor{own: barrierEntry{BarrierMember: BarrierMember{key, []byte{byte(x)}}}})
				}
			case x < 15 && len(w.running) > 0: // a death
				i := w.r.IntN(len(w.running))
				a := w.running[i]
				w.running = slices.Delete(w.running, i, i+1)
				w.deaths[a.at]++
				if a.at > 0 {
					w.dead = append(w.dead, a.own.Token)
				}
			case x < 20 && len(w.dead) > 0: // its session ends
				i := w.r.IntN(len(w.dead))
				w.leave(w.dead[i])
				w.dead = slices.Delete(w.dead, i, i+1)
			case len(w.running) > 0:
				i := w.r.IntN(len(w.running))
				if _, through := w.step(w.running[i], true); through {
					w.running = slices.Delete(w.running, i, i+1)
				}
			}
		}
		for _, token := range w.dead {
			w.leave(token)
		}
		for again := true; again; {
			again = false
			for _, a := range slices.Clone(w.running) {
				changed, through := w.step(a, false)
				again = again || changed
				if through {
					w.running = slices.DeleteFunc(w.running, func(b *barrierActor) bool { return a == b })
				}
			}
		}
		if len(w.running) >= n { // their keys differ
			t.Fatalf("seed %d: %d parties with keys of their own wait at a barrier of %d: %+v", seed, len(w.running), n, w.now)
		}
		for at, d := range w.deaths {
			deaths[at] += d
		}
		meets += w.meets
	}
	t.Logf("%d passed; deaths by step %v", meets, deaths)
	if slices.Min(deaths[:]) < 20 || meets < 10*runs {
		t.Fatalf("too little happened: %d passed, deaths by step %v", meets, deaths)
	}
}

// TestBarrierRecord: the largest record fits into a semaphore's data.
func TestBarrierRecord(t *testing.T) {
	for _, n := range []int{maxBarrier, maxBarrierPayloads / maxBarrierPayload} {
		r := barrierRecord{Barrier: n, Generation: 1}
		entries := map[string]barrierEntry{}
		for i := range n {
			p := barrierEntry{Token: 1<<63 + uint64(i)}
			p.Key = fmt.Sprintf("%04d", i) + string(slices.Repeat([]byte{1}, maxBarrierKey-4))
			p.Payload = make([]byte, min(maxBarrierPayload, maxBarrierPayloads/n))
			entries[p.Key] = p
		}
		next, complete := r.meeting(slices.Collect(maps.Values(entries)))
		data, err := json.Marshal(next)
		if !complete || err != nil || len(data) > protocol.MaxDataLen {
			t.Errorf("n = %d: complete %t, %d bytes, %v", n, complete, len(data), err)
		}
	}
}

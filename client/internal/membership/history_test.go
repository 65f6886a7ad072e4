package membership

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
	server "github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

func (w *world) step() {
	living := slices.DeleteFunc(slices.Clone(w.members), func(a *testMember) bool { return a.dead || a.paused })
	if len(living) == 0 {
		w.chaos()
		return
	}
	a := living[w.rnd.IntN(len(living))]
	switch n := w.rnd.IntN(100); {
	case n < 30:
		if len(a.queue) > 0 {
			switch m := a.queue[0].(type) {
			case *protocol.ProcessRound:
				a.m.HandleRound(w.now(), m)
			case *protocol.ProcessMessage:
				a.m.HandleMessage(w.now(), m)
			}
			a.queue = slices.Delete(a.queue, 0, 1)
		}
	case n < 55:
		w.run(a)
	case n < 80:
		if len(a.sends) == 0 {
			break
		}
		if !a.attached {
			if w.quiet || w.chance(3) {
				w.attach(a)
			}
			break
		}
		i := w.rnd.IntN(len(a.sends))
		s := a.sends[i]
		a.sends = slices.Delete(a.sends, i, i+1)
		if !w.quiet && w.chance(6) {
			a.m.Answered(w.now(), s, protocol.StatusUnavailable) // it is lost
		} else {
			w.arrive(a, s)
		}
	case n < 85:
		if len(a.async) > 0 {
			j := a.async[0]
			a.async = slices.Delete(a.async, 0, 1)
			w.replies(a, &j)
		}
	case n < 90:
		if !a.attached && (w.quiet || w.chance(3)) {
			w.attach(a)
		}
		a.m.Tick(w.now())
	case n < 99:
		w.at.Log += uint64(w.rnd.IntN(60))
		w.apply(func() {})
	default:
		if w.chance(4) {
			w.chaos()
		}
	}
	w.take(a)
	if a.over {
		a.dead = true
	}
}

func (w *world) chaos() {
	if w.quiet {
		return
	}
	living := slices.DeleteFunc(slices.Clone(w.members), func(a *testMember) bool { return a.dead })
	if len(living) < 5 && w.chance(2) || len(living) == 0 {
		key := ""
		if w.chance(2) {
			key = "key" + strconv.Itoa(w.rnd.IntN(3))
		}
		w.join(key)
		return
	}
	a := living[w.rnd.IntN(len(living))]
	switch w.rnd.IntN(8) {
	case 0: // killed
		a.dead = true
		w.end(a)
		if a.key != "" && w.chance(2) {
			w.join(a.key)
		}
	case 1: // paused, perhaps past the end of its session
		a.paused = true
		if w.chance(2) {
			w.end(a)
		}
	case 2:
		for _, b := range w.members {
			b.paused = false
		}
	case 3: // an election
		w.r = relay.New(relay.Limits{})
		for _, b := range w.members {
			b.attached, b.queue = false, nil
		}
		w.apply(func() {})
		w.seen["elections"]++
	case 4:
		a.attached = false
	case 5: // it leaves
		if !a.ended && a.m.Ended() == nil {
			var completed uint64
			var err error
			w.apply(func() { completed, err = w.p.Leave(w.at, a.session, &w.out) })
			if err == nil {
				a.m.End(w.now(), completed, errors.New("left"))
				w.seen["left"]++
			}
		}
	case 6:
		if w.chance(2) {
			w.apply(func() { _ = w.p.Force(w.at, "", &w.out) })
		} else {
			w.apply(func() { _ = w.p.Evict(w.at, a.session, "", &w.out) })
		}
	default:
		w.at.Log += uint64(w.rnd.IntN(2_000))
		w.apply(func() {})
	}
	w.take(a)
}

// runUntilQuiet ends the chaos. What must come of it is that all who live hold the same round, and
// nothing is left to do.
func (w *world) runUntilQuiet(steps int) {
	w.quiet = true
	for _, a := range w.members {
		a.paused = false
		if a.ended && !a.dead {
			a.m.End(w.now(), 0, errors.New("session ended"))
			w.take(a)
		}
	}
	for i := range steps {
		w.step()
		if i%300 == 0 { // the leader tells again now and then
			for _, a := range w.members {
				w.out.Reset()
				w.p.Resend(a.session, &w.out)
				w.deliver()
			}
		}
		if i%100 == 0 && w.isQuiet() {
			return
		}
	}
	for _, a := range w.members {
		if !a.dead {
			w.t.Logf("agent %d: epoch %d open %d agreed %d jobs %d duties %d running %v asked %v queue %d sends %d attached %v",
				a.session, a.m.epoch, a.open, a.agreed,
				len(a.m.jobs), len(a.m.pending), a.running != nil, a.asked, len(a.queue), len(a.sends), a.attached)
		}
	}
	w.fatal("it does not settle: %v of epoch %d with %d members", w.p.Phase(), w.p.Epoch(), w.p.Len())
}

func (w *world) isQuiet() bool {
	if w.p.Phase() != protocol.PhaseCompleted && w.p.Phase() != protocol.PhaseIdle {
		return false
	}
	for _, a := range w.members {
		if a.dead {
			continue
		}
		if a.open != 0 || a.running != nil || len(a.m.jobs) > 0 || len(a.asked) > 0 || a.agreed != w.p.Epoch() ||
			len(a.m.pending) > 0 || len(a.queue) > 0 || len(a.sends) > 0 {
			return false
		}
	}
	return true
}

// TestRandomHistories plays machines against the server's own state machine and relay.
func TestRandomHistories(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds.Of(t, 200, 200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, err := server.New(server.Now{}, 0, protocol.ProcessOptions{
			Election: protocol.ProcessElection(rnd.IntN(3)), Debounce: uint64(rnd.IntN(3)) * 50,
			RoundTimeout: uint64(rnd.IntN(3)) * 4_000, Return: uint64(rnd.IntN(3)) * 900,
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			t: t, rnd: rnd, p: p, r: relay.New(relay.Limits{}), seen: seen, failureOdds: []int{3, 10, 50}[rnd.IntN(3)],
			completed: map[uint64]bool{}, cancelled: map[uint64]bool{}, executed: map[[4]uint64]bool{},
		}
		for range 4_000 {
			w.step()
		}
		w.runUntilQuiet(200_000)
		for e := range w.completed {
			if w.cancelled[e] {
				w.fatal("epoch %d was completed by some and cancelled by others", e)
			}
		}
	}
	t.Log(seen)
	if seeds.Chosen() {
		return
	}
	for _, k := range []string{
		"prepare", "coordinate", "process", "complete", "cancel", "answered", "given-up", "terminate", "left",
		"elections", "ran while cut off",
		"context ended while a callback ran", "ended in preparing", "ended in coordinating", "ended in completing", "ended in completed",
	} {
		if seen[k] == 0 {
			t.Errorf("no history met %q", k)
		}
	}
}

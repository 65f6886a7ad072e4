package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// plant is what goes wrong in a world from one time to another. None does if it is nil.
type plant struct {
	what     string
	from, to time.Duration
	served   int // events that were sent
}

// plantedCauses are what a Loss has to say of each.
var plantedCauses = map[string]string{
	"process stopped": "process_stood_still", "machine asleep": "machine_slept",
	"connections reset": "unreachable", "packets dropped": "unreachable", "packets to the instances dropped": "unreachable",
	"packets from the instances dropped": "unreachable", "no such host": "unreachable",
	"no quorum": "no_leader", "nobody leads": "no_leader", "majority down": "no_leader", "leader alone cut off": "no_leader",
	"disk of the leader hangs": "answered_late",
	"token revoked":            "refused", "another cluster": "refused", "right taken away": "refused", "limit reached": "overloaded",
	"session killed": "session_ended_by_operator", "node deleted": "node_deleted", "node deleted in an outage": "node_deleted", "session taken over": "taken_over",
	"lease released by force": "released_by_operator", "semaphore deleted": "deleted",
	"lease preempted": "preempted", "held for too long": "max_hold",
}

// is reports whether one of these goes wrong now.
func (w *world) is(list ...string) bool {
	p := w.now
	return slices.ContainsFunc(w.plants, func(x *plant) bool { return x.from <= p && p < x.to && slices.Contains(list, x.what) })
}

// breaks has a connection lose what the plants take from it; true: nothing else happens to it.
func (k *worldConn) breaks() bool {
	w := k.c.w
	if w.is("packets to the instances dropped") {
		k.toServer = nil
	}
	if w.is("packets from the instances dropped") {
		k.toClient = nil
	}
	switch {
	case w.is("connections reset", "no such host", "another cluster"), w.is("majority down") && k.instance != w.survivor():
		k.broken = true
	case w.is("node deleted in an outage") && !k.refuses:
		k.broken = true // the event is lost with it
	case w.is("token revoked"):
		k.c.e.Received(k.c.now(), k.conn, []protocol.Header{k.frame(protocol.KindGoodbye, 0, 0,
			&protocol.Goodbye{Status: protocol.StatusUnauthenticated, Message: "token was revoked"})})
		k.broken = true
	case w.is("right taken away", "limit reached") && !k.refuses:
		k.broken = true // what is made from now on is refused
	}
	alone := w.is("leader alone cut off") && k.instance == w.leaders[homeShard(k.c.s.ID)]
	return w.is("packets dropped") || alone
}

// survivor is the only instance that is left where most are down. It did not lead.
func (w *world) survivor() uint64 { return w.leaders[homeShard(w.clients[0].s.ID)]%worldInstances + 1 }

// dialFails ends an attempt to connect; true: it did, or it will.
func (c *worldClient) dialFails(x *Conn, address string) bool {
	w := c.w
	var err error
	switch {
	case w.is("connections reset"), w.is("majority down") && address != fmt.Sprint("i", w.survivor()):
		err = errors.New("connection refused")
	case w.is("another cluster"):
		err = ErrOtherCluster
	case w.is("no such host"):
		err = errors.New("no such host")
	case w.is("token revoked"):
		err = &protocol.Error{Status: protocol.StatusUnauthenticated, Message: "token was revoked"}
	case w.is("packets dropped", "packets to the instances dropped", "packets from the instances dropped"),
		w.is("leader alone cut off") && address == fmt.Sprint("i", w.leaders[homeShard(c.s.ID)]):
		c.dials = append(c.dials, delayedDial{w.now + 5*time.Second, x})
		return true
	default:
		return false
	}
	c.e.Lost(c.now(), x, err)
	return true
}

// delayedDial is an attempt to connect that nobody answers.
type delayedDial struct {
	at   time.Duration
	conn *Conn
}

// endDials ends those that have waited for long enough.
func (c *worldClient) endDials() {
	c.dials = slices.DeleteFunc(c.dials, func(d delayedDial) bool {
		if c.w.now < d.at {
			return false
		}
		c.e.Lost(c.now(), d.conn, errors.New("no answer within 5s"))
		return true
	})
}

// plantedAnswer answers a frame as the plants have it; false: it is answered as always.
func (k *worldConn) plantedAnswer(h protocol.Header) bool {
	w := k.c.w
	refuse := func(status protocol.Status, f protocol.Failure) bool {
		k.send(h.Kind|protocol.KindReply, h.ID, uint64(status), &f)
		return true
	}
	home := h.Kind == protocol.KindSessionAttach
	switch {
	case home && w.is("node deleted in an outage"):
		return refuse(protocol.StatusSessionExpired, protocol.Failure{Message: protocol.NodeDropped})
	case h.Kind == protocol.KindPing && w.is("no quorum", "nobody leads", "majority down", "disk of the leader hangs"):
		k.send(protocol.KindPong, h.ID, 0, nil)
		return true
	case home && w.is("no quorum"):
		return refuse(protocol.StatusUnavailable, protocol.Failure{Message: "no quorum"})
	case home && w.is("nobody leads", "majority down"):
		return refuse(protocol.StatusWrongShard, protocol.Failure{Shard: homeShard(k.c.s.ID), Term: 1, MapVersion: w.version})
	case home && w.is("right taken away"):
		return refuse(protocol.StatusForbidden, protocol.Failure{Message: "no right to use the node"})
	case home && w.is("limit reached"):
		return refuse(protocol.StatusOverloaded, protocol.Failure{Message: "too many sessions"})
	}
	return w.is("disk of the leader hangs") && home
}

// say has the server say what it says once.
func (w *world) say(p *plant) {
	c := w.clients[0]
	s := w.sessions[c.s.ID]
	if p.served > 0 || s == nil || s.on == nil || w.now < p.from {
		return
	}
	lease := c.calls[0].lease
	lost := &protocol.LeaseLost{Session: s.id, Name: []byte("a"), OrderID: lease.Token}
	switch p.what {
	case "session killed":
		w.end(s, protocol.EndKilled)
	case "node deleted":
		w.end(s, protocol.EndNodeDropped)
	case "session taken over":
		s.on.event(protocol.KindTakenOver, &protocol.TakenOver{Session: s.id, Epoch: s.epoch + 1<<20})
	case "lease released by force":
		lost.Message = "taken away by the operator ann: test"
	case "semaphore deleted":
		lost.Message = protocol.DeletedByForce
	case "lease preempted":
		lost.Cause = protocol.HoldPreempted
	case "held for too long":
		lost.Cause = protocol.HoldMaxHold
	default:
		return
	}
	p.served++
	s.killed = true // its client learns it after the others
	if strings.HasPrefix(p.what, "lease") || p.what == "semaphore deleted" || p.what == "held for too long" {
		w.remove("a", s, protocol.StatusAborted)
		for _, k := range c.conns {
			k.event(protocol.KindLeaseLost, lost)
		}
	}
}

// stepped reports whether the client runs. When it runs again, it may look at its clocks first, read
// first, or be looked at first.
func (c *worldClient) stepped() bool {
	w := c.w
	stopped, asleep := w.is("process stopped"), w.is("machine asleep")
	if c.asleepAt != 0 {
		c.asleep += w.now - c.asleepAt
		c.asleepAt = 0
	}
	if stopped || asleep {
		if c.stopped = true; asleep {
			c.asleepAt, c.wasAsleep = w.now, true
		}
		return false
	}
	if w.is("time of day set") && w.wallSet == 0 {
		w.wallSet = worldTimeout
		c.e.Clocks(c.now(), c.now()+time.Hour+w.wallSet, c.asleep)
	}
	if c.stopped {
		switch first := w.rng.IntN(3); {
		case c.wasAsleep || first == 0: // which a sleep needs, as Late says
			c.e.Clocks(c.now(), c.now()+time.Hour+w.wallSet, c.asleep)
		case first == 1:
			c.e.Held(c.now(), c.s)
		}
		c.stopped, c.wasAsleep = false, false
	}
	return true
}

// lossRun plays one plan until the holder has lost what it held, and returns what it is said to be.
// nil: it has lost nothing.
func lossRun(t *testing.T, seed uint64, plan func(w *world) []*plant) (*world, *Loss) {
	w := newWorld(t, seed)
	w.quiet, w.clients = true, w.clients[:1]
	c := w.clients[0]
	c.watches = nil // which may end
	until := func(bound time.Duration, done func() bool) {
		for end := w.now + bound; w.now < end && !done(); {
			for _, p := range w.plants {
				w.say(p)
			}
			w.step()
		}
	}
	until(10*time.Second, func() bool { return c.start.done })
	if !c.start.done {
		t.Fatal("the session does not start")
	}
	x := &worldCall{name: "a", acquire: &Acquire{}, lease: &Lease{}}
	x.r = &x.acquire.Request
	x.acquire.Waiter, x.acquire.Lease = x, x.lease
	x.acquire.Msg = protocol.Acquire{Name: []byte("a"), Count: 1, Timeout: protocol.Forever}
	c.calls, c.holds = append(c.calls, x), true
	c.e.Acquire(c.now(), c.s, "a", x.acquire)
	c.e.Clocks(c.now(), c.now()+time.Hour, 0)
	began := w.now
	until(10*time.Second, func() bool { return x.lease.Token != 0 && w.now > began+time.Duration(seed%20)*100*time.Millisecond })
	if x.lease.Token == 0 {
		t.Fatal("the lease is not granted")
	}
	w.plants = plan(w)
	until(8*worldTimeout, func() bool { return x.lease.Over() != nil })
	if x.lease.Over() == nil {
		return w, nil
	}
	l, ok := errors.AsType[*Loss](x.lease.Over())
	if !ok {
		t.Fatalf("a lease ended with %v, which does not say why", x.lease.Over())
	}
	return w, l
}

// longest is the cause of what was planted for longest in the latest time; empty: none was for twice as
// long as the other.
func (w *world) longest(since time.Duration) string {
	spans := map[string]time.Duration{}
	for _, p := range w.plants {
		spans[plantedCauses[p.what]] += max(0, min(p.to, w.now)-max(p.from, w.now-since))
	}
	names := slices.SortedFunc(maps.Keys(spans), func(a, b string) int { return cmp.Compare(spans[b], spans[a]) })
	if len(names) > 1 && spans[names[1]] > spans[names[0]]/2 {
		return ""
	}
	return names[0]
}

// othersUnheard is for which part of the time that a renewal was due no other instance was heard; 0: for less
// than a third. Between that and 1 one answered, and then it was not asked for long: that no instance answered
// and that there was no leader are both right.
func (w *world) othersUnheard(l *Loss) float64 {
	missed, unheard := l.Since-worldTimeout/4, w.now-w.clients[0].othersHeard
	if unheard <= missed/3 {
		return 0
	}
	return float64(unheard) / float64(missed)
}

// TestLosses plants what takes leases away, and compares what their holders are told. The process is
// never said to have stood still where it did not.
func TestLosses(t *testing.T) {
	runs := uint64(form.Of(50, 1000))
	matrix := map[string]map[string]int{}
	total, wrong, unknown := 0, 0, 0
	note := func(seed uint64, w *world, planted string, l *Loss) {
		alone := func(p *plant) bool { return p.what == "leader alone cut off" }
		if planted == "no_leader" && slices.ContainsFunc(w.plants, alone) {
			switch unheard := w.othersUnheard(l); {
			case unheard >= 1:
				planted = "unreachable" // of no other instance it was known that it answered
			case unheard > 0:
				return
			}
		}
		if matrix[planted] == nil {
			matrix[planted] = map[string]int{}
		}
		matrix[planted][l.Cause]++
		total++
		if l.Cause != planted {
			wrong++
			for _, p := range w.plants {
				t.Logf("seed %d: %s from %s to %s", seed, p.what, p.from-w.now, p.to-w.now)
			}
			t.Logf("  said to be %s: %v\n  %s", l.Cause, l, strings.Join(l.Steps, "\n  "))
		}
		if l.Cause == "unknown" {
			unknown++
		}
		if planted != "process_stood_still" && l.Cause == "process_stood_still" {
			t.Errorf("seed %d: the process ran, and is said to have stood still: %v", seed, l)
		}
		if len(l.Steps) == 0 || len(l.Steps) > maxSteps || l.Advice == "" && l.Cause != "unknown" {
			t.Errorf("seed %d: %d steps, and the advice %q", seed, len(l.Steps), l.Advice)
		}
	}
	kinds := slices.Sorted(maps.Keys(plantedCauses))
	for i, what := range kinds {
		for n := range runs {
			seed := uint64(i)*10_000 + n
			w, l := lossRun(t, seed, func(w *world) []*plant {
				length := worldTimeout + time.Duration(w.rng.Int64N(int64(2*worldTimeout)))
				return []*plant{{what: what, from: w.now, to: w.now + length}}
			})
			if l == nil {
				t.Errorf("seed %d: %s, and nothing is lost", seed, what)
				continue
			}
			note(seed, w, plantedCauses[what], l)
			if what == "another cluster" && !strings.HasPrefix(l.Advice, "restart the program") {
				t.Errorf("seed %d: the advice is %q", seed, l.Advice)
			}
			if stood := min(w.plants[0].to, w.now) - w.plants[0].from; l.Cause == "process_stood_still" &&
				(l.Stood-stood).Abs() > worldTimeout/10 {
				t.Errorf("seed %d: the process was stopped for %s, and is said to have stood still for %s", seed, stood, l.Stood)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d losses with a single reason are said to have another one", wrong)
	}
	// A time of day that is set looks like a machine that slept unseen. There is no proof of either.
	for n := range runs {
		w, l := lossRun(t, 2_000_000+n, func(w *world) []*plant {
			cut := w.now + time.Duration(w.rng.Int64N(int64(worldTimeout)))
			return []*plant{{what: "time of day set", from: w.now, to: cut}, {what: "packets dropped", from: cut, to: cut + 2*worldTimeout}}
		})
		if l != nil && l.Cause == "no_leader" && w.othersUnheard(l) > 0 {
			continue
		}
		if l == nil || l.Cause != "unreachable" && l.Cause != "unknown" {
			t.Errorf("seed %d: the time of day was set, and the network cut off: %v", 2_000_000+n, l)
		}
	}
	// Two at a time, one after the other: the one that lasts longer is told.
	last := slices.DeleteFunc(kinds, func(what string) bool {
		return slices.Contains([]string{"session killed", "node deleted", "node deleted in an outage", "session taken over", "lease released by force",
			"semaphore deleted", "lease preempted", "held for too long"}, what)
	})
	for n := range runs * 8 {
		seed := 1_000_000 + n
		w, l := lossRun(t, seed, func(w *world) []*plant {
			first, second := last[w.rng.IntN(len(last))], last[w.rng.IntN(len(last))]
			between := w.now + time.Duration(w.rng.Int64N(int64(worldTimeout)))
			return []*plant{{what: first, from: w.now, to: between},
				{what: second, from: between, to: between + worldTimeout}}
		})
		if l == nil {
			continue
		}
		// A lost connection is noticed at once, and silence when the next renewal is due.
		atOnce, due := w.longest(l.Since), w.longest(l.Since-worldTimeout/4)
		if atOnce == "" || atOnce != due {
			continue // as long as each other, nearly: either is right
		}
		note(seed, w, due, l)
	}
	for _, planted := range slices.Sorted(maps.Keys(matrix)) {
		t.Logf("%-26s %v", planted, matrix[planted])
	}
	t.Logf("%d losses, %d said wrongly, %d unknown", total, wrong, unknown)
	if wrong*100 > total || unknown*100 > total {
		t.Errorf("of %d losses %d are said to have another reason, and %d to have none that is known", total, wrong, unknown)
	}
}

// TestEveryCauseIsOnThePage: the page of failures has a row for each cause, and each cause that is not
// unknown an advice.
func TestEveryCauseIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../../server/FAILURES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range lossCauses {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + c.name + "`").Match(page) {
			t.Errorf("server/FAILURES.md has no row for %s", c.name)
		}
		if (c.advice == "") != (c.name == "unknown") {
			t.Errorf("%s has the advice %q", c.name, c.advice)
		}
	}
}

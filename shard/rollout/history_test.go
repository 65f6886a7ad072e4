package rollout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pollLoop has a leader of SAS load what it gets, over and over, every so many ms.
type pollLoop struct {
	t   *testing.T
	x   *Track
	now Now
	c   Caller
	r   protocol.UpdateReport
	out Events
}

func newPollLoop(t *testing.T, config protocol.TrackConfig) *pollLoop {
	x := &pollLoop{t: t, now: Now{Log: 1000, Wall: 1000}}
	var err error
	if x.x, err = New(x.now, config, &x.out); err != nil {
		t.Fatal(err)
	}
	x.c = Caller{Session: 1, ID: "s", Incarnation: x.join("s", "SAS", 1)}
	return x
}

func (x *pollLoop) join(id, loc string, session uint64) uint64 {
	n, err := x.x.Register(x.now,
		Registration{Session: session, ID: id, Location: loc, Role: protocol.InstanceLeader}, &x.out)
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

func (x *pollLoop) step(ms uint64) {
	x.t.Helper()
	x.now.Log, x.now.Wall = x.now.Log+ms, x.now.Wall+ms
	x.r.Seq++
	a, err := x.x.Poll(x.now, x.c, &x.r, &x.out)
	x.out.Reset()
	if err != nil {
		x.t.Fatal(err)
	}
	x.r.Current, x.r.Target, x.r.Code = a.Version, a.Version, CodeOK
	if x.r.Seq%100 == 0 {
		if err := x.x.Check(); err != nil {
			x.t.Fatal(err)
		}
	}
}

// TestHistoryIsCollected: rows go when they are older than retention and than twice the delays, but
// not the one the slowest successor would take, nor the last ten.
func TestHistoryIsCollected(t *testing.T) {
	x := newPollLoop(t, protocol.TrackConfig{Source: protocol.SourceTSO, Retention: 10_000,
		Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "MAN", Delay: 3_000}, {Name: "VLA", Delay: 4_000}}})
	for range 100 {
		x.step(1000)
	}
	rows, _ := x.x.History("SAS")
	// twice the delays is more than the retention; the boundary is kept
	if len(rows) != 15 || x.now.Log-rows[0].At != 14_000 {
		t.Fatalf("%d rows, the oldest %d ms old", len(rows), x.now.Log-rows[0].At)
	}
	// Then the source stands still for a day: the last ten stay, and the newest old enough is among
	// them.
	x.step(86_400_000)
	rows, _ = x.x.History("SAS")
	if len(rows) != minHistoryRows {
		t.Fatalf("%d rows", len(rows))
	}
	// Ten young ones: the newest that VLA may take stays in spite of its age.
	for range 20 {
		x.step(1)
	}
	rows, _ = x.x.History("SAS")
	if len(rows) != 22 || rows[0].At+4_000 > x.now.Log {
		t.Fatalf("%d rows, the first from %d at %d", len(rows), rows[0].At, x.now.Log)
	}
}

// TestThinnedHistoryStillMatures: a predecessor that makes far more versions within a successor's
// delay than are kept. What is kept covers all ages, so that the successor goes on moving, and
// stays within a small part of its delay.
func TestThinnedHistoryStillMatures(t *testing.T) {
	const delay = 100_000
	x := newPollLoop(t, protocol.TrackConfig{Source: protocol.SourceTSO, Retention: 1,
		Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "VLA", Delay: delay}}})
	v := Caller{Session: 2, ID: "v", Incarnation: x.join("v", "VLA", 2)}
	var seq, last, moves, late uint64
	for i := range 20_000 {
		x.step(20)
		if i%50 > 0 {
			continue
		}
		seq++
		a, err := x.x.Poll(x.now, v, &protocol.UpdateReport{Seq: seq, Current: last, Target: last, Code: CodeOK},
			&x.out)
		if err != nil {
			t.Fatal(err)
		}
		if a.Version != last {
			moves++
			late = max(late, x.now.Wall-a.Version>>tsoLogicalBits)
		}
		last = a.Version
	}
	rows, _ := x.x.History("SAS")
	if len(rows) > MaxHistory || moves < 100 || late > delay*11/10 {
		t.Fatalf("%d rows, %d moves, at most %d ms behind", len(rows), moves, late)
	}
}

// TestHeldVersionsStay: the row that a later location gates, or was promoted to, stays in the
// history of its predecessor: beyond the retention, and when rows are thinned out.
func TestHeldVersionsStay(t *testing.T) {
	for _, c := range []struct {
		name      string
		retention uint64
		steps     int
		promote   bool
	}{
		{"gate, retention", 10_000, 30, false},
		{"gate, thinned", 0, 2_000, false},
		{"promoted, retention", 10_000, 30, true},
		{"promoted, thinned", 0, 2_000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			man := protocol.LocationConfig{Name: "MAN", Delay: 1_000}
			if !c.promote {
				man.Gates = []protocol.GateConfig{{Name: "smoke", Kind: protocol.GateCommand, Spec: "true", Timeout: 20_000}}
			}
			x := newPollLoop(t, protocol.TrackConfig{Source: protocol.SourceTSO, Retention: c.retention,
				Locations: []protocol.LocationConfig{{Name: "SAS"}, man}})
			m := Caller{Session: 2, ID: "m", Incarnation: x.join("m", "MAN", 2)}
			var r protocol.UpdateReport
			poll := func() uint64 {
				r.Seq++
				a, err := x.x.Poll(x.now, m, &r, &x.out)
				if err != nil {
					t.Fatal(err)
				}
				return a.Version
			}
			for range 21 {
				x.step(1000)
			}
			l, first := x.x.locations[1], poll() // 0: the gate begins
			held := &l.gate.version
			if c.promote {
				held = &l.promoted
				x.step(1000)
				if err := x.x.Promote(x.now, []string{"MAN"}, &x.out); err != nil {
					t.Fatal(err)
				}
			}
			want := *held
			if want == 0 || c.promote == (first == 0) {
				t.Fatalf("MAN has %d and waits for %d", first, want)
			}
			for range c.steps {
				x.step(1000)
				x.x.Tick(x.now, &x.out)
				poll()
			}
			if *held != want || x.x.locations[0].row(want) == nil {
				t.Fatalf("MAN waits for %d, not for %d", *held, want)
			}
			if rows := len(x.x.locations[0].history); rows > MaxHistory {
				t.Fatalf("%d rows", rows)
			}
			if g := &l.gate; !c.promote {
				for g.state != gateRunning {
					x.step(1000)
					x.x.Tick(x.now, &x.out)
				}
				err := x.x.ReportGate(x.now, "MAN", want, "smoke", g.attempt, protocol.GateSuccess, "", &x.out)
				if err != nil {
					t.Fatal(err)
				}
			}
			r.Current, r.Target, r.Code = first, first, CodeOK
			if v := poll(); v != want {
				t.Fatalf("MAN gets %d, not %d", v, want)
			}
			// Nothing holds the row any more.
			for range 2 * c.steps {
				x.step(1000)
			}
			if c.retention > 0 && x.x.locations[0].row(want) != nil {
				t.Fatal("the row stays for ever")
			}
		})
	}
}

// TestPublishedVersionsAreBounded: versions nobody took go first; those in use never.
func TestPublishedVersionsAreBounded(t *testing.T) {
	x := newPollLoop(t, protocol.TrackConfig{Source: protocol.SourcePublished,
		Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "VLA", Delay: 3_600_000}}})
	for i := range uint64(3 * MaxPublished) {
		if v, err := x.x.Publish(x.now, 0, []byte(fmt.Sprint(i)), &x.out); err != nil || v != i+1 {
			t.Fatal(v, err)
		}
		if i%3 == 0 {
			x.step(1000)
		}
	}
	x.step(3_600_000)
	v := Caller{Session: 2, ID: "v", Incarnation: x.join("v", "VLA", 2)}
	a, err := x.x.Poll(x.now, v, nil, &x.out)
	if err != nil || len(x.x.published) != MaxPublished {
		t.Fatal(a, err, len(x.x.published))
	}
	if p, ok := x.x.Payload(a.Version); !ok || string(p) != fmt.Sprint(a.Version-1) {
		t.Fatalf("version %d: payload %q %v", a.Version, p, ok)
	}
	// The taken versions are what is kept: of those dropped most were never a target.
	kept := 0
	for _, p := range x.x.published {
		if x.x.locations[0].row(p.version) != nil {
			kept++
		}
	}
	if kept < 200 {
		t.Fatalf("%d of the targets are kept", kept)
	}
	if !slices.IsSortedFunc(x.x.published, func(a, b published) int { return int(a.version) - int(b.version) }) {
		t.Fatal("out of order")
	}
}

// TestPublishedTargetsStay: a version that was withdrawn goes first, but not while instances are to
// load it.
func TestPublishedTargetsStay(t *testing.T) {
	x := newPollLoop(t,
		protocol.TrackConfig{Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}}})
	for range 2 * MaxPublished {
		v, err := x.x.Publish(x.now, 0, []byte("payload"), &x.out)
		if err != nil {
			t.Fatal(err)
		}
		if v == 1 {
			x.step(1)
			if err := x.x.Withdraw(x.now, 1, &x.out); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, ok := x.x.Payload(1); !ok || len(x.x.published) > MaxPublished {
		t.Fatal("the target's payload is gone")
	}
}

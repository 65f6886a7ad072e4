package failuredetector

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts runs testdata: the failure detector of one instance. Time advances in steps of half a
// second. Each step has a heartbeat of every linked instance, or its failure, and a call of Step.
//
//	new self=1 [leads] [offline-after=5s]   input: instances, one a line, with target and incarnation
//	activate | shutdown
//	link ID ok|dead|none                    what becomes of heartbeats: none is never tried
//	process ID N|present                    the incarnation in its heartbeats: present is that of the target
//	applied ID N|follows                    the index it reports
//	log N                                   our own index
//	leads true|false
//	target ID online|offline|expelled       as if another instance had changed it
//	answer STATUS                           of the meta leader from now on; OK changes the target
//	stale true|false                        whether we see changes (and our index moves)
//	stopped D                               this process is stopped for that long
//	run D                                   prints what is done, and when
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				s = newScript(t, d)
				return ""
			}
			return s.do(t, d)
		})
	})
}

const beat = 500 * time.Millisecond

type script struct {
	m      *Detector
	now    time.Duration
	view   View // as it is
	seen   View // as we see it
	stale  bool
	links  map[uint64]string
	former map[uint64]uint64 // incarnations of processes that still send heartbeats
	fixed  map[uint64]uint64
	answer protocol.Status
}

func newScript(t *testing.T, d *datadriven.TestData) *script {
	s := &script{links: map[uint64]string{}, former: map[uint64]uint64{}, fixed: map[uint64]uint64{}}
	limit := ""
	d.ScanArgs(t, "self", &s.view.Self)
	if d.HasArg("offline-after") {
		d.ScanArgs(t, "offline-after", &limit)
	}
	s.view.Leading, s.view.Applied = d.HasArg("leads"), 100
	after, _ := time.ParseDuration(limit)
	s.m = New(after)
	for line := range strings.Lines(d.Input) {
		var m Member
		var target string
		if _, err := fmt.Sscan(line, &m.ID, &target, &m.Incarnation); err != nil {
			t.Fatal(err)
		}
		m.Target = parseTarget(t, target)
		s.view.Members = append(s.view.Members, m)
		s.links[m.ID] = "none"
	}
	s.look()
	return s
}

func parseTarget(t *testing.T, s string) Target {
	i := slices.Index([]string{"offline", "online", "expelled"}, s)
	if i < 0 {
		t.Fatalf("unknown target %q", s)
	}
	return Target(i)
}

func (s *script) look() {
	if !s.stale {
		s.seen = s.view
		s.seen.Members = slices.Clone(s.view.Members)
	}
	s.seen.Leading = s.view.Leading
}

func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	word := func(i int) string { return d.CmdArgs[i].Key }
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(word(i), 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	duration := func() time.Duration {
		x, err := time.ParseDuration(word(0))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return x
	}
	switch d.Cmd {
	case "activate":
		s.m.Activate()
	case "shutdown":
		s.m.Shutdown()
	case "link":
		s.links[number(0)] = word(1)
	case "process":
		if word(1) == "present" {
			delete(s.former, number(0))
		} else {
			s.former[number(0)] = number(1)
		}
	case "applied":
		if word(1) == "follows" {
			delete(s.fixed, number(0))
		} else {
			s.fixed[number(0)] = number(1)
		}
	case "log":
		s.view.Applied = number(0)
	case "leads":
		s.view.Leading = word(0) == "true"
	case "target":
		s.change(number(0), parseTarget(t, word(1)))
	case "answer":
		for s.answer = 0; s.answer.String() != word(0); s.answer++ {
		}
	case "stale":
		s.stale = word(0) == "true"
	case "stopped":
		s.now += duration()
	case "run":
		return s.run(duration())
	default:
		d.Fatalf(t, "unknown command")
	}
	return ""
}

func (s *script) change(id uint64, target Target) {
	for i := range s.view.Members {
		if m := &s.view.Members[i]; m.ID == id {
			m.Target = target
			if target == Online {
				m.Incarnation++
			}
		}
	}
	s.view.Applied++
}

// incarnation is that of the process that sends an instance's heartbeats.
func (s *script) incarnation(id uint64) uint64 {
	if n, ok := s.former[id]; ok {
		return n
	}
	i := slices.IndexFunc(s.view.Members, func(m Member) bool { return m.ID == id })
	return s.view.Members[i].Incarnation
}

func (s *script) run(d time.Duration) string {
	var out strings.Builder
	for end := s.now + d; s.now < end; {
		s.now += beat
		s.look()
		for _, id := range slices.Sorted(maps.Keys(s.links)) {
			switch s.links[id] {
			case "ok":
				index, ok := s.fixed[id]
				if !ok {
					index = s.view.Applied
				}
				s.m.HeartbeatReceived(id, s.incarnation(id), index, s.now)
			case "dead":
				s.m.HeartbeatFailed(id, s.now)
			}
		}
		a, _ := s.m.Step(s.now, s.seen)
		if a.Kind == None {
			continue
		}
		fmt.Fprintf(&out, "%v: %s %d (%s) -> %s\n", s.now,
			[...]string{MarkOffline: "mark", GoOnline: "go online", GoOffline: "go offline"}[a.Kind], a.Instance,
			a.Reason, s.answer)
		if s.answer == protocol.StatusOK {
			s.change(a.Instance, map[ActionKind]Target{MarkOffline: Offline, GoOffline: Offline, GoOnline: Online}[a.Kind])
		}
		s.m.Finished(a, s.answer, s.seen.Applied, s.now)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

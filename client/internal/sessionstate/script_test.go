package sessionstate

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

var _ = flag.Lookup("rewrite") // datadriven's flag rewrites the stories

// TestScripts runs testdata: a command and its time, ---- and what came out of it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *Machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if line = strings.TrimSpace(line); line != "" {
					m = step(t, d, m, strings.Fields(line))
					fmt.Fprintf(&out, "%s: %s\n", line, show(m, strings.Fields(line)))
				}
			}
			return out.String()
		})
	})
}

// step is one input: the time first, then what happens.
func step(t *testing.T, d *datadriven.TestData, m *Machine, f []string) *Machine {
	now := duration(t, f[0])
	switch f[1] {
	case "start": // sent timeout grace
		m = Start(duration(t, f[2]), duration(t, f[3]), duration(t, f[4]))
	case "renewed":
		m.Renewed(duration(t, f[2]))
	case "attached": // sent timeout grace
		m.Attached(now, duration(t, f[2]), duration(t, f[3]), duration(t, f[4]))
	case "conn-lost":
		m.ConnLost(now)
	case "jumped":
		m.ClockJumped(now)
	case "jumped-before": // a keep-alive that was sent then
		m.ClockJumped(duration(t, f[2]))
	case "tick":
		m.Tick(now)
	case "ended":
		for c := None; c < numCauses; c++ {
			if c.String() == f[2] {
				m.Ended(c)
			}
		}
	case "look":
	default:
		d.Fatalf(t, "unknown input %q", f[1])
	}
	return m
}

func show(m *Machine, f []string) string {
	now, _ := time.ParseDuration(f[0])
	r := m.Take()
	parts := []string{r.State.String()}
	if r.Changed {
		parts[0] = "-> " + parts[0]
	}
	if r.Cause != None {
		parts = append(parts, "("+r.Cause.String()+")")
	}
	if m.Held(now) {
		parts = append(parts, "held")
	} else {
		parts = append(parts, "not held")
	}
	for _, x := range []struct {
		on   bool
		what string
	}{{r.Attach, "attach!"}, {r.Ping, fmt.Sprintf("ping, if none since %s!", r.PingSince)}, {r.Stop, "stop!"}} {
		if x.on {
			parts = append(parts, x.what)
		}
	}
	if at, ok := m.Next(); ok {
		parts = append(parts, fmt.Sprintf("deadline %s, next %s", m.Deadline(), at))
	}
	return strings.Join(parts, " ")
}

func duration(t *testing.T, s string) time.Duration {
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWindow(t *testing.T) {
	for _, x := range []struct{ timeout, grace, want time.Duration }{
		{10 * time.Second, 10 * time.Second, 8500 * time.Millisecond},
		{30 * time.Minute, 10 * time.Second, 1530 * time.Second},
		{2 * time.Second, 1600 * time.Millisecond, 1700 * time.Millisecond},
		{time.Second, 10 * time.Second, 780 * time.Millisecond}, // a long grace period leaves the clocks time to drift apart
		{time.Second, 30 * time.Second, 380 * time.Millisecond},
	} {
		got := Window(x.timeout, x.grace)
		if got != x.want {
			t.Errorf("window of %s with grace %s is %s, want %s", x.timeout, x.grace, got, x.want)
		}
		if got > x.timeout*9/10 || got > x.timeout-(x.timeout+x.grace)*2/100 {
			t.Errorf("window of %s with grace %s is %s: not safe", x.timeout, x.grace, got)
		}
	}
	for grace := time.Second; grace <= 30*time.Second; grace += 37 * time.Millisecond {
		e := Enlarge(MinTimeout, grace)
		if w := Window(e, grace); w < e/2 || e > MinTimeout && Window(e-time.Millisecond, grace) >= (e-time.Millisecond)/2 {
			t.Fatalf("grace %s: timeout %s with window %s", grace, e, w)
		}
	}
	if got := Enlarge(10*time.Second, 10*time.Second); got != 10*time.Second {
		t.Error(got)
	}
}

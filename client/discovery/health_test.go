package discovery

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata: inputs, one a line, and the state after each.
func TestScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/status", func(t *testing.T, d *datadriven.TestData) string {
		start := time.Unix(0, 0)
		now, s, sent := start, &status{written: Ready, writtenAt: start}, false
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			word, rest, _ := strings.Cut(line, " ")
			var result error
			if rest != "ok" && rest != "" {
				result = errors.New(rest)
			}
			wrote := ""
			switch word {
			case "at":
				after, err := time.ParseDuration(rest)
				if err != nil {
					t.Fatal(err)
				}
				now = start.Add(after)
			case "first":
				s.health.first(result)
			case "check":
				s.health.result(now, result)
			case "request":
				s.requested = rest
			case "drain":
				s.drained = "the program stops"
			case "write":
				switch due := s.due(""); {
				case due.IsZero():
					wrote = "  nothing to write"
				case due.After(now):
					wrote = fmt.Sprintf("  due at %s", due.Sub(start))
				default:
					wrote, sent = "  written", true
				}
			default:
				t.Fatalf("no word %q", word)
			}
			state, why := s.now("", "")
			if sent {
				s.written, s.writtenAt, sent = state, now, false
			}
			fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("%-24s %s %s%s", line, state, why, wrote), " "))
		}
		return out.String()
	})
}

// TestFlapping: however a check flaps, its member's state is written at most once in 5 s, the last
// state is written in the end, and none is written twice.
func TestFlapping(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		now := time.Unix(0, 0)
		s := &status{written: Ready, writtenAt: now}
		var last time.Time
		step := func() {
			now = now.Add(100 * time.Millisecond)
			due := s.due("")
			if due.IsZero() || due.After(now) {
				return
			}
			state, _ := s.now("", "")
			if state == s.written || !last.IsZero() && now.Sub(last) < stateInterval {
				t.Fatalf("seed %d: %s is written %s after %s", seed, state, now.Sub(last), s.written)
			}
			s.written, s.writtenAt, last = state, now, now
		}
		good := r.Float64()
		for range 3000 {
			var err error
			if r.Float64() > good {
				err = errors.New("no")
			}
			s.health.result(now, err)
			step()
		}
		for range 60 {
			step()
		}
		if state, _ := s.now("", ""); state != s.written {
			t.Fatalf("seed %d: it is %s, and %s was written", seed, state, s.written)
		}
	}
}

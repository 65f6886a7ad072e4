package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestRolloutStory runs examples/rollout: nine processes in three locations, of which one starts
// slowly, one is killed and one hangs, and a version that cannot be loaded. Order and delays are
// judged by the log times in the histories. In form long the delay is that of the example, 5 s.
func TestRolloutStory(t *testing.T) {
	form.SkipUntil(t, form.Full, "nine processes and their delays")
	t.Parallel()
	delay := form.Of(time.Second, 5*time.Second)
	srv := servertest.Start(t, servertest.RealTime())
	// The one that is killed leaves a payload behind.
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "TRACK=geo/told", "TMPDIR=" + t.TempDir()}
	story := exec.CommandContext(t.Context(), "sh", "examples/rollout/story.sh", delay.String(), "15s") // who is busy does not hang
	story.Env = append(os.Environ(), env...)
	story.WaitDelay = patience
	story.Cancel = func() error { return story.Process.Signal(os.Interrupt) } // it ends its processes
	out, err := story.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)

	type row struct {
		Version   uint64 `json:"version"`
		Log       int64  `json:"log_ms"`
		Converged int64  `json:"converged_log_ms"`
		Reason    string `json:"reason"`
		Skip      bool   `json:"skip"`
	}
	history := func(location string) (rows []row) {
		t.Helper()
		for line := range strings.Lines(expect(t, 0, env, "sh", "-c", "signalbox rollout history geo/told "+location+" -o jsonl")) {
			var r row
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			rows = append(rows, r)
		}
		return rows
	}
	versions := func(rows []row) (list []uint64) {
		for _, r := range rows {
			list = append(list, r.Version)
		}
		return list
	}
	before := history("zone-a")
	if got := versions(before); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) || !before[2].Skip ||
		before[2].Converged != 0 || before[3].Reason != "reelect-explicit" {
		t.Errorf("zone-a had %+v", before)
	}
	for _, location := range []string{"zone-b", "zone-c"} {
		rows := history(location)
		if got := versions(rows); !slices.Equal(got, []uint64{1, 2, 4, 5}) {
			t.Errorf("%s had %v", location, got)
		}
		for _, r := range rows {
			i := slices.IndexFunc(before, func(b row) bool { return b.Version == r.Version })
			if i < 0 || before[i].Converged == 0 || r.Log-before[i].Converged < delay.Milliseconds() {
				t.Errorf("%s was given %+v, the location before it had %+v", location, r, before)
			}
		}
		before = rows
	}
	for _, who := range []string{"a", "b", "c"} { // which of them is slower than its location is the machine's affair
		for _, v := range []string{"1", "2", "4", "5"} {
			if !regexp.MustCompile(who + "-. serves version " + v + ": . airports").Match(out) {
				t.Errorf("nobody of %s loaded version %s", who, v)
			}
		}
	}
	if strings.Contains(string(out), "serves version 3") || strings.Contains(string(out), "b-2 serves version 5") {
		t.Error("what could not be loaded was loaded")
	}
}

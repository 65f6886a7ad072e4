package bench

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProfileShares(t *testing.T) {
	parts := []part{{"sync", []string{"syscall.Fdatasync"}}, {"store", []string{"a/store."}}, {"engine", []string{"b/engine"}}}
	shares, rest := profileShares(read(t, "profile.txt"), parts)
	if !slices.Equal(shares, []float64{0.5, 0.1, 0.3}) || math.Abs(rest-0.1) > 1e-9 {
		t.Errorf("%v, and %v of others", shares, rest)
	}
}

func TestPerfCounts(t *testing.T) {
	got := perfCounts([]byte("# started\n51234,,raw_syscalls:sys_enter,4003,100.00,,\n<not counted>,,syscalls:sys_enter_read,0,0.00,,\n77,,syscalls:sys_enter_write,4003,100.00,,\n"))
	if len(got) != 2 || got["raw_syscalls:sys_enter"] != 51234 || got["syscalls:sys_enter_write"] != 77 {
		t.Errorf("%v", got)
	}
}

// TestStageTimes follows two calls through the system calls of both processes, with others between:
// an empty read, one of a file, and a write that belongs to nothing.
func TestStageTimes(t *testing.T) {
	const server, client = 10, 20
	sockets := map[int]map[int]bool{server: {5: true, 7: false}, client: {4: true}}
	calls := parseCalls([]byte(read(t, "perf.txt")))
	got := stageTimes(calls, server, client, sockets)
	want := [][]float64{{20, 20}, {10, 10}, {15, 15}, {100, 200}, {30, 30}, {25, 25}, {40, 40}}
	for i := range stages {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%s: %v, expected %v", stages[i], got[i], want[i])
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTrace: without the tools, the rest is there, and it says what is missing.
func TestTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	t.Setenv("PATH", "")
	c := TraceConfig{Length: 200 * time.Millisecond, WarmUp: 20 * time.Millisecond, Rates: []int{200}, Callers: 4}
	r, err := RunTrace(t.Context(), &SignalboxSystem{Binary: self(t)}, c, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text := written(t, r.WriteTable)
	for _, want := range []string{"| Time | one caller alone | 200 pairs/s |",
		"| a write to the log, synced or not | ", "| commands in a batch | ", "System calls were not counted",
		"CPU was not divided"} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace does not say %q:\n%s", want, text)
		}
	}
	for _, row := range r.Rows {
		for i, v := range row.Values {
			if v < 0 { // a starved machine may give no value: NaN
				t.Errorf("%s, %s: %v", row.Text, r.Loads[i], v)
			}
		}
	}
	if name, err := r.Save(t.TempDir()); err != nil || !strings.HasSuffix(name, "-trace") {
		t.Errorf("saved as %s: %v", name, err)
	}
}

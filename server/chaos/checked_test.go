package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/chaos/history"
)

// fault is something that happens to a cluster, and is over when it returns.
type fault struct {
	name string
	do   func(c *cluster, r *rand.Rand)
}

func someInstance(c *cluster, r *rand.Rand) *instance {
	names := c.names()
	return c.all[names[r.IntN(len(names))]]
}

// pause stops processes for some time, as a machine does whose clocks go on while nothing on it runs.
func pause(list []*instance, d time.Duration) {
	for _, in := range list {
		_ = in.cmd.Process.Signal(syscall.SIGSTOP)
	}
	time.Sleep(d) // the fault itself
	for _, in := range list {
		_ = in.cmd.Process.Signal(syscall.SIGCONT)
	}
}

var faults = []fault{
	{"SIGKILL of the instance that leads most", func(c *cluster, r *rand.Rand) {
		if s, err := c.status(); err == nil && busiest(&s) != "" {
			in := c.all[busiest(&s)]
			in.kill()
			in.start()
		}
	}},
	{"SIGKILL of any instance", func(c *cluster, r *rand.Rand) {
		in := someInstance(c, r)
		in.kill()
		in.start()
	}},
	{"SIGSTOP of the instance that leads most", func(c *cluster, r *rand.Rand) {
		if s, err := c.status(); err == nil && busiest(&s) != "" {
			pause([]*instance{c.all[busiest(&s)]}, 500*time.Millisecond+rand.N(3*time.Second))
		}
	}},
	{"SIGSTOP of any instance", func(c *cluster, r *rand.Rand) {
		pause([]*instance{someInstance(c, r)}, 200*time.Millisecond+rand.N(2*time.Second))
	}},
	{"SIGTERM and restart", func(c *cluster, r *rand.Rand) {
		in := someInstance(c, r)
		in.stop()
		in.start()
	}},
	{"leadership handed over", func(c *cluster, r *rand.Rand) {
		s, err := c.status()
		if err != nil || len(s.Shards) == 0 {
			return
		}
		x := s.Shards[r.IntN(len(s.Shards))]
		for _, o := range x.Replicas {
			if o.Instance != x.Master {
				_, _ = c.command("cluster", "transfer", strconv.FormatUint(x.ID, 10), o.Instance, "--timeout", "5s") // refused while another is under way
				return
			}
		}
	}},
	{"SIGKILL of all instances at once", func(c *cluster, r *rand.Rand) {
		for _, name := range c.names() {
			_ = c.all[name].cmd.Process.Kill()
		}
		for _, name := range c.names() {
			c.all[name].kill()
			c.all[name].start()
		}
	}},
	{"SIGSTOP of all instances at once", func(c *cluster, r *rand.Rand) {
		var all []*instance
		for _, name := range c.names() {
			all = append(all, c.all[name])
		}
		pause(all, 200*time.Millisecond+rand.N(time.Second))
	}},
}

// TestCheckedHistories: while instances die, stop for a while and hand over, every call of every client is written down, and judged: there is an order of all calls on a name
// in which each came out as it should, leases that were relied on never overlapped, and tokens never went back. With SIGNALBOX_CHAOS=n it goes on for n minutes; with
// SIGNALBOX_CHAOS_REPORT=file it leaves a report. A history that is refused is kept, with its picture, in SIGNALBOX_CHAOS_KEEP or the system's folder for such.
func TestCheckedHistories(t *testing.T) {
	minutes := 0.25
	if text := os.Getenv("SIGNALBOX_CHAOS"); text != "" {
		var err error
		if minutes, err = strconv.ParseFloat(text, 64); err != nil || minutes <= 0 {
			t.Fatalf("SIGNALBOX_CHAOS is %q; give a number of minutes", text)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d: it says which faults come, not when they meet which call", seed)
	c := newCluster(t)
	c.three()
	c.makeNode()
	x := &callers{endpoints: c.endpoints(), timeout: loadTimeout, tokens: map[string]uint64{}}
	stop := make(chan struct{})
	done := make(chan error, 1)
	rounds := 0
	go func() { done <- x.run(stop, seed, &rounds) }()

	began := now()
	counts := make([]int, len(faults))
	r := rand.New(rand.NewPCG(seed, 1))
	order := r.Perm(len(faults))
	for i := 0; now()-began < time.Duration(minutes*float64(time.Minute)) || i < 4; i++ {
		k := order[i%len(order)]
		faults[k].do(c, r)
		counts[k]++
		c.settled("after "+faults[k].name, c.names()...)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	keep := os.Getenv("SIGNALBOX_CHAOS_KEEP")
	if keep == "" {
		keep = filepath.Join(os.TempDir(), fmt.Sprintf("signalbox-history-%d", seed))
	}
	pictures := t.TempDir()
	s := history.Check(x.ops, history.Options{Limit: patience, Pictures: pictures})
	took := now() - began
	report := checkedReport(&s, counts, rounds, took, seed)
	t.Log(report)
	if file := os.Getenv("SIGNALBOX_CHAOS_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(report), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, f := range s.Findings {
		t.Error(f.What)
	}
	if len(s.Findings) > 0 {
		if err := keepHistory(keep, pictures, x.ops); err != nil {
			t.Error(err)
		}
		t.Errorf("the history and its pictures are in %s", keep)
	}
	if s.ByResult[history.OK] < 200 || rounds == 0 {
		t.Errorf("too little happened to mean anything: %d calls", s.Ops)
	}
}

func keepHistory(dir, pictures string, ops []history.Op) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(ops, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "history.json"), b, 0o644); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "pictures"), os.DirFS(pictures))
}

// run has all callers make one round after the other until it is told to stop. Names are used for one round only.
func (x *callers) run(stop <-chan struct{}, seed uint64, rounds *int) error {
	var all []*caller
	for lane := range callersLanes {
		c, err := x.open(lane)
		if err != nil {
			return err
		}
		defer c.c.Close()
		all = append(all, c)
	}
	for round := 0; ; round++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := all[0].prepare(round); err != nil {
			return err
		}
		var lanes sync.WaitGroup
		errs := make([]error, len(all))
		for i, c := range all {
			lanes.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(round)<<8|uint64(i)))
				errs[i] = c.round(round, r)
				if i < 3 && errs[i] == nil {
					c.nodes(round, r)
				}
			})
		}
		lanes.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		*rounds = round + 1
	}
}

func checkedReport(s *history.Summary, counts []int, rounds int, took time.Duration, seed uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Checked histories under faults\n\n%d calls on %d names in %d rounds within %s on %d CPUs, three instances, %d clients; seed %d.\n\n", s.Ops, s.Names, rounds,
		took.Round(time.Second), runtime.NumCPU(), callersLanes, seed)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| violations | %d |\n| calls without an outcome | %d |\n| most calls on one name | %d |\n| longest call with an outcome | %s, %s |\n", len(s.Findings), s.Unknown,
		s.MaxPerName, s.Longest.Round(time.Millisecond), s.LongestCall.Kind)
	for _, list := range []map[string]int{texts(s.ByKind), texts(s.ByResult)} {
		b.WriteString("\n| what | how many |\n|---|---|\n")
		var names []string
		for name := range list {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, "| %s | %d |\n", name, list[name])
		}
	}
	b.WriteString("\n| fault | times |\n|---|---|\n")
	for k, f := range faults {
		fmt.Fprintf(&b, "| %s | %d |\n", f.name, counts[k])
	}
	return b.String()
}

func texts[K ~string](in map[K]int) map[string]int {
	out := map[string]int{}
	for k, n := range in {
		out[string(k)] = n
	}
	return out
}

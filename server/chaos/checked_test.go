package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/chaos/history"
)

// shape is a cluster of three instances, and what happens to it.
type shape struct {
	name   string
	copies int     // of each shard
	share  float64 // of the run's time
	least  int     // faults, however little time there is
	faults []fault
}

func shapes() []shape {
	return []shape{
		{"each instance has a copy of everything", 3, 0.65, 4, wholeFaults()},
		{"each instance has a third of everything, and all moves", 1, 0.35, 2, spreadFaults()},
	}
}

// span is one coming of a fault.
type span struct{ from, over, well int64 } // it began; was over; the cluster had got over it

// happened is what came over a cluster of one shape.
type happened struct {
	shape
	spans  [][]span // by fault
	rounds uint64
	took   time.Duration
	ops    []history.Op
	judged history.Summary
}

// TestCheckedHistories: while instances die, stand still, hand over, are cut off, run out of disk, get other clocks and give buckets away, every call of every client is written
// down, and judged: there is an order of all calls on a name in which each came out as it should, what was acknowledged is still there at the end, leases that were relied on
// never overlapped, and tokens never went back. With SIGNALBOX_CHAOS=n it goes on for n minutes, with SIGNALBOX_CHAOS_ONLY=pattern with those faults only whose names it fits; with
// SIGNALBOX_CHAOS_REPORT=file it leaves a report. A history that is refused is kept, with its picture, in SIGNALBOX_CHAOS_KEEP or the system's folder for such.
func TestCheckedHistories(t *testing.T) {
	minutes := 0.3
	if text := os.Getenv("SIGNALBOX_CHAOS"); text != "" {
		var err error
		if minutes, err = strconv.ParseFloat(text, 64); err != nil || minutes <= 0 {
			t.Fatalf("SIGNALBOX_CHAOS is %q; give a number of minutes", text)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d: it says which faults come, not when they meet which call", seed)
	only, err := regexp.Compile(os.Getenv("SIGNALBOX_CHAOS_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*happened
	for _, s := range shapes() {
		h := &happened{shape: s}
		h.faults = slices.DeleteFunc(h.faults, func(f fault) bool { return !only.MatchString(f.name) })
		if len(h.faults) == 0 {
			continue
		}
		if !t.Run(s.name, func(t *testing.T) { h.run(t, time.Duration(minutes*s.share*float64(time.Minute)), seed) }) {
			break
		}
		all = append(all, h)
	}
	if t.Failed() {
		return
	}
	report := checkedReport(all, seed)
	t.Log(report)
	if file := os.Getenv("SIGNALBOX_CHAOS_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(report), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// newTrial starts the cluster, on hosts and disks of its own where they can be had.
func newTrial(t *testing.T, s shape, r *rand.Rand) *trial {
	x := &trial{t: t, c: newClusterOf(t, s.copies), r: r}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		x.c.add(name)
	}
	var err error
	if x.net, err = makeNetwork(t, callersHost+1); err != nil {
		t.Logf("nothing happens to networks: %v", err)
	} else {
		x.c.space = x.net.router
		for k, name := range names {
			in := x.c.all[name]
			in.space, in.listen, in.raft, in.admin = x.net.hosts[k], x.net.address(k)+":7070", x.net.address(k)+":7071", x.net.address(k)+":7072"
		}
	}
	if slices.ContainsFunc(s.faults, func(f fault) bool { return f.disks }) {
		x.disks = map[string]string{}
		for _, name := range names {
			disk, err := makeDisk(t, "1g", "mkfs.ext4", "-q", "-F")
			if err != nil {
				t.Logf("nothing happens to disks: %v", err)
				x.disks = nil
				break
			}
			in := x.c.all[name]
			x.disks[name], in.dir, in.logFile = disk, filepath.Join(disk, "data"), filepath.Join(x.c.dir, name+".log")
			t.Cleanup(in.gone) // before its disk
		}
	}
	x.c.startAll(names...)
	x.c.makeNode()
	return x
}

// begin starts the callers and waits until they work.
func (x *trial) begin(seed uint64) {
	x.t.Helper()
	text, err := json.Marshal(callersSpec{Endpoints: x.c.endpoints(), Seed: seed, History: filepath.Join(x.c.dir, "history")})
	if err != nil {
		x.t.Fatal(err)
	}
	space := ""
	if x.net != nil {
		space = x.net.hosts[callersHost]
	}
	x.callers = startActor(x.t, space, "callers", "callers", callersEnv+"="+string(text))
	x.t.Cleanup(func() {
		_ = x.callers.cmd.Process.Kill()
		<-x.callers.ended
		_ = x.callers.cmd.Wait()
	})
	x.works("at first")
	await(x.t, "the callers to be ready", func() bool {
		_, ok := x.callers.has("ready")
		x.works("at first")
		return ok
	})
}

// works fails the test if the callers said that they cannot go on.
func (x *trial) works(when string) {
	x.t.Helper()
	if r, ok := x.callers.has("failed"); ok {
		x.t.Fatalf("callers %s: %s", when, r.Text)
	}
}

// carriesOn waits until the callers have made a whole round that began after now: all names of it, in all shards, were served.
func (x *trial) carriesOn(when string) {
	x.t.Helper()
	want := x.callers.count("round") + 2
	deadline := now() + recovery
	for x.callers.count("round") < want {
		x.works(when)
		if now() > deadline {
			status, _ := x.c.command("cluster", "status", "--timeout", "5s")
			x.t.Fatalf("%s clients were not served for %v\n%s\n%s", when, recovery, status, x.c.keepSelves())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// recovery bounds how long it may take until all clients are served again. It only ends runs in which they never would be.
const recovery = patience

// end has the callers finish, and reads what they did.
func (x *trial) end() (rounds uint64, ops []history.Op) {
	x.t.Helper()
	_ = x.callers.cmd.Process.Signal(syscall.SIGTERM)
	<-x.callers.ended
	x.works("at the end")
	r, ok := x.callers.has("rounds")
	if !ok {
		x.t.Fatalf("the callers ended without a word: %s", &x.callers.errors)
	}
	f, err := os.Open(filepath.Join(x.c.dir, "history"))
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	if ops, err = history.Read(f); err != nil {
		x.t.Fatal(err)
	}
	return r.Session, ops
}

// run has faults come over a cluster for some time, and judges what its callers saw.
func (h *happened) run(t *testing.T, long time.Duration, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(h.copies)))
	x := newTrial(t, h.shape, r)
	x.begin(seed)
	h.spans = make([][]span, len(h.faults))
	began := now()
	var order []int
	for i := 0; now()-began < long || i < h.least; i++ {
		if len(order) == 0 {
			order = r.Perm(len(h.faults)) // each comes as often as any other
		}
		k := order[0]
		order = order[1:]
		f := &h.faults[k]
		if f.network && x.net == nil || f.disks && x.disks == nil {
			i--
			continue
		}
		s := span{from: int64(now())}
		came := f.do(x)
		s.over = int64(now())
		x.c.settled("after "+f.name, x.c.names()...)
		x.carriesOn("after " + f.name)
		s.well = int64(now())
		if came {
			h.spans[k] = append(h.spans[k], s)
		}
	}
	h.rounds, h.ops = x.end()
	h.took = now() - began

	pictures := t.TempDir()
	h.judged = history.Check(h.ops, history.Options{Limit: patience, Pictures: pictures})
	for _, f := range h.judged.Findings {
		t.Error(f.What)
	}
	if len(h.judged.Findings) > 0 {
		keep := kept()
		if err := keepHistory(keep, pictures, h.ops); err != nil {
			t.Error(err)
		}
		t.Errorf("the history and its pictures are in %s", keep)
	}
	if h.judged.ByResult[history.OK] < 100 || h.rounds == 0 {
		t.Errorf("too little happened to mean anything: %d calls in %d rounds", h.judged.Ops, h.rounds)
	}
	if x.net == nil || x.disks == nil && h.copies > 1 || !otherClocks() || long < 5*time.Minute {
		return // what cannot be done here comes never
	}
	for k, f := range h.faults {
		if len(h.spans[k]) == 0 {
			t.Errorf("%s never came", f.name)
		}
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

func checkedReport(all []*happened, seed uint64) string {
	var b strings.Builder
	calls, names, unknown, violations, faults, least := 0, 0, 0, 0, 0, 1<<30
	var took time.Duration
	for _, h := range all {
		calls += h.judged.Ops
		names += h.judged.Names
		unknown += h.judged.Unknown
		violations += len(h.judged.Findings)
		took += h.took
		for _, s := range h.spans {
			faults += len(s)
			least = min(least, len(s))
		}
	}
	fmt.Fprintf(&b, "# Checked histories under faults\n\n%d calls on %d names within %s on %d CPUs; three instances, %d clients; seed %d. %d faults, each kind at least %d times.\n\n", calls, names,
		took.Round(time.Second), runtime.NumCPU(), callersLanes, seed, faults, least)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| violations: lost writes, double grants, or anything else that fits no order | %d |\n| calls without an outcome | %d |\n", violations, unknown)
	for _, h := range all {
		s := &h.judged
		fmt.Fprintf(&b, "\n## %s%s\n\n%d calls in %d rounds within %s; the longest with an outcome took %s (%s); at most %d calls on one name.\n\n", strings.ToUpper(h.name[:1]), h.name[1:], s.Ops,
			h.rounds, h.took.Round(time.Second), s.Longest.Round(time.Millisecond), s.LongestCall.Kind, s.MaxPerName)
		b.WriteString("| fault | times | it lasted, median | then until all was well, median | at most | longest call that met it |\n|---|---|---|---|---|---|\n")
		for k, f := range h.faults {
			var lasted, well []time.Duration
			for _, p := range h.spans[k] {
				lasted, well = append(lasted, time.Duration(p.over-p.from)), append(well, time.Duration(p.well-p.over))
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", f.name, len(lasted), median(lasted), median(well), most(well), longestIn(h.ops, h.spans[k]))
		}
		b.WriteString("\n| call | how many |\n|---|---|\n")
		for _, list := range []map[string]int{texts(s.ByKind), texts(s.ByResult)} {
			var names []string
			for name := range list {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				fmt.Fprintf(&b, "| %s | %d |\n", name, list[name])
			}
		}
	}
	return b.String()
}

func median(list []time.Duration) string {
	if len(list) == 0 {
		return "-"
	}
	slices.Sort(list)
	return list[len(list)/2].Round(10 * time.Millisecond).String()
}

func most(list []time.Duration) string {
	if len(list) == 0 {
		return "-"
	}
	return slices.Max(list).Round(10 * time.Millisecond).String()
}

// longestIn is the longest call with an outcome that was under way in one of the spans.
func longestIn(ops []history.Op, spans []span) string {
	longest := time.Duration(0)
	for i := range ops {
		op := &ops[i]
		took := time.Duration(op.Return - op.Call)
		if op.Return == history.Never || took <= longest || op.Kind == history.Ended || op.Kind == history.Believed {
			continue
		}
		if slices.ContainsFunc(spans, func(s span) bool { return op.Call < s.well && op.Return > s.from }) {
			longest = took
		}
	}
	if longest == 0 {
		return "-"
	}
	return longest.Round(time.Millisecond).String()
}

func texts[K ~string](in map[K]int) map[string]int {
	out := map[string]int{}
	for k, n := range in {
		out[string(k)] = n
	}
	return out
}

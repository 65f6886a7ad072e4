package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// topology is a cluster of three instances, with its faults.
type topology struct {
	name   string
	copies int     // of each shard
	share  float64 // of the run's time
	least  int     // faults, even if the time is over
	faults []fault
}

func topologies() []topology {
	return []topology{
		{"each instance has a copy of everything", 3, 0.65, 4, wholeFaults()},
		{"each instance has a third of everything, and all moves", 1, 0.35, 2, spreadFaults()},
	}
}

// historyKinds are the calls that even the shortest run must contain.
var historyKinds = []callKind{callCreate, callAcquire, callReduce, callRelease,
	callDescribe, callEnded,
	callSet, callGet, callRelaxedGet, callCreateNode, callDropNode, callBelieved, callFenced}

// faultSpan is one occurrence of a fault.
type faultSpan struct{ from, over, recovered int64 } // it began; it was over; the cluster had recovered

// checkedRun is a run of one topology, and what happened in it.
type checkedRun struct {
	topology
	spans   [][]faultSpan // by fault
	rounds  uint64
	took    time.Duration
	ops     []historyOp
	summary historySummary
}

// TestCheckedHistories records and checks every call of every client while instances die, stop,
// drain, are cut off, run out of disk, get other clocks and move buckets. All calls on a name
// must fit an order in which each came out as it should. What was acknowledged must still be there
// at the end. Leases that were relied on must not overlap, and tokens must not go back.
// -minutes says how long, -faults which faults, -report where to leave a report. A history that is
// refused is kept, with its picture, in the folder of -keep or the system's for such.
func TestCheckedHistories(t *testing.T) {
	t.Parallel()
	minutes := form.Of(1./3, 5)
	if *minutesFlag > 0 {
		minutes = *minutesFlag
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: SIGNALBOX_TEST=%s go test ./server/chaos -run '^TestCheckedHistories$' -seed %[1]d has the same faults "+
		"come, if not in the middle of the same calls", seed, os.Getenv("SIGNALBOX_TEST"))
	only, err := regexp.Compile(*faultsFlag)
	if err != nil {
		t.Fatalf("-faults: %v", err)
	}
	clusters := topologies()
	if !form.Is(form.Full) && *minutesFlag == 0 {
		clusters = clusters[:1]
		clusters[0].share = 1
	}
	var all []*checkedRun
	for _, s := range clusters {
		h := &checkedRun{topology: s}
		h.faults = slices.DeleteFunc(h.faults, func(f fault) bool { return !only.MatchString(f.name) })
		if len(h.faults) == 0 {
			continue
		}
		if !t.Run(s.name, func(t *testing.T) { h.run(t, time.Duration(minutes*s.share*float64(time.Minute)), seed) }) {
			break
		}
		if h.spans != nil { // -run may have left it out
			all = append(all, h)
		}
	}
	if t.Failed() {
		return
	}
	for _, kind := range historyKinds {
		n := 0
		for _, h := range all {
			n += h.summary.ByKind[kind]
		}
		if n == 0 && len(all) > 0 {
			t.Errorf("no %s took part in any history", kind)
		}
	}
	report := checkedReport(all, seed)
	t.Log(report)
	writeReport(t, report)
}

// newFaultCluster starts the cluster, on hosts and disks of its own where possible.
func newFaultCluster(t *testing.T, s topology, r *rand.Rand) *faultCluster {
	x := &faultCluster{t: t, c: newClusterOf(t, s.copies), r: r}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		x.c.add(name)
	}
	var err error
	if x.net, err = makeNetwork(t, clientsHost+1); err != nil {
		t.Logf("nothing happens to networks: %v", err)
	} else {
		x.c.netns = x.net.router
		for k, name := range names {
			in := x.c.instances[name]
			in.netns, in.listen, in.raft, in.admin = x.net.hosts[k], x.net.address(k)+":7070",
				x.net.address(k)+":7071", x.net.address(k)+":7072"
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
			in := x.c.instances[name]
			x.disks[name], in.dir, in.logFile = disk, filepath.Join(disk, "data"), filepath.Join(x.c.dir, name+".log")
			t.Cleanup(in.killIfStarted) // before its disk
		}
	}
	x.c.startAll(names...)
	x.c.makeNode()
	return x
}

// startClients starts the history clients and waits until they work.
func (x *faultCluster) startClients(seed uint64) {
	x.t.Helper()
	text, err := json.Marshal(historyClientsSpec{Endpoints: x.c.endpoints(), Seed: seed, History: filepath.Join(x.c.dir, "history")})
	if err != nil {
		x.t.Fatal(err)
	}
	space := ""
	if x.net != nil {
		space = x.net.hosts[clientsHost]
	}
	x.clients = startActor(x.t, space, "history clients", "history clients", historyClientsEnv+"="+string(text))
	x.t.Cleanup(func() {
		_ = x.clients.cmd.Process.Kill()
		<-x.clients.ended
		_ = x.clients.cmd.Wait()
	})
	x.failIfClientsFailed("at first")
	x.clients.until(x.t, "the history clients to be ready", func() bool {
		x.failIfClientsFailed("at first")
		return x.clients.count("ready") > 0
	})
}

// failIfClientsFailed fails the test if the history clients reported a failure.
func (x *faultCluster) failIfClientsFailed(when string) {
	x.t.Helper()
	if r, ok := x.clients.has("failed"); ok {
		x.t.Fatalf("history clients %s: %s", when, r.Text)
	}
}

// awaitRound waits until the history clients have made a whole round that began after now. Then all
// its names, in all shards, were served.
func (x *faultCluster) awaitRound(when string) {
	x.t.Helper()
	want := x.clients.count("round") + 2
	if !x.clients.await(func() bool { x.failIfClientsFailed(when); return x.clients.count("round") >= want }) {
		status, _ := x.c.command("cluster", "status", "--timeout", "5s")
		x.t.Fatalf("%s clients were not served for %v\n%s\n%s", when, waitLimit, status, x.c.saveDiagnostics())
	}
}

// stopClients has the history clients finish, and reads their records.
func (x *faultCluster) stopClients() (rounds uint64, ops []historyOp) {
	x.t.Helper()
	_ = x.clients.cmd.Process.Signal(syscall.SIGTERM)
	<-x.clients.ended
	x.failIfClientsFailed("at the end")
	r, ok := x.clients.has("rounds")
	if !ok {
		x.t.Fatalf("the history clients ended without a word: %s", &x.clients.errors)
	}
	f, err := os.Open(filepath.Join(x.c.dir, "history"))
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	if ops, err = readHistory(f); err != nil {
		x.t.Fatal(err)
	}
	return r.Session, ops
}

// run makes faults happen to a cluster for some time, and checks what its history clients saw.
func (h *checkedRun) run(t *testing.T, long time.Duration, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(h.copies)))
	x := newFaultCluster(t, h.topology, r)
	x.startClients(seed)
	h.spans = make([][]faultSpan, len(h.faults))
	began := now()
	var order []int
	for i := 0; now()-began < long || i < h.least; i++ {
		if len(order) == 0 {
			order = r.Perm(len(h.faults)) // every fault occurs equally often
		}
		k := order[0]
		order = order[1:]
		f := &h.faults[k]
		if f.network && x.net == nil || f.disks && x.disks == nil {
			i--
			continue
		}
		s := faultSpan{from: int64(now())}
		came := f.do(x)
		s.over = int64(now())
		x.c.awaitReady("after "+f.name, x.c.names()...)
		x.awaitRound("after " + f.name)
		s.recovered = int64(now())
		if came {
			h.spans[k] = append(h.spans[k], s)
		}
	}
	h.rounds, h.ops = x.stopClients()
	h.took = now() - began

	pictures := t.TempDir()
	h.summary = checkHistory(h.ops, historyOptions{Limit: waitLimit, Pictures: pictures})
	for _, f := range h.summary.Findings {
		t.Error(f.What)
	}
	if len(h.summary.Findings) > 0 {
		keep := artifactsDir()
		if err := saveHistory(keep, pictures, h.ops); err != nil {
			t.Error(err)
		}
		t.Errorf("the history and its pictures are in %s", keep)
	}
	if h.summary.ByResult[resultOK] < 100 || h.rounds == 0 {
		t.Errorf("too little happened to mean anything: %d calls in %d rounds", h.summary.Ops, h.rounds)
	}
	if x.net == nil || x.disks == nil && h.copies > 1 || !timeNamespaces() || long < 5*time.Minute {
		return // faults that are impossible here never occur
	}
	for k, f := range h.faults {
		if len(h.spans[k]) == 0 {
			t.Errorf("%s never came", f.name)
		}
	}
}

func saveHistory(dir, pictures string, ops []historyOp) error {
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

func checkedReport(all []*checkedRun, seed uint64) string {
	var b strings.Builder
	calls, names, unknown, violations, faults, least := 0, 0, 0, 0, 0, 1<<30
	var took time.Duration
	for _, h := range all {
		calls += h.summary.Ops
		names += h.summary.Names
		unknown += h.summary.Unknown
		violations += len(h.summary.Findings)
		took += h.took
		for _, s := range h.spans {
			faults += len(s)
			least = min(least, len(s))
		}
	}
	fmt.Fprintf(&b, "# Checked histories under faults\n\n%d calls on %d names within %s on %d CPUs; three instances, %d clients; seed %d. %d faults, each kind at least %d times.\n\n", calls, names,
		took.Round(time.Second), runtime.NumCPU(), historyLanes, seed, faults, least)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| violations: lost writes, double grants, or anything else that fits no order | %d |\n| calls without an outcome | %d |\n", violations, unknown)
	for _, h := range all {
		s := &h.summary
		fmt.Fprintf(&b,
			"\n## %s%s\n\n%d calls in %d rounds within %s; the longest with an outcome took %s (%s); at most %d calls on one name.\n\n",
			strings.ToUpper(h.name[:1]), h.name[1:], s.Ops,
			h.rounds, h.took.Round(time.Second), s.Longest.Round(time.Millisecond), s.LongestCall.Kind, s.MaxPerName)
		b.WriteString("| fault | times | it lasted, median | then until all was well, median | at most | longest call that met it |\n|---|---|---|---|---|---|\n")
		for k, f := range h.faults {
			var lasted, well []time.Duration
			for _, p := range h.spans[k] {
				lasted, well = append(lasted, time.Duration(p.over-p.from)), append(well, time.Duration(p.recovered-p.over))
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", f.name, len(lasted), median(lasted), median(well),
				most(well), longestIn(h.ops, h.spans[k]))
		}
		for _, x := range []struct {
			what string
			list map[string]int
		}{{"Calls", texts(s.ByKind)}, {"Results", texts(s.ByResult)}} {
			var counts []string
			for _, name := range slices.Sorted(maps.Keys(x.list)) {
				counts = append(counts, fmt.Sprintf("%s %d", name, x.list[name]))
			}
			fmt.Fprintf(&b, "\n%s: %s.\n", x.what, strings.Join(counts, ", "))
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

// longestIn is the longest call with an outcome that overlaps one of the spans.
func longestIn(ops []historyOp, spans []faultSpan) string {
	longest := time.Duration(0)
	for i := range ops {
		op := &ops[i]
		took := time.Duration(op.Return - op.Call)
		if op.Return == neverReturned || took <= longest || op.Kind == callEnded || op.Kind == callBelieved {
			continue
		}
		if slices.ContainsFunc(spans, func(s faultSpan) bool { return op.Call < s.recovered && op.Return > s.from }) {
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

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// floodSpec sizes a run.
type floodSpec struct {
	sessions int           // idle ones
	hostile  int           // connections at once
	rate     int           // operations a second of honest clients
	long     time.Duration // a measurement
	alone    []string      // kinds that come alone too, before all come together
	memory   string        // the bound
}

// measurement is what honest clients saw in one part of the run, and what the server needed.
type measurement struct {
	what            string
	p50, p99, p999  time.Duration
	late            time.Duration // p99 of how late the timers of the honest clients were themselves, which is part of the above
	errors          uint64
	operations      uint64
	resident        int64   // at most
	cores           float64 // of the server
	connections     uint64  // that were open at the end
	came            uint64  // hostile connections that were made
	cut             map[string]uint64
	refused         uint64 // connections turned away at once
	memoryRefusals  uint64
	quotaOverloaded uint64 // hostile requests that were answered OVERLOADED
}

// TestFlood: beside idle sessions and hostile connections of every kind, honest clients go on
// without an error, and the server stays within its memory bound. Latencies are measured, not
// asserted. In form soak it is of full size; -report names the file of its report.
func TestFlood(t *testing.T) {
	form.SkipUntil(t, form.Full, "hostile processes")
	spec := floodSpec{sessions: 500, hostile: 150, rate: 100, long: 2 * time.Second, memory: "512MiB"}
	if form.Is(form.Soak) {
		spec = floodSpec{sessions: 100_000, hostile: 10_000, rate: 1000, long: 15 * time.Second, alone: hostileKinds(), memory: "1GiB"}
		raiseFiles(t)
	}
	if *kindsFlag != "" {
		spec.alone = strings.Split(*kindsFlag, ",")
		for _, kind := range spec.alone {
			if _, ok := hostileKindsByName[kind]; !ok {
				t.Fatalf("-kinds names %q; there are %s", kind, strings.Join(hostileKinds(), ", "))
			}
		}
	}
	f := &flood{t: t, spec: spec, in: startInstanceWith(t, binary.Signalbox(t), "--max-memory", spec.memory)}
	f.prepare()
	list := []measurement{f.measure("quiet", nil)}
	f.startIdleSessions()
	list = append(list, f.measure(fmt.Sprintf("%d sessions that only live", spec.sessions), nil))
	for _, kind := range spec.alone {
		list = append(list, f.measure(kind+": "+hostileKindsByName[kind].what, map[string]int{kind: spec.hostile}))
	}
	mixed := map[string]int{}
	for i, kind := range hostileKinds() {
		mixed[kind] = spec.hostile / len(hostileKindsByName)
		if i < spec.hostile%len(hostileKindsByName) {
			mixed[kind]++
		}
	}
	list = append(list, f.measure("all kinds together", mixed))
	list = append(list, f.measure("afterwards", nil))
	report := floodReport(spec, list)
	t.Log(report)
	writeReport(t, report)
	bound, _ := strconv.ParseInt(strings.NewReplacer("GiB", "", "MiB", "").Replace(spec.memory), 10, 64)
	if bound <<= 20; strings.HasSuffix(spec.memory, "GiB") {
		bound <<= 10
	}
	for _, m := range list {
		if m.errors != 0 || m.operations == 0 {
			t.Errorf("%s: honest clients had %d errors in %d operations", m.what, m.errors, m.operations)
		}
		if m.resident > bound {
			t.Errorf("%s: the server held %d MiB, more than %s", m.what, m.resident>>20, spec.memory)
		}
	}
	select {
	case <-f.in.ended:
		t.Fatalf("the server ended: %v\n%s", f.in.err, f.in.log())
	default:
	}
}

// raiseFiles allows this process and its children as many open files as the system does.
func raiseFiles(t *testing.T) {
	limit := syscall.Rlimit{Cur: 200_000, Max: 200_000}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Logf("open files cannot be raised to %d: %v", limit.Cur, err)
	}
}

// startInstanceWith starts an instance with flags of its own.
func startInstanceWith(t *testing.T, bin string, flags ...string) *instance {
	in := &instance{t: t, bin: bin, dir: filepath.Join(t.TempDir(), "data"), listen: port.ForTest(t),
		raft: port.ForTest(t), admin: port.ForTest(t), flags: flags}
	in.start()
	t.Cleanup(func() { in.killAndShowLog("server") })
	return in
}

// flood is an instance, honest clients, and all others.
type flood struct {
	t    *testing.T
	spec floodSpec
	in   *instance
}

// hostileQuotas are those of the node that hostile clients are let into.
var hostileQuotas = []string{"--max-sessions", "20000", "--max-semaphores", "20000", "--max-waiters", "20000",
	"--max-watchers", "20000", "--max-requests", "1000"}

// prepare makes the nodes: one for honest clients, one with quotas for the others.
func (f *flood) prepare() {
	f.t.Helper()
	for _, args := range [][]string{{"node", "create", "/honest"}, {"node", "create", "/idle"},
		append([]string{"node", "create", "/hostile"}, hostileQuotas...)} {
		await.True(f.t, strings.Join(args, " "), func() bool {
			_, err := f.in.cli(args...)
			return err == nil
		})
	}
}

// background is a command that runs until the test ends, with the lowest priority.
func (f *flood) background(env []string, name string, args ...string) *exec.Cmd {
	f.t.Helper()
	c := lowPriorityCommand(name, args...)
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// startIdleSessions has sessions that only live, until the test ends.
func (f *flood) startIdleSessions() {
	f.t.Helper()
	c := f.background(nil, f.in.bin, "load", "idle-sessions", "--sessions", strconv.Itoa(f.spec.sessions),
		"--connections", "8", "--duration", "1h", "--warm-up", "0s", "--node", "/idle",
		"--session-timeout", "30s", "--endpoints", f.in.listen)
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	await.True(f.t, "sessions that only live", func() bool {
		sum := uint64(0)
		for name, v := range f.metrics() {
			if strings.HasPrefix(name, "signalbox_shard_sessions{") {
				sum += v
			}
		}
		return sum >= uint64(f.spec.sessions)
	})
}

// metrics are the server's metrics.
func (f *flood) metrics() map[string]uint64 {
	out := map[string]uint64{}
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), urlEnv+"=http://"+f.in.admin+"/metrics")
	text, err := cmd.Output()
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 {
			out[name] = uint64(n)
		}
	}
	return out
}

// measure lets honest clients work for a while, beside hostile ones.
func (f *flood) measure(what string, kinds map[string]int) measurement {
	f.t.Helper()
	m := measurement{what: what, cut: map[string]uint64{}}
	before := f.metrics()
	var hostileActor *actor
	if kinds != nil {
		hostileActor = f.startHostile(kinds)
	}
	var watching sync.WaitGroup
	var most atomic.Int64
	over := make(chan struct{})
	watching.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
				if n := resident(f.in.cmd.Process.Pid); n > most.Load() {
					most.Store(n)
				}
			}
		}
	})
	from, spent := now(), cpuOf(f.in.cmd.Process.Pid)
	text, err := f.in.cli("load", "mixed", "--rate", strconv.Itoa(f.spec.rate), "--callers", "64",
		"--connections", "4", "--duration", f.spec.long.String(), "--warm-up", "1s",
		"--patience", waitLimit.String(), "--node", "/honest", "--timeout", waitLimit.String(), "-o", "json")
	m.cores = float64(cpuOf(f.in.cmd.Process.Pid)-spent) / float64(now()-from)
	after := f.metrics()
	close(over)
	watching.Wait()
	if err != nil {
		f.t.Fatalf("%s: honest clients: %v: %s\n%s", what, err, text, f.in.log())
	}
	var result struct {
		Operations uint64            `json:"operations"`
		Errors     map[string]uint64 `json:"errors"`
		Own        struct {
			Late float64 `json:"late_p99_us"`
		} `json:"own_cost"`
		Series []struct {
			P50  float64 `json:"p50_us"`
			P99  float64 `json:"p99_us"`
			P999 float64 `json:"p999_us"`
		} `json:"series"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil || len(result.Series) == 0 {
		f.t.Fatalf("%s: %v: %s", what, err, text)
	}
	us := func(v float64) time.Duration { return time.Duration(v * float64(time.Microsecond)) }
	m.p50, m.p99, m.p999, m.late, m.operations = us(result.Series[0].P50), us(result.Series[0].P99),
		us(result.Series[0].P999), us(result.Own.Late), result.Operations
	for _, n := range result.Errors {
		m.errors += n
	}
	m.resident, m.connections = most.Load(), after[`signalbox_connections{listener="plain"}`]
	for name, n := range after {
		if reason, ok := strings.CutPrefix(name, "signalbox_connections_closed_total{reason="); ok && n > before[name] {
			m.cut[strings.Trim(reason, "\"}")] = n - before[name]
		}
		if strings.HasPrefix(name, "signalbox_requests_total{") && strings.Contains(name, "OVERLOADED") {
			m.quotaOverloaded += n - before[name]
		}
	}
	m.refused = after["signalbox_connections_rejected_total"] - before["signalbox_connections_rejected_total"]
	m.memoryRefusals = after["signalbox_memory_refusals_total"] - before["signalbox_memory_refusals_total"]
	if hostileActor != nil {
		_ = hostileActor.cmd.Process.Signal(syscall.SIGTERM)
		<-hostileActor.ended
		_ = hostileActor.cmd.Wait()
		r, ok := hostileActor.has("came")
		if !ok {
			f.t.Fatalf("%s: hostile clients ended without a word: %s", what, &hostileActor.errors)
		}
		m.came = r.Session
		await.True(f.t, "hostile connections to be gone", func() bool {
			return f.metrics()[`signalbox_connections{listener="plain"}`] <= 64
		})
	}
	return m
}

// startHostile starts hostile clients, and waits until each has come once.
func (f *flood) startHostile(kinds map[string]int) *actor {
	f.t.Helper()
	text, err := json.Marshal(hostileSpec{Server: f.in.listen, Node: "/hostile", Kinds: kinds})
	if err != nil {
		f.t.Fatal(err)
	}
	a := startLowPriorityActor(f.t, "hostile", hostileEnv+"="+string(text))
	f.t.Cleanup(func() {
		if a.cmd.ProcessState == nil {
			_ = a.cmd.Process.Kill()
			<-a.ended
			_ = a.cmd.Wait()
		}
	})
	a.until(f.t, "hostile clients to come", func() bool {
		if r, ok := a.has("failed"); ok {
			f.t.Fatal(r.Text)
		}
		_, ok := a.has("ready")
		return ok
	})
	return a
}

// resident is a process's memory.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// cpuOf is the time that a process has spent on processors.
func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100)
}

func floodReport(spec floodSpec, list []measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Floods beside honest clients\n\nOne instance with `--max-memory %s` on %d CPUs. Honest clients make %d operations a second (six in ten read, three lock and unlock, one takes units or waits in a queue), "+
		"at set times, so that what waits counts; %d sessions only live beside them, on 8 connections; then come %d hostile connections at once, from %d addresses, into a node with quotas (`%s`). "+
		"Hostile processes run on one of the processors, on what the others leave of it. Latencies count from the moment at which an operation should have begun.\n\n", spec.memory, runtime.NumCPU(), spec.rate, spec.sessions, spec.hostile, 1+(spec.hostile-1)/hostilePerAddress, strings.Join(hostileQuotas, " "))
	b.WriteString("| beside honest clients | p50 | p99 | p99.9 | p99 to quiet | their own timers late, p99 | errors | memory at most | server's cores | hostile connections made | cut, and why |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, m := range list {
		var cut []string
		for why, n := range m.cut {
			cut = append(cut, fmt.Sprintf("%d %s", n, strings.ReplaceAll(why, "_", " ")))
		}
		if m.refused > 0 {
			cut = append(cut, fmt.Sprintf("%d surplus", m.refused))
		}
		slices.Sort(cut)
		if m.quotaOverloaded > 0 {
			cut = append(cut, fmt.Sprintf("%d requests OVERLOADED", m.quotaOverloaded))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f | %s | %d | %d MiB | %.2f | %d | %s |\n", m.what, short(m.p50),
			short(m.p99), short(m.p999), float64(m.p99)/float64(list[0].p99), short(m.late), m.errors, m.resident>>20,
			m.cores, m.came, strings.Join(cut, ", "))
	}
	return b.String()
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

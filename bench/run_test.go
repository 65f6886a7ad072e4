package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// testSettings are systems under test: this project's server inside the test's binary, and what is
// physically possible.
func testSettings(t *testing.T, only ...string) Settings {
	t.Helper()
	s := TinySettings()
	s.Dir, s.Only = t.TempDir(), only
	s.IdleDelay, s.IdleLength = 20*time.Millisecond, 150*time.Millisecond
	s.Systems = []System{&SignalboxSystem{Binary: self(t)}, &RaftLimit{Binary: self(t)}, &EchoLimit{Binary: self(t)}}
	return s
}

// TestRun compares this project with the bare ones, all of it but what needs other systems, and
// looks at what must be in the report. It says nothing about speed.
func TestRun(t *testing.T) {
	form.SkipUntil(t, form.Full, "every workload of every system")
	t.Parallel()
	s := testSettings(t)
	var log bytes.Buffer
	s.Log = &log
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Errorf("%+v\n%s", f, log.String())
	}
	for _, w := range []string{"pairs-1024", "pairs-1024-p99", "rate-1000-p99", "rate-40000-kept", "pairs-256",
		"pair-1", "handoffs-64", "strict-256", "relaxed-256", "watch-5000-p99",
		"watch-20000-p99", "each-5000-p99", "each-20000-p99", "starts", "three-1024", "three-1024-p99",
		"three-pair-1", "three-handoffs-64", "three-strict-256", "empty-memory"} {
		if f := r.Measurements.find(w, Signalbox); f == nil || !(StatOf(f.Values).Median > 0) {
			t.Errorf("no %s of signalbox: %v", w, f)
		}
	}
	for _, w := range []string{"idle-own-memory", "idle-own-cpu", "idle-shared-memory"} {
		if r.Measurements.find(w, Signalbox) == nil {
			t.Errorf("no %s of signalbox", w)
		}
	}
	for _, f := range []*Measurement{r.Measurements.find("proposal-1", Dragonboat),
		r.Measurements.find("echo-256", Echo)} {
		if f == nil || !(f.Values[0] > 0) {
			t.Errorf("no figure of the bare ones: %v", f)
		}
	}
	if r.Measurements.find("idle-own-cpu", Echo) == nil {
		t.Error("the bare echo was not idle")
	}
	var missing []string
	for _, m := range r.Missing {
		missing = append(missing, m.Subject)
	}
	if !slices.Equal(missing, []string{Etcd, ZooKeeper, GoRedis, Rueidis}) {
		t.Errorf("named as missing: %v", missing)
	}
	if left, _ := os.ReadDir(s.Dir); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
	if r.Machine.Cores == 0 || r.Machine.Fsync == 0 || r.Took == 0 {
		t.Errorf("where it was measured is not told: %+v", r.Machine)
	}
}

// nothing is a target that does what some benchmarks ask for, at once.
type nothing struct{}

func (nothing) Name() string                               { return "nothing" }
func (nothing) Code(error) string                          { return "other" }
func (nothing) Open(context.Context) (loadgen.Conn, error) { return nothingConn{}, nil }

type nothingConn struct{}

func (nothingConn) Session(context.Context) (loadgen.Session, error) { return nothingSession{}, nil }
func (nothingConn) Close() error                                     { return nil }

type nothingSession struct{}

func (nothingSession) Close(context.Context) error                              { return nil }
func (nothingSession) Release(context.Context) error                            { return nil }
func (s nothingSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer       { return s }
func (s nothingSession) Acquire(context.Context, string) (loadgen.Lease, error) { return s, nil }
func (s nothingSession) Reader(bool) loadgen.Reader                             { return s }
func (nothingSession) Read(context.Context, string) error                       { return nil }
func (nothingSession) Create(context.Context, string, []byte) error             { return nil }
func (nothingSession) Delete(context.Context, string) error                     { return nil }
func (nothingSession) Write(context.Context, string, []byte) error              { return nil }

// stub is a system that answers as it is told to.
type stub struct {
	name  string
	bin   string
	plan  Plan
	fails error
}

func (s *stub) Name() string                            { return s.name }
func (s *stub) Version(context.Context) (string, error) { return "a stub", s.fails }

func (s *stub) Start(ctx context.Context, dir string) (*Server, error) {
	addr, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := StartProcess(ctx, dir, func(ctx context.Context) error { return Dial(ctx, addr) }, s.bin, "limit", "echo", "--listen", addr)
	if err != nil {
		return nil, err
	}
	return NewServer(p, func(Workload) (Plan, error) { return s.plan, nil }), nil
}

// ownOnly is a stub whose sessions share no connections. It counts its servers.
type ownOnly struct {
	stub
	starts int
}

func (s *ownOnly) Start(ctx context.Context, dir string) (*Server, error) {
	s.starts++
	server, err := s.stub.Start(ctx, dir)
	if err == nil {
		server.Plan = func(w Workload) (Plan, error) {
			if w == IdleShared {
				return Plan{}, ErrUnsupported
			}
			return s.plan, nil
		}
	}
	return server, err
}

// TestIdleStartsWhatItMeasures: no server is started for work that a system does not do.
func TestIdleStartsWhatItMeasures(t *testing.T) {
	t.Parallel()
	x := &ownOnly{stub: stub{name: Etcd, bin: self(t), plan: Plan{Target: nothing{}, Connections: 1}}}
	s := testSettings(t, "idle")
	s.Systems = []System{x}
	r, err := Run(t.Context(), s)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	if x.starts != 1 || r.Measurements.find("idle-own-memory", Etcd) == nil {
		t.Errorf("%d servers were started, want 1: %v", x.starts, r.Measurements)
	}
}

// TestLengthOfIdle: with the length of quick rounds, idle servers get the time that quick rounds
// give them, and with the default length that of all rounds.
func TestLengthOfIdle(t *testing.T) {
	for _, want := range []Settings{QuickSettings(), DefaultSettings()} {
		s := DefaultSettings()
		s.setLength(want.Length)
		if s.Length != want.Length || s.IdleLength != want.IdleLength || s.IdleDelay != want.IdleDelay {
			t.Errorf("a length of %v gives %v after %v, want %v after %v", s.Length, s.IdleLength, s.IdleDelay,
				want.IdleLength, want.IdleDelay)
		}
	}
}

// silentTarget is a target that never answers, or answers nothing but errors.
type silentTarget struct {
	nothing
	err error
}

func (m *silentTarget) Open(context.Context) (loadgen.Conn, error) { return &silentConn{m}, nil }

type silentConn struct{ m *silentTarget }

func (c *silentConn) Session(context.Context) (loadgen.Session, error) {
	return &silentSession{c.m}, nil
}
func (c *silentConn) Close() error { return nil }

type silentSession struct{ m *silentTarget }

func (s *silentSession) Close(context.Context) error                      { return nil }
func (s *silentSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer { return s }
func (s *silentSession) Acquire(ctx context.Context, _ string) (loadgen.Lease, error) {
	if s.m.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, s.m.err
}

// TestAServerThatAnswersNothingFails: a rate of nothing, or of errors, is no figure.
func TestAServerThatAnswersNothingFails(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]loadgen.Target{"errors": &silentTarget{err: errors.New("no")}, "silence": &silentTarget{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "silence" {
				form.SkipUntil(t, form.Full, "waits out the patience of a load")
			}
			s := TinySettings()
			s.Dir, s.Only = t.TempDir(), []string{"pairs"}
			s.Systems = []System{&stub{name: Etcd, bin: self(t), plan: Plan{Target: target, Connections: 1}}}
			r, err := Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Err(); err == nil || !strings.Contains(err.Error(), "pairs of etcd in round 1") ||
				!strings.Contains(err.Error(), "answered nothing") {
				t.Errorf("it says %v", err)
			}
			if len(r.Measurements) > 0 {
				t.Errorf("figures of a server that did nothing: %v", r.Measurements)
			}
		})
	}
}

// slowTarget takes a while for each lock.
type slowTarget struct{ nothing }

func (t *slowTarget) Open(context.Context) (loadgen.Conn, error) { return slowConn{}, nil }

type slowConn struct{}

func (slowConn) Session(context.Context) (loadgen.Session, error) { return slowSession{}, nil }
func (slowConn) Close() error                                     { return nil }

type slowSession struct{}

func (slowSession) Close(context.Context) error                        { return nil }
func (slowSession) Release(context.Context) error                      { return nil }
func (s slowSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer { return s }
func (s slowSession) Acquire(ctx context.Context, _ string) (loadgen.Lease, error) {
	return s, pause(ctx, 20*time.Millisecond)
}

// TestASystemThatFallsBehind: its latencies are no figures, it is not asked for more, and nothing
// has failed.
func TestASystemThatFallsBehind(t *testing.T) {
	t.Parallel()
	s := TinySettings()
	s.Dir, s.Only = t.TempDir(), []string{"rates"}
	s.Systems = []System{&stub{name: Etcd, bin: self(t), plan: Plan{Target: &slowTarget{}, Connections: 1}}}
	r, err := Run(t.Context(), s)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	// 8 callers of 20 ms each do 400 a second at most; 20,000 and 40,000 stand for 1,000 and 2,000.
	for _, rate := range []int{20_000, 40_000} {
		if f := r.Measurements.find(rateMetric(rate, "kept"), Etcd); f == nil || !(f.Values[0] < hopeless) {
			t.Errorf("at %d/s it reaches %v", rate, f)
		}
	}
	if f := r.Measurements.find(rateMetric(40_000, "p99"), Etcd); f != nil {
		t.Errorf("it was asked for more than it can do: %v", f)
	}
	if table := r.table(subjects, func(m Metric) bool { return m.ID == rateMetric(40_000, "p99") },
		false); !strings.Contains(table, "| falls behind |") {
		t.Errorf("the table does not say so:\n%s", table)
	}
}

// TestOrderTurnsAround: in every other round the systems come in the other order.
func TestOrderTurnsAround(t *testing.T) {
	t.Parallel()
	s := TinySettings()
	s.Rounds, s.Dir, s.Only = 2, t.TempDir(), []string{"reads"}
	var log bytes.Buffer
	s.Log = &log
	for _, name := range []string{Etcd, ZooKeeper} {
		s.Systems = append(s.Systems, &stub{name: name, bin: self(t), plan: Plan{Target: nothing{}, Connections: 1}})
	}
	s.Systems = append(s.Systems, &stub{name: Rueidis, fails: errors.New("it is not installed; install it")})
	r, err := Run(t.Context(), s)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	var order []string
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "strict-256" {
			order = append(order, f[1]+f[3])
		}
	}
	if want := []string{"1etcd", "1ZooKeeper", "2ZooKeeper", "2etcd"}; !slices.Equal(order, want) {
		t.Errorf("the order was %v, expected %v", order, want)
	}
	if !slices.Contains(r.Missing, Missing{Rueidis, "it is not installed; install it"}) {
		t.Errorf("a system that is not installed is not named: %v", r.Missing)
	}
}

// TestTurns: the systems of a benchmark that takes turns are measured one after the other, each
// some times in a round, and the median is the round's value. One that fails has no more turns.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := TinySettings()
	s.Rounds, s.Turns, s.Dir, s.Only = 2, 3, t.TempDir(), []string{"own"}
	s.Length *= 3 // each turn is long enough for a machine that is busy
	var log bytes.Buffer
	s.Log = &log
	fine := stub{name: Signalbox, bin: self(t), plan: Plan{Target: nothing{}, Connections: 1}}
	fails := fine
	fails.name = GoRedis
	s.Systems = []System{&fine, &lastStarts{stub: fails, left: 4}}
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) != 1 || r.Failures[0].Subject != GoRedis || r.Failures[0].Round != 1 {
		t.Fatalf("it says that these failed: %v", r.Failures)
	}
	var order []string
	values := map[string][]string{}
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); len(f) > 3 && (f[2] == "pairs-256" || strings.Contains(line, "failed")) {
			order = append(order, f[1]+f[3])
			values[f[1]+f[3]] = append(values[f[1]+f[3]], f[len(f)-1])
		}
	}
	if want := []string{"1signalbox", "1Redis,", "1Redis,", "1signalbox", "1signalbox", "1Redis,",
		"2Redis,", "2signalbox", "2signalbox", "2Redis,", "2signalbox"}; !slices.Equal(order, want) {
		t.Errorf("the order was %v, expected %v", order, want)
	}
	for round, key := range []string{"1signalbox", "2signalbox"} {
		median := amount(r.Measurements.find("pairs-256", Signalbox).Values[round], PerSecond)
		number := func(text string) float64 {
			v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		slices.SortFunc(values[key], func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		if median != values[key][1] {
			t.Errorf("round %d has %s of %v", round+1, median, values[key])
		}
	}
}

// lastStarts is a stub that starts some times and then never again.
type lastStarts struct {
	stub
	left int
}

func (s *lastStarts) Start(ctx context.Context, dir string) (*Server, error) {
	if s.left--; s.left < 0 {
		return nil, errors.New("it does not start")
	}
	return s.stub.Start(ctx, dir)
}

func TestStartProcessShowsTheLastOutput(t *testing.T) {
	t.Parallel()
	never := func(context.Context) error { return errors.New("not yet") }
	_, err := StartProcess(t.Context(), t.TempDir(), never, self(t), "fail")
	if err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("it says %v, not the server's last words", err)
	}
	if _, err := StartProcess(t.Context(), t.TempDir(), never, filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestUsageOfAProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not tell")
	}
	p, err := (&stub{bin: self(t)}).Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	u, err := p.Process().Usage()
	if err != nil || u.Resident < 1<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	p.Stop()
	if _, err := p.Process().Usage(); err == nil {
		t.Error("a process that has ended uses something")
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, err := sample(1).Save(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "adopt REPORT"},
		{"measure", 2, `unknown verb "measure"`},
		{"run -only nonsense", 2, `there is no benchmark "nonsense"; there are: pairs own`},
		{"adopt", 1, "give one report"},
		{"values " + name, 0, "system=etcd 1 8800 /s"},
		{"adopt " + name, 1, "COMPARISON.md"},
	} {
		var out, errs bytes.Buffer
		code := Command(t.Context(), strings.Fields(c.args), &out, &errs, func(string) []System { return nil })
		if text := out.String() + errs.String(); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: %d, %s", c.args, code, text)
		}
	}
}

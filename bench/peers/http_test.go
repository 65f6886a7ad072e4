// What do locks and limits by HTTP cost, beside etcd's gateway and a script of Redis?

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
)

// The defaults show that all works, and figures of such a run mean nothing; make bench-http has
// others.
var (
	httpOut     = flag.String("out", "", "file that the report of TestHTTP is written to")
	httpRounds  = flag.Int("rounds", 1, "of each figure that has another beside it")
	httpLength  = flag.Duration("length", 100*time.Millisecond, "of each measurement")
	httpPolls   = flag.Int("polls", 10, "long polls of one name")
	httpStreams = flag.Int("streams", 10, "streams that are held")
	httpHeld    = flag.Duration("held", time.Second, "how long streams are held; a leader is killed in the middle")
)

// httpCallers is the number of connections.
const httpCallers = 64

// httpRow is a figure, by round.
type httpRow struct {
	what, beside, bar string // beside is what theirs are of
	met               func(ours, theirs float64) bool
	ours, theirs      []float64 // theirs is empty if there is nothing beside
}

// times is the bar of a figure: how many times the one beside it.
func times(what, beside string, bar float64) *httpRow {
	return &httpRow{what: what, beside: beside, bar: fmt.Sprintf(">= %g x", bar),
		met: func(ours, theirs float64) bool { return ours >= bar*theirs }}
}

// atMost is the bar of what stands alone.
func atMost(what string, bar float64) *httpRow {
	text := fmt.Sprintf("<= %g", bar)
	if bar == 0 {
		text = "none"
	}
	return &httpRow{what: what, bar: text, met: func(ours, _ float64) bool { return ours <= bar }}
}

// What is measured, in the order of the table.
var (
	httpPairs = times("pairs/s, 64 connections", "etcd", 3)
	httpP99   = &httpRow{what: "p99 of a pair at 1,000/s, ms", beside: "etcd", bar: "<= 0.5 x, <= 5",
		met: func(ours, theirs float64) bool { return ours <= theirs/2 && ours <= 5 }}
	httpP50 = &httpRow{what: "p50 of one caller's pair, ms", beside: "the SDK", bar: "<= + 0.5",
		met: func(ours, theirs float64) bool { return ours <= theirs+0.5 }}
	httpCold   = times("cold starts/s, 64 callers", "etcd", 1)
	httpLimits = times("decisions of a limit/s, 64 connections", "Redis", 0.8)
	httpSeen   = atMost("long polls of one name see a change, p99, ms", 100)
	httpMemory = atMost("memory of a held stream, KiB", 32)
	httpCPU    = atMost("held streams: % of a core", 12)
	httpTop    = atMost("held streams: highest memory of the gateway, MiB", 400)
	httpLost   = atMost("held streams: lost", 0)
	httpLate   = atMost("held streams: events after the end of a belief", 0)
)

// figures are those of a run.
type figures struct{ *testing.T }

// note adds a round to a row.
func (f figures) note(r *httpRow, ours float64, theirs ...float64) {
	r.ours, r.theirs = append(r.ours, ours), append(r.theirs, theirs...)
	f.Logf("%s: %.4g %s %.4g", r.what, ours, r.beside, theirs)
}

// turns measures both sides of a row, ours first in every second round.
func (f figures) turns(r *httpRow, round int, ours, theirs func() float64) {
	if round%2 == 0 {
		y := theirs()
		f.note(r, ours(), y)
	} else {
		f.note(r, ours(), theirs())
	}
}

func number(v float64) string {
	if v >= 1000 {
		return loadgen.Thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func httpTable() string {
	var b strings.Builder
	b.WriteString("| | signalbox | beside | ratio | bar | |\n|---|---|---|---|---|---|\n")
	for _, r := range []*httpRow{httpPairs, httpP99, httpP50, httpCold, httpLimits, httpSeen, httpMemory, httpCPU,
		httpTop, httpLost, httpLate} {
		ours, theirs, beside, ratio := bench.StatOf(r.ours).Median, 0.0, "", ""
		if len(r.theirs) > 0 {
			rounds := make([]float64, len(r.ours))
			for i := range rounds {
				rounds[i] = r.ours[i] / r.theirs[i]
			}
			median := bench.StatOf(rounds).Median
			beside, ratio, theirs = r.beside+" "+number(bench.StatOf(r.theirs).Median), number(median), ours/median
		}
		verdict := "missed"
		if r.met(ours, theirs) {
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.what, number(ours), beside, ratio, r.bar, verdict)
	}
	return b.String()
}

// TestHTTP measures, in turns, and writes a report.
func TestHTTP(t *testing.T) {
	began, load, f := time.Now(), machineLoad(), figures{t}
	ours := &bench.SignalboxSystem{Binary: filepath.Join("..", "..", "bin", "signalbox")}
	theirs, redis := &etcd{filepath.Join("..", "..", "bin", "etcd")}, &redisServer{client: bench.Rueidis}
	var versions []string
	for _, s := range []bench.System{ours, theirs, redis} {
		v, err := s.Version(t.Context())
		if err != nil {
			t.Skip(err)
		}
		v, _, _ = strings.Cut(v, ",")
		versions = append(versions, s.Name()+": "+strings.TrimSuffix(v, "; default settings; its own SDK"))
	}
	f.sideBySide(ours.Binary, theirs.binary, redis)
	f.streams(ours)
	machine, err := bench.ThisMachine(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(httpText, began.Format("2006-01-02 15:04"), *httpRounds, *httpLength, *httpPolls, *httpStreams,
		*httpHeld, strings.Join(versions, "; "), machine, time.Since(began).Minutes(), load, machineLoad()) + httpTable()
	t.Log(text)
	if *httpOut != "" {
		if err := os.WriteFile(*httpOut, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// httpText describes the run.
const httpText = `# http of %s

Gateways inside of servers with one copy and their defaults, and Redis without a disk, in %d rounds of %v for each
figure, in turns; medians, and ratios round by round. A pair is acquire and release on a keep-alive connection with
a session of its own. Cold is a TLS connection, a session, a lock, and the session's end. A decision of a limit is a
request; beside it EVALSHA on as many connections. %d callers poll one name. %d streams are held at a gateway of its
own before three instances, each with a session of 15 s, for %v; in the middle the instance that leads most is
killed. Their memory is resident memory after a forced collection.

%s; %s; %.1f minutes; load average %s before, %s after.

`

func machineLoad() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return cmp.Or(first, "unknown")
}

// process starts a program, and waits until a page is there.
func (f figures) process(page, program string, args ...string) *bench.Process {
	f.Helper()
	path, err := filepath.Abs(program)
	if err != nil {
		f.Fatal(err)
	}
	ready := func(ctx context.Context) error { return bench.Get(ctx, page) }
	p, err := bench.StartProcess(f.Context(), f.TempDir(), ready, path, args...)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Stop)
	return p
}

// sideBySide measures what etcd and Redis have beside it.
func (f figures) sideBySide(binary, etcdBinary string, redis *redisServer) {
	addr, err := bench.FreeAddresses(11)
	if err != nil {
		f.Fatal(err)
	}
	authority, dir := certstest.New(f), f.TempDir()
	cert, key := authority.Issue(f, dir, "server", certstest.Host("127.0.0.1"))
	trust := &tls.Config{RootCAs: authority.Pool(), ServerName: "127.0.0.1"}
	for i, tls := range [][]string{nil, {"--http-tls-cert", cert, "--http-tls-key", key}} {
		f.process("http://"+addr[3*i+2]+"/readyz", binary, append([]string{"serve", "--data", "data", "--log-level", "warn",
			"--listen", addr[3*i], "--raft", addr[3*i+1], "--admin", addr[3*i+2], "--http", addr[6+i]}, tls...)...)
	}
	open, peer := "http://"+addr[8], "http://"+addr[10]
	f.process(open+"/health", etcdBinary, "--data-dir", "data", "--log-level", "error", "--cert-file", cert,
		"--key-file", key, "--listen-client-urls", open+",https://"+addr[9], "--advertise-client-urls", open,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	ours, theirs := &gateway{addr: addr[6]}, &gateway{addr: addr[8], etcd: true}
	sdk := &loadgen.Signalbox{Client: client.Config{Endpoints: addr[:1]}}
	pairs := func(target loadgen.Target, callers int, rate float64, read func(*loadgen.Result) float64) func() float64 {
		return func() float64 {
			scenario, err := loadgen.Find("lock-pairs")
			if err != nil {
				f.Fatal(err)
			}
			r, err := loadgen.Run(f.Context(), loadgen.Config{Scenario: scenario, Target: target, Callers: callers,
				Connections: loadgen.Each, Rate: rate, Duration: *httpLength, WarmUp: *httpLength / 4})
			if err != nil {
				f.Fatal(err)
			}
			if r.ErrorCount() > r.Operations/100 && rate == 0 {
				f.Errorf("%s: %v beside %d pairs", target.Name(), r.Errors, r.Operations)
			}
			return read(r)
		}
	}
	perSecond := func(r *loadgen.Result) float64 { return r.Rate }
	at := func(percent float64) func(*loadgen.Result) float64 {
		return func(r *loadgen.Result) float64 { return r.Series[0].At(percent).Seconds() * 1e3 }
	}
	var colds atomic.Int64
	cold := func(g *gateway) func() float64 {
		return func() float64 {
			return f.rate(func() (func() error, func() error) {
				none := func() error { return nil }
				return func() error { return g.cold(fmt.Sprint("cold/", colds.Add(1))) }, none
			})
		}
	}
	coldOurs := cold(&gateway{addr: addr[7], secure: trust})
	coldTheirs := cold(&gateway{addr: addr[9], secure: trust, etcd: true})
	limit, script := f.limits(addr[0], addr[6], redis)
	poll := f.polls(addr[6], addr[2])
	for round := range *httpRounds {
		f.turns(httpPairs, round, pairs(ours, httpCallers, 0, perSecond), pairs(theirs, httpCallers, 0, perSecond))
		f.turns(httpP99, round, pairs(ours, httpCallers, 1000, at(99)), pairs(theirs, httpCallers, 1000, at(99)))
		f.turns(httpP50, round, pairs(ours, 1, 0, at(50)), pairs(sdk, 1, 0, at(50)))
		f.turns(httpCold, round, coldOurs, coldTheirs)
		f.turns(httpLimits, round, func() float64 { return f.rate(limit) }, func() float64 { return f.rate(script) })
		f.note(httpSeen, poll(round))
	}
	for _, r := range []*httpRow{httpPairs, httpP99, httpP50, httpCold, httpLimits, httpSeen} {
		if slices.Min(slices.Concat(r.ours, r.theirs)) <= 0 {
			f.Errorf("no figure of %s: %v, %v", r.what, r.ours, r.theirs)
		}
	}
}

// work is one step of a caller, which repeats it, and its end.
type work = func() (do, end func() error)

// rate is how often a second 64 callers do their work, after a warm-up.
func (f figures) rate(open work) float64 {
	var n atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range httpCallers {
		do, end := open()
		all.Go(func() {
			defer end()
			for !stop.Load() {
				if err := do(); err != nil {
					f.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	time.Sleep(*httpLength / 4)
	first, began := n.Load(), time.Now()
	time.Sleep(*httpLength)
	stop.Store(true)
	all.Wait() // requests under way count with their time
	return float64(n.Load()-first) / time.Since(began).Seconds()
}

// limits makes a limit that nothing reaches. The work of a caller is a decision, ours and that of a
// script of Redis.
func (f figures) limits(instance, gateway string, redis *redisServer) (ours, theirs work) {
	const plenty = 1_000_000_000
	s, err := client.OpenSession(f.Context(), client.Config{Endpoints: []string{instance}}, client.DefaultNode)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Client().Close() })
	limit := ratelimit.Config{Rate: ratelimit.PerSecond(plenty)}
	if _, err := ratelimit.Create(f.Context(), s, "api", limit); err != nil {
		f.Fatal(err)
	}
	p, addr, err := redis.start(f.Context(), f.TempDir(), "--appendonly", "no")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Stop)
	dial := func(addr string) *caller {
		c, err := dialCaller(addr, nil, "")
		if err != nil {
			f.Fatal(err)
		}
		return c
	}
	first := dial(addr)
	defer first.Close()
	sha, err := first.redisAnswer("SCRIPT", "LOAD", gcraText)
	if err != nil {
		f.Fatal(err)
	}
	unit, whole := strconv.FormatFloat(1e6/float64(plenty), 'f', -1, 64), "1000000"
	ours = func() (do, end func() error) {
		c := dial(gateway)
		return func() error { return c.ask("POST", "/v1/limits/api?wait=10s", "", nil) }, c.Close
	}
	theirs = func() (do, end func() error) {
		c := dial(addr)
		return func() error {
			got, err := c.redisAnswer("EVALSHA", sha, "1", "limit/api", unit, whole)
			if err == nil && got != "1" {
				err = fmt.Errorf("the script answers %q", got)
			}
			return err
		}, c.Close
	}
	return ours, theirs
}

// polls gives a function that changes a configuration while callers poll it: the p99 of the time
// from the change's request to the answer of each of them.
func (f figures) polls(addr, admin string) func(round int) float64 {
	writer, err := dialCaller(addr, nil, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = writer.Close() })
	set := func(value string) (version uint64) {
		var got struct{ Version uint64 }
		if err := writer.ask("PUT", "/v1/config/polled", value, &got); err != nil {
			f.Fatal(err)
		}
		return got.Version
	}
	version := set("first")
	return func(round int) float64 {
		took := make([]float64, *httpPolls)
		var began time.Time
		var all sync.WaitGroup
		for i := range took {
			all.Go(func() {
				known, status := fmt.Sprintf("If-None-Match: \"%d\"\r\n", version), ""
				c, err := dialCaller(addr, nil, "")
				if err == nil {
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(2 * answerTimeout))
					err = c.send("GET", "/v1/config/polled?wait=1m", known, "")
				}
				if err == nil {
					status, _, err = c.receive()
				}
				if err != nil || status != "200 OK" {
					f.Errorf("a long poll is answered %q, %v", status, err)
					return
				}
				took[i] = time.Since(began).Seconds() * 1e3
			})
		}
		held := fmt.Sprintf("signalbox_http_held_requests %d\n", len(took))
		ctx, cancel := context.WithTimeout(f.Context(), answerTimeout)
		defer cancel()
		err := bench.Poll(ctx, 10*time.Millisecond, func(ctx context.Context) error {
			page, err := loadgen.HTTPGet(ctx, "http://"+admin+"/metrics")
			if err == nil && !strings.Contains(string(page), held) {
				err = fmt.Errorf("not all of %d long polls are held", len(took))
			}
			return err
		})
		if err != nil {
			f.Fatal(err)
		}
		began = time.Now()
		next := set(fmt.Sprint("round ", round))
		all.Wait()
		version = next
		slices.Sort(took)
		return took[len(took)*99/100]
	}
}

// streams holds streams at a gateway before three instances while the one that leads most is
// killed.
func (f figures) streams(system *bench.SignalboxSystem) {
	cluster, err := system.StartCluster(f.Context(), f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(cluster.Stop)
	plan, err := cluster.Plan(bench.LockPairs)
	if err != nil {
		f.Fatal(err)
	}
	addr, err := bench.FreeAddresses(2)
	if err != nil {
		f.Fatal(err)
	}
	p := f.process("http://"+addr[0]+"/v1/ready", system.Binary, "http", "--listen", addr[0], "--admin", addr[1],
		"--endpoints", strings.Join(plan.Target.(*loadgen.Signalbox).Client.Endpoints, ","))
	p.Collect = bench.CollectGo(addr[1])
	usage := func(collect bool) bench.Usage {
		if collect {
			if err := p.Collect(f.Context()); err != nil {
				f.Fatal(err)
			}
		}
		u, err := p.Usage()
		if err != nil {
			f.Fatal(err)
		}
		return u
	}
	empty, began := usage(true), time.Now()
	streams := make([]*heldStream, *httpStreams)
	var lost atomic.Int64
	var ending atomic.Bool
	var reading sync.WaitGroup
	err = loadgen.Parallel(f.Context(), len(streams), func(_ context.Context, i int) (err error) {
		s, err := openStream(addr[0], fmt.Sprint("held/", i))
		if err != nil {
			return err
		}
		streams[i] = s
		reading.Go(func() {
			for {
				if err := s.next(); err != nil {
					if !ending.Load() && lost.Add(1) < 10 {
						f.Logf("stream %d ends with %v", i, err)
					}
					return
				}
			}
		})
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Logf("%d streams are held after %v", len(streams), time.Since(began))
	first, start, highest := usage(false), time.Now(), uint64(0)
	hold := func(until time.Duration) {
		for time.Since(start) < until {
			time.Sleep(min(time.Second, *httpHeld/10))
			highest = max(highest, usage(false).Resident)
		}
	}
	hold(*httpHeld / 2)
	leader, err := cluster.Leader(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	cluster.Kill(leader)
	if err := cluster.Restart(f.Context(), leader); err != nil {
		f.Fatal(err)
	}
	hold(*httpHeld)
	last, held := usage(false), time.Since(start)
	full := usage(true)
	ending.Store(true)
	for _, s := range streams {
		_ = s.Close()
	}
	reading.Wait()
	late := 0
	for _, s := range streams {
		if late += s.late; s.until.Before(start.Add(held)) {
			late++
		}
	}
	f.note(httpMemory, (float64(full.Resident)-float64(empty.Resident))/1024/float64(len(streams)))
	f.note(httpCPU, 100*(last.CPU-first.CPU).Seconds()/held.Seconds())
	f.note(httpTop, float64(highest)/(1<<20))
	f.note(httpLost, float64(lost.Load()))
	f.note(httpLate, float64(late))
}

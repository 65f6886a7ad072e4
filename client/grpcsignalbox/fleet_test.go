package grpcsignalbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/grpcsignalbox"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// fleet is a cluster of three, backends, and callers that never rest, all but the callers in
// processes of their own.
type fleet struct {
	t        *testing.T
	bin, dir string
	servers  []*process
	listen   []string
	raft     []string
	backends []*process
	callers  []*caller
	lists    map[string]*discovery.Endpoints // by kind, of a client of the test's own
	rest     time.Duration                   // between two calls of a caller

	calls atomic.Int64
	over  context.Context
	done  sync.WaitGroup
}

// caller makes calls of a kind, one after the other, with a client of its own.
type caller struct {
	kind string
	call func(ctx context.Context) (addr string, err error)

	mu     sync.Mutex
	errors []error
	last   map[string]int64 // the number of the latest good call of an address
}

func (c *caller) take() (errs []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs, c.errors = c.errors, nil
	return errs
}

func (f *fleet) endpoints() string { return strings.Join(f.listen, ",") }

func (f *fleet) env() []string { return []string{"SIGNALBOX_ENDPOINTS=" + f.endpoints()} }

func (f *fleet) startServer(i int) {
	f.t.Helper()
	f.servers[i] = start(f.t, f.bin, nil, "serve", "--data", filepath.Join(f.dir, fmt.Sprint(i)), "--instance", fmt.Sprint("i", i),
		"--listen", f.listen[i], "--raft", f.raft[i], "--admin", "off", "--join-token-file", filepath.Join(f.dir, "token"),
		"--replication-factor", "3", "--peer", strings.Join(f.raft, ","))
}

// command is the command line's output.
func (f *fleet) command(args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), f.bin, args...)
	cmd.Env = append(os.Environ(), f.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (f *fleet) awaitCluster() {
	f.t.Helper()
	await.True(f.t, "three instances", func() bool {
		cmd := exec.CommandContext(f.t.Context(), f.bin, "cluster", "status", "-o", "json", "--timeout", "5s")
		cmd.Env = append(os.Environ(), f.env()...)
		out, err := cmd.Output()
		return err == nil && strings.Count(string(out), `"current": "Online"`) == len(f.listen)
	})
	f.command("cluster", "plan", "--until-done", "--timeout", "90s")
}

func (f *fleet) startBackend(kind, addr, zone string) *process {
	f.t.Helper()
	p := start(f.t, os.Args[0], append(f.env(), backendEnv+"="+kind+" "+addr+" "+zone))
	p.kind, p.addr, p.zone = kind, addr, zone
	return p
}

// addresses of backends of a kind, sorted.
func (f *fleet) addresses(kind string) (list []string) {
	for _, p := range f.backends {
		if p.kind == kind {
			list = append(list, p.addr)
		}
	}
	slices.Sort(list)
	return list
}

// awaitLists waits until the lists are live, and have exactly the backends that run, ready.
func (f *fleet) awaitLists() {
	f.t.Helper()
	limit := time.NewTimer(await.Limit)
	defer limit.Stop()
	for kind, e := range f.lists {
		want := f.addresses(kind)
		for {
			v := e.View()
			var have []string
			for _, m := range v.All {
				if m.State == discovery.Ready {
					have = append(have, m.Addr)
				}
			}
			slices.Sort(have)
			if v.Live && slices.Equal(have, want) && len(v.All) == len(want) {
				break
			}
			select {
			case <-e.Changed():
			case <-limit.C:
				f.t.Fatalf("the list of %s is %v, live %v; there are %v", kind, have, v.Live, want)
			}
		}
	}
}

// dial opens a client for a caller.
func (f *fleet) dial() *client.Client {
	f.t.Helper()
	c, err := client.Open(f.t.Context(), client.Config{Endpoints: f.listen})
	must(f.t, err)
	f.t.Cleanup(c.CloseWithoutRelease)
	return c
}

func (f *fleet) newCaller(kind string, opts ...discovery.WatchOption) *caller {
	f.t.Helper()
	x, c := &caller{kind: kind, last: map[string]int64{}}, f.dial()
	switch kind {
	case "grpc":
		conn, err := grpc.NewClient("signalbox:///default/greeter",
			append(grpcsignalbox.Options(c, opts...), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		must(f.t, err)
		f.t.Cleanup(func() { conn.Close() })
		h := healthpb.NewHealthClient(conn)
		x.call = func(ctx context.Context) (string, error) {
			var p peer.Peer
			if _, err := h.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
				return "", err
			}
			return p.Addr.String(), nil
		}
	case "http":
		tr := &discovery.Transport{Client: c, Node: "/default", Base: &http.Transport{}, Options: opts}
		f.t.Cleanup(tr.Close)
		web := &http.Client{Transport: tr}
		x.call = func(ctx context.Context) (addr string, err error) {
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
				addr = i.Conn.RemoteAddr().String()
			}})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://web.signalbox/", nil)
			if err != nil {
				return "", err
			}
			resp, err := web.Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			return addr, err
		}
	}
	return x
}

// run calls until the fleet is over.
func (f *fleet) run(c *caller) {
	next := time.NewTicker(f.rest)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-f.over.Done():
			return
		}
		ctx, cancel := context.WithTimeout(f.over, await.Limit)
		addr, err := c.call(ctx)
		cancel()
		number := f.calls.Add(1)
		c.mu.Lock()
		switch {
		case err == nil:
			c.last[addr] = number
		case f.over.Err() == nil:
			c.errors = append(c.errors, fmt.Errorf("%s: %w", c.kind, err))
		}
		c.mu.Unlock()
	}
}

// forgetReached lets callers forget whom they reached, and waits until they have reached all whom they use.
func (f *fleet) forgetReached() {
	f.t.Helper()
	for _, c := range f.callers {
		c.mu.Lock()
		clear(c.last)
		c.mu.Unlock()
	}
	before := f.calls.Load()
	await.True(f.t, "calls of all", func() bool { return f.calls.Load() > before+int64(100*len(f.callers)) })
}

// awaitReached waits until all callers that have reached an address reach it after now. gRPC tries
// a lost address again after a second or more, and a deploy must leave it the time: without a
// cluster nobody tells it that the address is back.
func (f *fleet) awaitReached(addr string) {
	f.t.Helper()
	now := f.calls.Load()
	await.True(f.t, "callers at "+addr, func() bool {
		return !slices.ContainsFunc(f.callers, func(c *caller) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			number, ok := c.last[addr]
			return ok && number <= now
		})
	})
}

// expect ends a part of the test: each caller had at most so many errors in it. Calls went on.
func (f *fleet) expect(what string, most int) {
	f.t.Helper()
	before := f.calls.Load()
	await.True(f.t, "calls after "+what, func() bool { return f.calls.Load() > before+int64(4*len(f.callers)) })
	count, worst := map[string]int{}, 0
	for _, c := range f.callers {
		errs := c.take()
		count[c.kind] += len(errs)
		worst = max(worst, len(errs))
		if len(errs) > most {
			f.t.Errorf("%s: a caller has %d errors, at most %d are right: %v", what, len(errs), most, errs[:min(3, len(errs))])
		}
	}
	f.t.Logf("%s: %d calls so far, errors in this part: %v, at most %d of a caller", what, f.calls.Load(), count, worst)
}

// TestFleet: backends and callers live through a rolling restart, killed backends, killed and
// stopped servers, a cluster that is away, and a restore from a backup of before the last deploy.
// In the long form there are 20 backends of each kind and 50 callers with 2,000 calls a second,
// and the cluster is away for a minute.
func TestFleet(t *testing.T) {
	form.SkipUntil(t, form.Full, "it builds the server, and runs a fleet of processes")
	t.Parallel()
	each, callers, away := 4, 10, 12*time.Second
	if form.Is(form.Long) {
		each, callers, away = 20, 50, time.Minute
	}
	f := &fleet{t: t, dir: t.TempDir(), lists: map[string]*discovery.Endpoints{}, rest: 25 * time.Millisecond}
	f.bin = binary.Signalbox(t)
	must(t, os.WriteFile(filepath.Join(f.dir, "token"), []byte("a secret of this test\n"), 0o600))
	for range 3 {
		f.listen, f.raft, f.servers = append(f.listen, port.ForTest(t)), append(f.raft, port.ForTest(t)), append(f.servers, nil)
	}
	for i := range f.servers {
		f.startServer(i)
	}
	f.awaitCluster()
	zones := []string{"SAS", "VLA"}
	for kind := range services {
		for i := range each {
			f.backends = append(f.backends, f.startBackend(kind, port.ForTest(t), zones[i%2]))
		}
	}
	own := f.dial()
	for kind, service := range services {
		e, err := discovery.Watch(own, "/default", service)
		must(t, err)
		t.Cleanup(e.Close)
		f.lists[kind] = e
	}
	f.awaitLists()
	ctx, stop := context.WithCancel(t.Context())
	f.over = ctx
	t.Cleanup(func() {
		stop()
		f.done.Wait()
	})
	for i := range callers {
		var opts []discovery.WatchOption
		if zone := []string{"SAS", "VLA", ""}[i%3]; zone != "" {
			opts = append(opts, discovery.InZone(zone))
		}
		c := f.newCaller([]string{"grpc", "http"}[i%2], opts...)
		f.callers = append(f.callers, c)
		f.done.Go(func() { f.run(c) })
	}
	f.expect("the start", 0)
	backup := filepath.Join(f.dir, "backup")
	f.command("cluster", "backup", backup)

	for i, p := range f.backends { // to other addresses
		p.stop(t)
		f.backends[i] = f.startBackend(p.kind, port.ForTest(t), p.zone)
		f.awaitLists()
	}
	f.expect("a rolling restart", 0)

	killed := 0
	for i, p := range f.backends {
		if i%4 == 0 {
			p.kill()
			killed++
		}
	}
	before := f.calls.Load()
	await.True(t, "calls without them", func() bool { return f.calls.Load() > before+int64(50*callers) })
	for i, p := range f.backends {
		if i%4 == 0 {
			f.backends[i] = f.startBackend(p.kind, p.addr, p.zone)
		}
	}
	f.awaitLists()
	f.expect("killed backends, which return", killed/2)

	for i := range f.servers { // one of them leads
		f.servers[i].kill()
		f.awaitLists()
		f.startServer(i)
		f.awaitCluster()
	}
	f.expect("killed servers", 0)
	for _, s := range f.servers {
		must(t, s.cmd.Process.Signal(syscall.SIGSTOP))
		f.awaitLists()
		must(t, s.cmd.Process.Signal(syscall.SIGCONT))
		f.awaitCluster()
	}
	f.expect("stopped servers", 0)

	for _, s := range f.servers {
		s.kill()
	}
	gone := time.NewTimer(away)
	for _, e := range f.lists {
		await.True(t, "a list that says that the cluster is away", func() bool { return !e.View().Live })
		if n := len(e.View().Used); n != each {
			t.Errorf("without a cluster %d endpoints are used", n)
		}
	}
	<-gone.C
	f.expect("a cluster that is away", 0)
	for i := range f.servers {
		f.startServer(i)
	}
	f.awaitCluster()
	f.awaitLists()
	f.expect("its return", 0)

	for _, s := range f.servers {
		s.kill()
	}
	f.restore(backup)
}

// restore makes a new cluster of a backup of before the last deploy. Callers keep their list until
// they are restarted, after the backends.
func (f *fleet) restore(backup string) {
	f.t.Helper()
	f.listen, f.raft = f.listen[:1], f.raft[:1]
	where := []string{"--data", filepath.Join(f.dir, "restored"), "--listen", f.listen[0], "--raft", f.raft[0], "--admin", "off"}
	f.command(append([]string{"cluster", "restore", backup}, where...)...)
	start(f.t, f.bin, nil, append([]string{"serve", "--existing"}, where...)...)
	f.awaitCluster()
	f.forgetReached()
	for i, p := range f.backends {
		p.stop(f.t)
		f.backends[i] = f.startBackend(p.kind, p.addr, p.zone)
		await.True(f.t, "the backend's return", func() bool {
			return strings.Contains(f.command("service", "ls", services[p.kind], "--timeout", "30s"), p.addr)
		})
		f.awaitReached(p.addr)
	}
	f.expect("a restore from a backup", 0)
	for _, e := range f.lists {
		if v := e.View(); v.Live || len(v.Used) == 0 {
			f.t.Errorf("a caller of the old cluster has %d endpoints, live %v", len(v.Used), v.Live)
		}
	}
	own := f.dial()
	for kind, service := range services {
		e, err := discovery.Watch(own, "/default", service)
		must(f.t, err)
		f.t.Cleanup(e.Close)
		f.lists[kind] = e
	}
	f.awaitLists()
	for kind := range services { // restarted callers
		c := f.newCaller(kind)
		f.callers = append(f.callers, c)
		f.done.Go(func() { f.run(c) })
	}
	f.expect("restarted callers", 0)
}

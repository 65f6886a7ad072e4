package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// gatewayOf names the endpoints of the cluster to this program where it runs as a gateway.
const gatewayOf = "SIGNALBOX_TEST_GATEWAY_OF"

// runGateway is a gateway in a process of its own, until standard input or SIGTERM ends it.
func runGateway(endpoints string) {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	log := slog.New(slog.DiscardHandler)
	api, err := New(Config{Client: client.Config{Endpoints: strings.Split(endpoints, ",")}, Log: log})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := Server(api, log)
	server.Handler = &checked{server.Handler, api, endpoints, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	go func() { _ = server.Serve(LimitListener(l)) }()
	fmt.Println("http://" + l.Addr().String())
	<-stop.Done()
	api.Stop()
	quit, done := context.WithTimeout(context.Background(), 3*time.Second)
	defer done()
	_ = server.Shutdown(quit)
	api.Close()
}

// gatewayProcess is a gateway in a process of its own.
type gatewayProcess struct {
	*site
	cmd   *exec.Cmd
	ended chan struct{}
}

func startGateway(t *testing.T, endpoints ...string) *gatewayProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), gatewayOf+"="+strings.Join(endpoints, ",")), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{cmd: cmd, ended: make(chan struct{})}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the gateway does not start: ", lines.Err())
	}
	address := lines.Text()
	go func() {
		defer close(g.ended)
		for lines.Scan() { // what is wrong with its answers
			t.Error(lines.Text())
		}
		_ = cmd.Wait()
	}()
	transport := &http.Transport{}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(syscall.SIGCONT)
		time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-g.ended
		transport.CloseIdleConnections()
	})
	g.site = &site{t: t, url: address, web: &http.Client{Transport: transport}}
	return g
}

// signal sends a signal; the end of the process is awaited if it is one that ends it.
func (g *gatewayProcess) signal(s syscall.Signal) {
	_ = g.cmd.Process.Signal(s)
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		<-g.ended
	}
}

// TestKilledGateway: a gateway is killed while many callers hold and wait. Each goes on at another
// one with its token, and each that waits with its place.
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	callers := form.Of(50, 1000)
	srv := servertest.Start(t, servertest.RealTime())
	one, two := startGateway(t, srv.Addr()), startGateway(t, srv.Addr())
	tokens := make([]int64, callers)
	each := func(f func(i int, lock, session string) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if err := f(i, fmt.Sprintf("/v1/locks/k-%d?ttl=5m", i),
					fmt.Sprintf("caller-%d-session", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	each(func(i int, lock, session string) error {
		a, err := again(func() (*answer, error) { return one.try(t.Context(), "POST", lock, session, "") }, (*answer).answered)
		if err == nil {
			tokens[i] = a.wants(200).number("token")
		}
		return err
	})
	waiting, hangUp := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for range 2 {
		waiters.Go(func() {
			if a, err := one.try(waiting, "POST", "/v1/locks/k-0?ttl=5m&wait=1m", bob, ""); err == nil &&
				a.status != 409 {
				t.Errorf("a wait at the gateway that is killed is answered %s", a.body)
			}
		})
	}
	one.awaitWaiters("k-0", 1)
	one.signal(syscall.SIGKILL)
	waiters.Wait()
	hangUp()
	each(func(i int, lock, session string) error {
		a, err := again(func() (*answer, error) { return two.try(t.Context(), "POST", lock, session, "") }, (*answer).answered)
		if err != nil {
			return err
		}
		if got := a.wants(200).number("token"); got != tokens[i] {
			return fmt.Errorf("caller %d has token %d after the move, and had %d", i, got, tokens[i])
		}
		return nil
	})
	if a := two.until("position", "POST", "/v1/locks/k-0?wait=10ms", bob); a.status != 202 ||
		a.number("position") != 1 {
		t.Errorf("who waits has lost its place: %s", a.body)
	}
}

// TestGatewaysStop: gateways stop in turn while callers hold and wait: no lease of a named session
// is lost, no place in the queue, and each wait is answered with what to do.
func TestGatewaysStop(t *testing.T) {
	t.Parallel()
	const waits = 20
	srv := servertest.Start(t, servertest.RealTime())
	now := openSite(t, srv)
	token := now.ask("POST", "/v1/locks/a?ttl=5m", alice, "").wants(200).number("token")
	for turn := range 2 {
		next := openSite(t, srv)
		var all sync.WaitGroup
		for i := range waits {
			all.Go(func() {
				a, err := now.try(t.Context(), "POST", "/v1/locks/a?ttl=5m&wait=5m",
					fmt.Sprintf("waiting-%d-session", i), "")
				if err != nil {
					t.Errorf("a wait has no answer: %v", err)
				} else if a.wants(503, "closing").header.Get("Retry-After") != "0" {
					t.Errorf("answered %v", a.header)
				}
			})
		}
		await.True(t, "the requests at the gateway", func() bool { return now.api.held.Load() >= waits })
		now.awaitWaiters("a", waits)
		now.api.Stop()
		quit, done := context.WithTimeout(t.Context(), patience)
		if err := now.server.Shutdown(quit); err != nil {
			t.Error(err)
		}
		done()
		all.Wait()
		now.api.Close()
		if got := next.ask("POST", "/v1/locks/a", alice, "").wants(200); got.number("token") != token {
			t.Errorf("turn %d: token %d, and it was %d", turn, got.number("token"), token)
		}
		if a := next.ask("GET", "/v1/locks/a", "", ""); a.number("num_waiters") != waits {
			t.Errorf("turn %d: %d wait of %d", turn, a.number("num_waiters"), waits)
		}
		now = next
	}
}

// TestLostAnswer: the answer to an acquire is lost, and a hundred repeats at once at both gateways
// have the token that was granted. Each takes the place of the others, and comes again: beside the
// race detector there are fewer.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	repeats := 100
	if form.Race {
		repeats = 20
	}
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	lossy := newWire(t, one)
	for turn := range 3 {
		name := fmt.Sprintf("/v1/locks/lost-%d", turn)
		direct := one.url
		var owners []any
		await.True(t, "a grant whose answer is lost", func() bool { // it may be a refusal of a busy machine
			lossy.deaf.Store(true)
			one.url = lossy.url()
			if a, err := one.try(t.Context(), "POST", name+"?ttl=5m", alice, "mine"); err == nil {
				t.Fatalf("the answer is not lost: %s", a.body)
			}
			one.url = direct
			owners, _ = two.ask("GET", name, "", "").wants(200).doc["owners"].([]any)
			return len(owners) == 1
		})
		token := fmt.Sprint(owners[0].(map[string]any)["token"])
		var all sync.WaitGroup
		for i := range repeats {
			all.Go(func() {
				a, err := []*site{one, two}[i%2].repeat("POST", name, alice, "mine")
				if err != nil {
					t.Error(err)
				} else if got := fmt.Sprint(a.wants(200).doc["token"]); got != token {
					t.Errorf("a repeat has token %s, not %s", got, token)
				}
			})
		}
		all.Wait()
	}
}

// TestOneLimit: two gateways and a service in Go share a rate limit, and one gateway is killed.
// More than the limit is never admitted.
func TestOneLimit(t *testing.T) {
	t.Parallel()
	const rate, lasts = 50, 3 * time.Second
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	own, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := ratelimit.Create(t.Context(), own, "api", ratelimit.Config{Rate: ratelimit.PerSecond(rate)}); err != nil {
		t.Fatal(err)
	}
	one, two := startGateway(t, srv.Addr()), startGateway(t, srv.Addr())
	limiter, err := ratelimit.Join(t.Context(), c, "/default", "api")
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(context.WithoutCancel(t.Context()))
	var admitted [3]atomic.Int64
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var all sync.WaitGroup
	for i, g := range []*gatewayProcess{one, two} {
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					a, err := g.try(ctx, "POST", "/v1/limits/api?wait=100ms", "", "")
					if err != nil {
						return // it is killed, or the time is over
					}
					if a.status == 200 {
						admitted[i].Add(1)
					} else if a.status != 429 && a.status < 500 {
						t.Errorf("answered %s", a.body)
					}
				}
			})
		}
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if ok, err := limiter.WaitAtMost(ctx, 1, 100*time.Millisecond); err == nil && ok {
				admitted[2].Add(1)
			}
		}
	})
	time.AfterFunc(lasts/2, func() { one.signal(syscall.SIGKILL) })
	all.Wait()
	sum := admitted[0].Load() + admitted[1].Load() + admitted[2].Load()
	if most := int64(rate*time.Since(began).Seconds()) + rate; sum > most {
		t.Errorf("%d were admitted, and the limit allows %d", sum, most)
	}
	if sum == 0 {
		t.Error("nothing was admitted")
	}
	t.Logf("admitted %d, %d and %d", admitted[0].Load(), admitted[1].Load(), admitted[2].Load())
}

// TestMembers: a member by HTTP and one by the SDK are read alike, by both; the first one drains by
// repeating its acquire with other data.
func TestMembers(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	own, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	const data = `{"addr":"10.0.0.%d:80","zone":"a","weight":7}`
	if _, err := own.Service("api").Register(t.Context(), fmt.Appendf(nil, data, 1)); err != nil {
		t.Fatal(err)
	}
	s.ask("POST", "/v1/locks/api?mode=shared&ttl=1m", alice, fmt.Sprintf(data, 2)).wants(200)
	e, err := discovery.Watch(c, "/default", "api")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	both := func(what string, ok func(byHTTP []any, bySDK []*discovery.Endpoint) bool) {
		t.Helper()
		await.True(t, "this: "+what, func() bool {
			return ok(s.ask("GET", "/v1/services/api", "", "").wants(200).doc["endpoints"].([]any), e.View().All)
		})
	}
	state := func(addr string, list []any, all []*discovery.Endpoint) (byHTTP, bySDK string) {
		for _, m := range list {
			if m := m.(map[string]any); m["addr"] == addr {
				byHTTP = fmt.Sprint(m["zone"], m["weight"], m["state"], m["used"])
			}
		}
		for _, m := range all {
			if used, _ := e.View().Reason(m); m.Addr == addr {
				bySDK = fmt.Sprint(m.Zone, m.Weight, m.State, used)
			}
		}
		return byHTTP, bySDK
	}
	both("both read both members alike", func(list []any, all []*discovery.Endpoint) bool {
		a1, b1 := state("10.0.0.1:80", list, all)
		a2, b2 := state("10.0.0.2:80", list, all)
		return a1 != "" && a1 == b1 && a1 == a2 && a2 == b2
	})
	s.ask("POST", "/v1/locks/api?mode=shared", alice, `{"addr":"10.0.0.2:80","zone":"a","weight":7,"state":"draining"}`).wants(200)
	both("both see the member drain", func(list []any, all []*discovery.Endpoint) bool {
		a1, _ := state("10.0.0.1:80", list, all)
		a2, b2 := state("10.0.0.2:80", list, all)
		return a2 != "" && a2 == b2 && a2 != a1
	})
	s.ask("DELETE", "/v1/session", alice, "").wants(200)
	both("it is gone", func(list []any, all []*discovery.Endpoint) bool { return len(list) == 1 && len(all) == 1 })
}

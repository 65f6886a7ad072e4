package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(callersEnv); text != "" {
		if err := runCallers(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if addresses := os.Getenv(backendsEnv); addresses != "" {
		if err := runBackends(addresses); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// member is a running Serve, and what it says.
type member struct {
	log        await.Log
	registered chan *discovery.Registration
	lost       chan error
	over       chan error
	stop       context.CancelFunc
	onLost     atomic.Pointer[func()] // called first
}

func serve(t *testing.T, srv *servertest.Server, node string, data string, opts ...discovery.Option) *member {
	t.Helper()
	m := &member{
		registered: make(chan *discovery.Registration, 16), lost: make(chan error, 16), over: make(chan error, 1),
	}
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Logger: slog.New(slog.NewTextHandler(&m.log, nil))})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	m.stop = stop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.over <- discovery.Serve(ctx, c, node, "api", discovery.Data(data), append(opts, discovery.OnRegistration(
			func(r *discovery.Registration, err error) {
				if r != nil {
					m.registered <- r
					return
				}
				if f := m.onLost.Load(); f != nil {
					(*f)()
				}
				m.lost <- err
			}))...)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		c.CloseWithoutRelease()
	})
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, srv *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), srv.Addr())
	must(t, err)
	t.Cleanup(c.CloseWithoutRelease)
	return c
}

func openNode(t *testing.T, srv *servertest.Server, path string) *client.Node {
	t.Helper()
	n, err := dial(t, srv).Node(t.Context(), path)
	must(t, err)
	return n
}

func members(t *testing.T, n *client.Node) string {
	t.Helper()
	list, err := n.Service("api").List(t.Context(), client.ReadConsistency(client.Strict))
	must(t, err)
	var data []string
	for _, m := range list {
		data = append(data, string(m.Data))
	}
	return strings.Join(data, " ")
}

// TestServe: a member registers again when its session is ended, and when its membership is taken
// away, with the data that it has by then, and says so; it has left when Serve returns.
func TestServe(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	n := openNode(t, srv, "/default")
	m := serve(t, srv, "/default", "10.0.0.1:80")
	first := <-m.registered
	if got := members(t, n); got != "10.0.0.1:80" || first.Err() != nil {
		t.Fatalf("members %q, %v", got, first.Err())
	}
	must(t, admin.OfNode(n).KillSession(t.Context(), first.Session().ID(), "a test"))
	if err := <-m.lost; !errors.Is(err, client.ErrSessionExpired) || !errors.Is(first.Err(), client.ErrSessionExpired) {
		t.Errorf("lost with %v, %v", err, first.Err())
	}
	<-first.Done()
	second := <-m.registered
	if second.Token() <= first.Token() || second.Session() == first.Session() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	must(t, second.Update(t.Context(), discovery.Data("10.0.0.1:81")))
	if err := second.Update(t.Context(), discovery.Data(make([]byte, 2<<20))); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("too much data: %v", err)
	}
	update := func() {
		if err := second.Update(t.Context(), discovery.Data("10.0.0.1:82")); !errors.Is(err, client.ErrLeaseLost) {
			t.Errorf("an update of a lost registration: %v", err)
		}
	}
	m.onLost.Store(&update)
	if _, err := admin.OfNode(n).ForceRelease(t.Context(), "api", second.Token(), second.Token(), "another test"); err != nil {
		t.Fatal(err)
	}
	if err := <-m.lost; !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("lost with %v", err)
	}
	third := <-m.registered
	if got := members(t, n); got != "10.0.0.1:82" {
		t.Errorf("members %q", got)
	}
	for _, want := range []string{"session lost, starting a new one", "service member is not registered, registering again"} {
		if text := m.log.String(); !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	m.onLost.Store(nil)
	if _, err := third.Session().Release(t.Context(), "api"); err != nil {
		t.Fatal(err)
	}
	if err := <-m.lost; !errors.Is(err, client.ErrReleased) {
		t.Errorf("released with %v", err)
	}
	third = <-m.registered
	m.stop()
	if err := <-m.over; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve returned %v", err)
	}
	if got := members(t, n); got != "" || third.Session().Err() == nil {
		t.Errorf("members %q after the end", got)
	}
}

// TestOutage: the cluster is away for longer than the session timeout.
func TestOutage(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	m := serve(t, srv, "/default", "10.0.0.1:80", discovery.SessionOptions(client.Timeout(time.Second), client.Description("one")))
	<-m.registered
	srv.Unreachable()
	if err := <-m.lost; !errors.Is(err, client.ErrNotRenewed) {
		t.Errorf("lost with %v", err)
	}
	srv.Reachable()
	if r := <-m.registered; r.Err() != nil {
		t.Error(r.Err())
	}
	n := openNode(t, srv, "/default")
	await.True(t, "the end of the lost session", func() bool { return members(t, n) == "10.0.0.1:80" })
}

// TestMemberIsDescribed: the session of a member says which process it is, or what its program
// says.
func TestMemberIsDescribed(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	n := openNode(t, srv, "/default")
	for want, m := range map[string]*member{
		fmt.Sprintf("%s@%s pid %d", filepath.Base(os.Args[0]), hostname(t), os.Getpid()): serve(t, srv, "/default", "a:1"),
		"one": serve(t, srv, "/default", "b:1", discovery.SessionOptions(client.Description("one"))),
	} {
		r := <-m.registered
		sem, err := n.Describe(t.Context(), "api", client.IncludeOwners())
		must(t, err)
		if !slices.ContainsFunc(sem.Owners, func(o client.Owner) bool {
			return o.Session == r.Session().ID() && o.Description == want
		}) {
			t.Errorf("a member described as %q is in none of %+v", want, sem.Owners)
		}
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	must(t, err)
	return host
}

// TestRefused: the first registration ends with its error; a later one is tried again.
func TestRefused(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	if err := <-serve(t, srv, "/none", "a").over; !errors.Is(err, client.ErrNotFound) {
		t.Errorf("without the node: %v", err)
	}
	c := dial(t, srv)
	s, err := c.Session(t.Context(), "/default")
	must(t, err)
	lock, err := s.Mutex("api").Lock(t.Context())
	must(t, err)
	if err := <-serve(t, srv, "/default", "a").over; !errors.Is(err, client.ErrPreconditionFailed) {
		t.Errorf("beside a lock of the name: %v", err)
	}
	must(t, lock.Release(t.Context()))
	must(t, s.Create(t.Context(), "api", 1, nil))
	_, err = s.Service("api").Register(t.Context(), nil)
	must(t, err)
	queued := make(chan struct{})
	waits := discovery.FirstRegistration(func(s *client.Session) []client.AcquireOption {
		return []client.AcquireOption{client.Wait(time.Millisecond), client.OnQueued(func(uint64) { close(queued) })}
	})
	if err := <-serve(t, srv, "/default", "a", waits).over; !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("beside as many members as may be: %v", err)
	}
	<-queued

	create := func() {
		_, err := admin.Nodes(c).Create(t.Context(), "/short", admin.NodeConfig{})
		must(t, err)
	}
	create()
	m := serve(t, srv, "/short", "a")
	<-m.registered
	deleteNode(t, c, "/short")
	<-m.lost
	if err := <-m.lost; !errors.Is(err, client.ErrNotFound) {
		t.Errorf("without the node: %v", err)
	}
	create()
	<-m.registered
	if got := members(t, openNode(t, srv, "/short")); got != "a" {
		t.Errorf("members %q", got)
	}
}

// TestStartsWhileAway: a program starts while the cluster is away. It is registered, and its callers
// have the list, once the cluster is there; nothing is an error until then. What another try would
// not mend is an error at once.
func TestStartsWhileAway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	other := openNode(t, srv, "/default")
	tried := make(chan struct{}, 100)
	open := func(cfg client.Config) *client.Client {
		t.Helper()
		cfg.Endpoints = []string{srv.Addr()}
		c, err := client.New(cfg)
		must(t, err)
		t.Cleanup(c.CloseWithoutRelease)
		return c
	}
	srv.Unreachable()
	c := open(client.Config{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		select { // the connection may be there for a moment before it is reset
		case tried <- struct{}{}:
		default:
		}
		return conn, err
	}})
	e, err := discovery.Watch(c, "/default", "api")
	must(t, err)
	defer e.Close()
	ctx, stop := context.WithCancel(t.Context())
	registered, over := make(chan *discovery.Registration, 1), make(chan error, 1)
	go func() {
		over <- discovery.Serve(ctx, c, "/default", "api", discovery.Endpoint{Addr: "10.0.0.1:80"},
			discovery.DrainGrace(0),
			discovery.OnRegistration(func(r *discovery.Registration, err error) {
				if err != nil {
					t.Error(err)
				}
				registered <- r
			}))
	}()
	for range 3 { // tries
		<-tried
	}
	if v := e.View(); v.Known || e.Err() != nil {
		t.Errorf("the view is %+v, %v", v, e.Err())
	}
	short, done := context.WithTimeout(t.Context(), time.Millisecond)
	defer done()
	if _, err := c.Session(short, "/default"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a call waits for its context:", err)
	}
	if err := e.Wait(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing is known") {
		t.Error("a caller waits for its context:", err)
	}
	srv.Reachable()
	<-registered
	must(t, e.Wait(t.Context()))
	until(t, e, func(v *discovery.View) bool { return used(v) == "10.0.0.1:80" })
	if got := members(t, other); got != `{"addr":"10.0.0.1:80"}` {
		t.Error(got)
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	member := discovery.Endpoint{Addr: "10.0.0.1:80"}
	if err := discovery.Serve(t.Context(), open(client.Config{}), "/none", "api",
		member); !errors.Is(err, client.ErrNotFound) {
		t.Error("another node:", err)
	}
	if err := discovery.Serve(t.Context(), open(client.Config{Cluster: "other"}), "/default", "api", member); !errors.Is(err, client.ErrOtherCluster) {
		t.Error("another cluster:", err)
	}
	noToken := func(context.Context) ([]byte, error) { return nil, errors.New("no token") }
	if err := discovery.Serve(t.Context(), open(client.Config{GetToken: noToken}), "/default", "api", member); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Error("no token:", err)
	}
	if _, err := client.New(client.Config{}); err == nil {
		t.Error("without endpoints")
	}
}

// deleteNode deletes a node, whatever it has.
func deleteNode(t *testing.T, c *client.Client, path string) {
	t.Helper()
	if _, err := admin.Nodes(c).Delete(t.Context(), path, admin.DeleteOptions{Force: true, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
}

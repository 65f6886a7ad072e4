package grpcsignalbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/grpcsignalbox"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(backendEnv); text != "" {
		if err := runBackend(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func must(t *testing.T, err error) {
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

// backend is a gRPC server that is a member of a service.
type backend struct {
	*grpc.Server
	health *health.Server
	addr   string
	calls  atomic.Int64
	r      *discovery.Registration
}

func serve(t *testing.T, srv *servertest.Server, weight int) *backend {
	t.Helper()
	l, err := net.Listen("tcp", port.ForTest(t)) // it may be stopped, and then nobody else has the port
	must(t, err)
	b := &backend{addr: l.Addr().String(), health: health.NewServer()}
	b.Server = grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			b.calls.Add(1)
			return handle(ctx, req)
		}))
	healthpb.RegisterHealthServer(b.Server, b.health)
	var done sync.WaitGroup
	done.Go(func() { _ = b.Serve(l) })
	t.Cleanup(func() {
		b.Stop()
		done.Wait()
	})
	s, err := dial(t, srv).Session(t.Context(), "/default")
	must(t, err)
	b.r, err = discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: b.addr, Weight: weight})
	must(t, err)
	return b
}

func connect(t *testing.T, c *client.Client, target string, more ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(target,
		append(append(grpcsignalbox.Options(c), grpc.WithTransportCredentials(insecure.NewCredentials())), more...)...)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// call is one call, and the address that answered it.
func call(t *testing.T, h healthpb.HealthClient, opts ...grpc.CallOption) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var p peer.Peer
	_, err := h.Check(ctx, &healthpb.HealthCheckRequest{}, append(opts, grpc.Peer(&p))...)
	if err != nil {
		return "", err
	}
	return p.Addr.String(), nil
}

// reached calls until these addresses, and no others, have answered in a row of calls.
func reached(t *testing.T, h healthpb.HealthClient, want ...*backend) {
	t.Helper()
	for t.Context().Err() == nil {
		have := map[string]bool{}
		for range 20 * len(want) {
			addr, err := call(t, h)
			must(t, err)
			have[addr] = true
		}
		ok := len(have) == len(want)
		for _, b := range want {
			ok = ok && have[b.addr]
		}
		if ok {
			return
		}
	}
}

// TestGreeter: calls are spread by weight over three backends. One drains and leaves while calls go
// on, the cluster goes away and returns, and no call fails.
func TestGreeter(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	a, b, c := serve(t, srv, 100), serve(t, srv, 100), serve(t, srv, 300)
	h := connect(t, dial(t, srv), "signalbox:///default/api")
	reached(t, h, a, b, c)
	before := [3]int64{a.calls.Load(), b.calls.Load(), c.calls.Load()}
	for range 500 {
		_, err := call(t, h)
		must(t, err)
	}
	for i, want := range []int64{100, 100, 300} {
		if got := []*backend{a, b, c}[i].calls.Load() - before[i]; got < want-5 || got > want+5 {
			t.Errorf("backend %d gets %d calls of 500", i, got)
		}
	}

	calling, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for calling.Err() == nil {
				if _, err := call(t, h); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	drain, over := context.WithCancel(t.Context())
	callers.Go(func() { _ = a.r.Drain(drain, discovery.MaxGrace) })
	reached(t, h, b, c)
	over()
	a.GracefulStop()
	srv.Unreachable()
	reached(t, h, b, c)
	srv.Reachable()
	d := serve(t, srv, 100)
	reached(t, h, b, c, d)
	stop()
	callers.Wait()
}

// TestKilledBackend: calls that may wait, wait for one that is connected.
func TestKilledBackend(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	a, b := serve(t, srv, 100), serve(t, srv, 100)
	h := connect(t, dial(t, srv), "signalbox:///default/api")
	reached(t, h, a, b)
	a.Stop()
	failed := 0
	for range 100 {
		addr, err := call(t, h)
		if err != nil {
			failed++
		} else if addr != b.addr {
			t.Errorf("%s answers", addr)
		}
	}
	if failed > 1 {
		t.Errorf("%d calls fail", failed)
	}
}

// TestHealthChecks: with a health check in the service config, a backend that says that it does not
// serve is left out by callers, whatever the list says, until it does again.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	a, b := serve(t, srv, 100), serve(t, srv, 100)
	h := connect(t, dial(t, srv), "signalbox:///default/api", grpc.WithDefaultServiceConfig(
		`{"loadBalancingConfig": [{"`+grpcsignalbox.PolicyName+`": {}}], "healthCheckConfig": {"serviceName": "greeter"}}`))
	a.health.SetServingStatus("greeter", healthpb.HealthCheckResponse_SERVING)
	b.health.SetServingStatus("greeter", healthpb.HealthCheckResponse_SERVING)
	reached(t, h, a, b)
	a.health.SetServingStatus("greeter", healthpb.HealthCheckResponse_NOT_SERVING)
	reached(t, h, b)
	a.health.SetServingStatus("greeter", healthpb.HealthCheckResponse_SERVING)
	reached(t, h, a, b)
}

// TestNoMembers: calls end at once where there are no members, and no node; they begin to work when
// there are.
func TestNoMembers(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	h := connect(t, c, "signalbox:///default/api")
	_, err := call(t, h)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "service api in /default has no members") {
		t.Error(err)
	}
	_, err = call(t, connect(t, c, "signalbox:///none/api"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "service api in /none has no members") {
		t.Error(err)
	}
	b := serve(t, srv, 100)
	addr, err := call(t, h, grpc.WaitForReady(true))
	if err != nil || addr != b.addr {
		t.Error(addr, err)
	}
	must(t, b.r.Drain(t.Context(), 0))
	err = await.Seen(t, "the end of the only member", func() (error, bool) {
		_, err := call(t, h)
		return err, err != nil
	})
	if !strings.Contains(err.Error(), "has no members") {
		t.Error(err)
	}
}

// TestNothingIsKnown: while the cluster was never reached, calls wait as gRPC's do.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	b := serve(t, srv, 100)
	c := dial(t, srv)
	srv.Unreachable()
	h := connect(t, c, "signalbox:///default/api")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := h.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	srv.Reachable()
	if addr, err := call(t, h); err != nil || addr != b.addr {
		t.Error(addr, err)
	}
}

// TestWrongTargets: each is said when the connection is made.
func TestWrongTargets(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	c := dial(t, srv)
	for target, want := range map[string]string{
		"signalbox://cluster/billing/api": "authority",
		"signalbox:///billing/api?x=1":    "query",
		"signalbox:///billing/":           "no service",
		"signalbox:///api":                "lacks a node",
	} {
		conn, err := grpc.NewClient(target, append(grpcsignalbox.Options(c), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err == nil {
			conn.Connect()
			_, err = call(t, healthpb.NewHealthClient(conn))
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestReadme runs what the README shows: a member that serves gRPC, and a caller.
func TestReadme(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	ctx, stop := context.WithCancel(t.Context())
	done.Go(func() { _ = serveUntil(ctx, dial(t, srv), l.Addr().String()) })
	conn, web, err := callers(c, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	addr, err := call(t, healthpb.NewHealthClient(conn), grpc.WaitForReady(true))
	if err != nil || addr != l.Addr().String() {
		t.Error(addr, err)
	}
	if resp, err := web.Get("http://other.signalbox/"); err == nil {
		resp.Body.Close()
		t.Error("a service without members answers")
	}
	web.Transport.(*discovery.Transport).Close()
	stop()
	server.Stop()
	conn.Close()
	done.Wait()
}

// TestStartsWhileAway: a program that starts while the cluster is away makes its channel, whose calls
// wait for the list.
func TestStartsWhileAway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	b := serve(t, srv, 100)
	srv.Unreachable()
	c, err := client.New(client.Config{Endpoints: []string{srv.Addr()}})
	must(t, err)
	t.Cleanup(c.CloseWithoutRelease)
	h := connect(t, c, "signalbox:///default/api")
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Check(short, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call before the list is known: %v", err)
	}
	over := make(chan error, 1)
	go func() {
		got, err := call(t, h)
		if err == nil && got != b.addr {
			err = errors.New("answered by " + got)
		}
		over <- err
	}()
	srv.Reachable()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

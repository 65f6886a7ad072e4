package integration

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// page gets one of the operators' pages.
func page(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventLimit}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// onTCP is a configuration with addresses of this machine.
func onTCP(t *testing.T, peers ...string) server.Config {
	t.Helper()
	list := make([]string, 3)
	for i := range list {
		address := port.ForTest(t)
		list[i] = address
	}
	return server.Config{
		DataDir: t.TempDir(), Listen: list[0], Raft: list[1], Admin: list[2], Peers: peers,
		JoinToken: "0123456789abcdef", ReplicationFactor: 2, Shards: 1, Buckets: 16,
		RTT: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// TestWaitingForPeers: an instance whose peers are not there answers probes, names them, and waits
// until they come.
func TestWaitingForPeers(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance waits for others")
	t.Parallel()
	a, b := onTCP(t), onTCP(t)
	a.Peers = []string{a.Raft, b.Raft}
	b.Peers = a.Peers
	type started struct {
		s   *instance
		err error
	}
	results := make(chan started, 2)
	start := func(cfg server.Config) {
		go func() {
			s, err := startServer(t.Context(), cfg)
			results <- started{s, err}
		}()
	}
	start(a)
	await.True(t, "readiness that names the missing peer", func() bool {
		status, body := page(t, a.Admin, "/readyz")
		return status == http.StatusServiceUnavailable &&
			strings.Contains(body, "no answer yet that counts from [") && strings.Contains(body, b.Raft)
	})
	if status, body := page(t, a.Admin, "/healthz"); status != http.StatusOK {
		t.Errorf("health is %d %s", status, body)
	}
	status, body := page(t, a.Admin, "/metrics")
	for _, series := range []string{"process_start_time_seconds ", "signalbox_ready 0\n", "signalbox_build_info{"} {
		if status != http.StatusOK || !strings.Contains(body, "\n"+series) {
			t.Errorf("metrics are %d, without %q: %s", status, series, body)
		}
	}
	start(b)
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		t.Cleanup(func() { _ = r.s.Close() })
	}
	for _, address := range []string{a.Admin, b.Admin} {
		await.True(t, "readiness", func() bool { status, _ := page(t, address, "/readyz"); return status == http.StatusOK })
		if status, body := page(t, address, "/metrics"); status != http.StatusOK || !strings.Contains(body, "signalbox_meta_leading") ||
			!strings.Contains(body, "\nsignalbox_ready 1\n") {
			t.Errorf("metrics of a server that has started are %d, without its own", status)
		}
	}
}

// TestWrongPeers: an address of a running instance that is not its raft address, and a wrong join
// token, end a start with that reason.
func TestWrongPeers(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance asks others")
	t.Parallel()
	running := onTCP(t)
	running.ReplicationFactor = 1
	s, err := startServer(t.Context(), running)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, x := range []struct {
		what, peer, token, want string
	}{
		{"clients", running.Listen, running.JoinToken, "it is an address for clients; a list of peers takes the raft addresses"},
		{"operators", running.Admin, running.JoinToken, "an HTTP server answers there, like that of --admin"},
		{"token", running.Raft, "fedcba9876543210", "all peers refuse this instance, " + running.Raft + ": "},
	} {
		cfg := onTCP(t, x.peer)
		cfg.JoinToken = x.token
		ctx, cancel := context.WithTimeout(t.Context(), eventLimit)
		s, err := startServer(ctx, cfg)
		cancel()
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: it has started", x.what)
		} else if !strings.Contains(err.Error(), x.want) || ctx.Err() == context.DeadlineExceeded {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

// TestUnreachableAdvertise: a process that others do not reach at the raft address that it
// advertises is not admitted, and an instance that has become so is not said to have stopped. The
// plan, the health and its own readiness name the address.
func TestUnreachableAdvertise(t *testing.T) {
	form.SkipUntil(t, form.Full, "it waits until instances are taken for unreachable")
	t.Parallel()
	a := onTCP(t)
	a.ReplicationFactor, a.Name = 1, "a"
	first, err := startServer(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })

	b := onTCP(t, a.Raft)
	b.Name, b.RaftAdvertise = "b", port.ForTest(t)
	start := func(cfg server.Config) (end func(), result <-chan *instance) {
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan *instance, 1)
		go func() {
			s, err := startServer(ctx, cfg)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			out <- s
		}()
		return cancel, out
	}
	ready := func(want string) {
		t.Helper()
		await.True(t, "a readiness with "+want, func() bool {
			_, body := page(t, b.Admin, "/readyz")
			return strings.Contains(body, want) && strings.Contains(body, b.RaftAdvertise)
		})
	}
	plan := func(want string) {
		t.Helper()
		await.True(t, "a plan with "+want, func() bool {
			e, err := first.Governor.Explain()
			return err == nil && slices.ContainsFunc(e.Waits, func(w governor.Wait) bool {
				return strings.Contains(w.What+": "+w.Why, want) && strings.Contains(w.Why, b.RaftAdvertise)
			})
		})
	}

	end, result := start(b)
	ready("the cluster does not reach this instance at")
	plan("b to join: it is not reached at")
	if state := first.Meta.State(); len(state.Instances()) != 1 {
		t.Errorf("it is an instance: %+v", state.Instances())
	}
	end()
	<-result

	way := forwardTo(t, b.RaftAdvertise, b.Raft)
	_, result = start(b)
	s := <-result
	if s == nil {
		t.Fatal("not started")
	}
	_ = s.Close()
	way()
	end, result = start(b)
	ready("does not reach this one at")
	// Two of two voters must agree, so nobody governs, and the plan is that of the instance asked.
	clause := "it connects from 127.0.0.1, but is not reached at " + b.RaftAdvertise
	await.True(t, "a plan and a health that name the address", func() bool {
		seen := first.Membership.Observe(t.Context())
		return slices.ContainsFunc(governor.Deviations(seen.View), func(w governor.Wait) bool {
			return w.What == "b to be online" && strings.Contains(w.Why, clause)
		}) && slices.ContainsFunc(governor.Assess(seen).Unreachable, func(u protocol.ClusterUnreachable) bool {
			return u.Instance == "b" && strings.Contains(u.Unreached, clause)
		})
	})
	forwardTo(t, b.RaftAdvertise, b.Raft)
	if s := <-result; s != nil {
		_ = s.Close()
	}
	end()
}

// forwardTo connects what comes at one address with another, until the test or the caller ends it.
func forwardTo(t *testing.T, from, to string) (end func()) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	ended := false
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			if open = append(open, in, out); ended {
				_, _ = in.Close(), out.Close()
			}
			mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	end = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		ended = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	t.Cleanup(end)
	return end
}

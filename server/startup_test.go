package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
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
func onTCP(t *testing.T, peers ...string) Config {
	t.Helper()
	list := make([]string, 3)
	for i := range list {
		address := port.ForTest(t)
		list[i] = address
	}
	return Config{
		DataDir: t.TempDir(), Listen: list[0], Raft: list[1], Admin: list[2], Peers: peers,
		JoinToken: "0123456789abcdef", ReplicationFactor: 2, Shards: 1, Buckets: 16,
		RTT: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// TestWaitingForPeers: an instance whose peers are not there answers probes, names them, and waits
// until they come.
func TestWaitingForPeers(t *testing.T) {
	t.Parallel()
	a, b := onTCP(t), onTCP(t)
	a.Peers = []string{a.Raft, b.Raft}
	b.Peers = a.Peers
	type started struct {
		s   *Server
		err error
	}
	results := make(chan started, 2)
	start := func(cfg Config) {
		go func() {
			s, err := Start(t.Context(), cfg)
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
	t.Parallel()
	running := onTCP(t)
	running.ReplicationFactor = 1
	s, err := Start(t.Context(), running)
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
		s, err := Start(ctx, cfg)
		cancel()
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: it has started", x.what)
		} else if !strings.Contains(err.Error(), x.want) || ctx.Err() == context.DeadlineExceeded {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

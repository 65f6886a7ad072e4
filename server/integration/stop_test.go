package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/server/transport"
)

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.ShutdownTimeout = wait })
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	const n = 200
	var all []byte
	for i := range uint64(n) {
		c.seq++
		name := string(rune('a' + i%20))
		m := &protocol.Acquire{Head: protocol.Head{Session: r.Session, Seq: c.seq, Low: 1}, Name: []byte(name), Count: 1, Ephemeral: true}
		all = protocol.AppendFrame(all, protocol.KindAcquire, 1000+i, c.bucket(node, name), m)
	}
	c.write(all)
	await.True(t, "the requests to come in", func() bool {
		return s.Transport.Metrics.BytesIn.Get() > uint64(len(all))
	})
	stopped := make(chan error, 1)
	go func() { stopped <- shutdown(s) }()
	for i := range uint64(n) {
		if err := c.reply(protocol.KindAcquire, 1000+i, nil); err != nil {
			t.Fatalf("a request that came before the stop: %v", err)
		}
	}
	if g := c.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
	_ = c.nc.Close()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if nc, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = nc.Close()
		t.Fatal("a stopped server lets clients in")
	}
	<-s.Done()
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if err := shutdown(s); err != nil {
		t.Fatalf("the second stop: %v", err)
	}
}

// TestStopWithHeldCalls: calls that wait for units of a rate limit do not hold up the stop of an instance that is
// alone: they may wait for ever.
func TestStopWithHeldCalls(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.ShutdownTimeout = 10 * wait })
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1}) // a unit in 1,000 s
	c.join("api")
	if _, err := c.acquire("api", 1000); err != nil {
		t.Fatal(err)
	}
	c.send(protocol.KindLimitAcquire, c.tree("api"), &protocol.LimitAcquire{Session: c.id, Path: []byte("api"), Seq: 100, Amount: 1000, Hold: true,
		Leaves: []protocol.LimitNeed{{Path: []byte("api")}}})
	await.True(t, "the call waits", func() bool { return c.describe("api").Resources[0].Waiting > 0 })
	stopped := make(chan error, 1)
	go func() { stopped <- shutdown(s) }()
	if g := c.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
	_ = c.nc.Close()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// shutdown stops a server gracefully. On a busy machine closing may take longer than the stop, and
// is awaited.
func shutdown(s *instance) error {
	err := s.Shutdown(context.Background())
	if errors.Is(err, server.ErrClosing) {
		<-s.Done()
		return s.Err()
	}
	return err
}

// TestStopDoesNotWaitForClients: one that never closes and never reads does not hold the stop up.
func TestStopDoesNotWaitForClients(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.ShutdownTimeout = 200 * time.Millisecond })
	_ = connect(t, s)
	if err := shutdown(s); err != nil {
		t.Fatal(err)
	}
}

func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := server.Config{
		DataDir: dir, Listen: "127.0.0.1:0", Raft: port.ForTest(t), Admin: server.Off, Shards: 2, Buckets: 16,
		RTT: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	ctx := context.Background()
	s, err := startServer(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	busy := cfg
	busy.Listen = s.Addr()
	busy.DataDir = t.TempDir()
	busy.Raft = port.ForTest(t)
	if _, err := startServer(ctx, busy); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Fatalf("a port that is taken: %v", err)
	}
	links := t.TempDir()
	circle := filepath.Join(links, "circle")
	for name, to := range map[string]string{"nowhere": filepath.Join(links, "missing"), "circle": circle} {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for folder, want := range map[string]string{
		filepath.Join(links, "nowhere"): "no such file", circle: "too many", os.Args[0]: "not a directory",
		filepath.Join(os.Args[0], "x"): "not a directory",
	} {
		bad := cfg
		bad.DataDir, bad.Raft = folder, port.ForTest(t)
		if _, err := startServer(ctx, bad); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "choose a folder") {
			t.Errorf("data folder %s: %v, want %q and what to do", folder, err, want)
		}
	}
	twice := cfg
	twice.Raft = port.ForTest(t)
	if _, err := startServer(ctx, twice); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a folder that is taken: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	more := cfg
	more.Shards = 3 // it counts when a cluster is made
	if s, err = startServer(ctx, more); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Serving.Shards.All()); n != 2 {
		t.Fatalf("%d shards", n)
	}
	_ = s.Close()
	for name, bad := range map[string]func(*server.Config){
		"shards":  func(c *server.Config) { c.Shards = 65 },
		"buckets": func(c *server.Config) { c.Buckets = 1 << 17 },
		"address": func(c *server.Config) { c.Listen = "nowhere" },
		"window":  func(c *server.Config) { c.Limits.Window = -1 },
		"data":    func(c *server.Config) { c.Limits.MaxData = 2 << 20 },
		"bounds":  func(c *server.Config) { c.Limits.OutSoft = 8 << 20 },
		"total":   func(c *server.Config) { c.Limits.OutTotal = -1 },
	} {
		c := cfg
		bad(&c)
		if _, err := startServer(ctx, c); err == nil {
			t.Errorf("bad %s was taken", name)
		}
	}
}

// TestSlowReader: a client that reads nothing is cut at a bound of bytes, and with a metric; others
// do not notice.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const hard = 256 << 10
	s := start(t, func(c *server.Config) { c.Limits.OutSoft = 128 << 10; c.Limits.OutHard = hard })
	healthy, slow := connect(t, s), connect(t, s)
	asks := bytes.Repeat(protocol.AppendFrame(nil, protocol.KindNodeDescribe, 1<<40, 0, &protocol.NodeDescribe{Path: "/default"}), 1024)
	var held int64
	for s.Transport.Metrics.SlowReader.Get() == 0 {
		if slow.writeErr(asks) != nil {
			break
		}
		s.Requests.EachClient(func(c *request.Client) { held = max(held, int64(c.Waiting())) })
	}
	await.True(t, "the cut", func() bool { return s.Transport.Metrics.SlowReader.Get() == 1 })
	if held > 2*hard {
		t.Fatalf("%d bytes were held for a client that reads nothing; the bound is %d", held, hard)
	}
	await.True(t, "the connection to go", func() bool { return s.Transport.Connections() == 1 })
	slow.closed()
	healthy.ping()
}

// TestOldBytes: a client that reads too slowly is cut by age when the bytes are few.
func TestOldBytes(t *testing.T) {
	t.Parallel()
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) { clock = manual(c); c.Limits.OutHard = 64 << 20; c.Limits.OutSoft = 32 << 20 })
	healthy, slow := connect(t, s), connect(t, s)
	// Large answers to small requests fill the connection soon.
	node := healthy.node()
	large := protocol.Create{
		Head: healthy.head(healthy.session(node, 1).Session), Name: []byte("large"), Limit: 1, Data: make([]byte, 64<<10),
	}
	healthy.must(protocol.KindCreate, healthy.bucket(node, "large"), &large, nil)
	const burst = 8
	ask := protocol.Describe{Node: node, Name: large.Name}
	asks := bytes.Repeat(protocol.AppendFrame(nil, protocol.KindDescribe, 1<<40, healthy.bucket(node, "large"), &ask), burst)
	waiting := func() (n int) {
		s.Requests.EachClient(func(c *request.Client) { n += c.Waiting() })
		return n
	}
	answered := func() uint64 { n, _ := s.Metrics.Totals(); return n }
	for waiting() < 16<<20 { // more than the kernel takes, so that some stays
		want := answered() + burst
		slow.write(asks)
		// Requests beyond the window would be rejected, and a client that is rejected is paused for
		// as long as the clock stands still.
		await.True(t, "the answers", func() bool { return answered() >= want })
	}
	healthy.ping()
	await.True(t, "the cut", func() bool {
		clock.Advance(time.Second)
		healthy.ping()
		return s.Transport.Metrics.SlowReader.Get() == 1
	})
	await.True(t, "the connection to go", func() bool { return s.Transport.Connections() == 1 })
	slow.closed()
	healthy.ping()
}

// TestSlowStream: deltas stop at the soft bound; when the client reads again it gets a fresh
// snapshot.
func TestSlowStream(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.OutSoft = 128 << 10; c.Limits.OutHard = 8 << 20 })
	c, w := connect(t, s), connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	b := c.bucket(node, "cfg")
	d := s.shardAt(0, b)
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: []byte("cfg"), Limit: 1}, nil)
	id := w.send(protocol.KindWatch, b, &protocol.Watch{Shard: d.ID(), Node: node, Name: []byte("cfg")})
	w.event(protocol.KindSnapshot, nil)
	data := make([]byte, 100<<10)
	for i := byte(1); d.Hubs().Semaphores.Stats().FellBehind == 0; i++ {
		data[0] = i
		c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: []byte("cfg"), Data: data}, nil)
	}
	last := bytes.Repeat([]byte("last"), 10)
	c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: []byte("cfg"), Data: last}, nil)
	// The stream may have caught up before the last update, which then comes as a delta.
	fresh, got := false, false
	w.find("a fresh snapshot and the last data", func(h protocol.Header) bool {
		var snap protocol.Snapshot
		var delta protocol.Delta
		switch {
		case h.Kind == protocol.KindSnapshot && h.ID == id && protocol.DecodeBody(&snap, h.Body) == nil && snap.First && len(snap.Semaphores) == 1:
			fresh, got = true, bytes.Equal(snap.Semaphores[0].Data, last)
		case h.Kind == protocol.KindDelta && protocol.DecodeBody(&delta, h.Body) == nil && len(delta.Changes) == 1:
			got = bytes.Equal(delta.Changes[0].Data, last)
		}
		return fresh && got
	})
}

// TestManySlowStreams: clients that read nothing hold no more together than a few may each.
func TestManySlowStreams(t *testing.T) {
	t.Parallel()
	const total, slow, size = 512 << 10, 12, 64 << 10
	s := start(t, func(c *server.Config) { c.Limits.OutTotal = total; c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	b := c.bucket(node, "cfg")
	d := s.shardAt(0, b)
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: []byte("cfg"), Limit: 1}, nil)
	readers := make([]*raw, slow)
	for i := range readers {
		w := connect(t, s)
		w.send(protocol.KindWatch, b, &protocol.Watch{Shard: d.ID(), Node: node, Name: []byte("cfg")})
		w.event(protocol.KindSnapshot, nil)
		readers[i] = w
	}
	data, most := make([]byte, size), int64(0)
	// A stream can be behind for a moment before its socket's buffers are full: on until what waits
	// is over the total too.
	for i := 0; d.Hubs().Semaphores.Stats().FellBehind < slow || most < total; i++ {
		data[0], data[1] = byte(i), byte(i>>8)
		c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: []byte("cfg"), Data: data}, nil)
		most = max(most, s.Transport.UnreadBytes())
	}
	// Each may still get what was on its way to it, and pages while little waits for it.
	if bound := int64(total + slow*(transport.MinOutSoft+request.PageBytes+4*size)); most > bound {
		t.Errorf("%d bytes waited for %d slow readers, more than %d", most, slow, bound)
	}
	last := []byte("last")
	c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: []byte("cfg"), Data: last}, nil)
	// A stream that had caught up before gets it as a delta.
	for i, w := range readers {
		if i%2 == 0 {
			_ = w.nc.Close()
			continue
		}
		w.find("the last data", func(h protocol.Header) bool {
			var snap protocol.Snapshot
			var delta protocol.Delta
			return h.Kind == protocol.KindSnapshot && protocol.DecodeBody(&snap, h.Body) == nil && len(snap.Semaphores) == 1 &&
				bytes.Equal(snap.Semaphores[0].Data, last) ||
				h.Kind == protocol.KindDelta && protocol.DecodeBody(&delta, h.Body) == nil && len(delta.Changes) == 1 &&
					bytes.Equal(delta.Changes[0].Data, last)
		})
	}
	await.True(t, "nothing to wait any more", func() bool { return s.Transport.UnreadBytes() == 0 })
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Admin = "127.0.0.1:0" })
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a\n\"b", 0); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + s.AdminAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	code, body := get("/metrics")
	if code != 200 {
		t.Fatal(body)
	}
	for _, want := range []string{
		`signalbox_requests_total{kind="acquire",status="OK"} 1`,
		`signalbox_connections{listener="plain"} 1`,
		`signalbox_batch_commands_bucket`,
		`signalbox_semaphore_acquires_total{node="/default",semaphore="a\\n\\\"b"} 1`,
		`signalbox_semaphore_series_truncated 0`,
		`signalbox_shard_stuck_queues{shard="2"} 0`,
		`signalbox_shard_leading{shard="2"} 1`,
		`signalbox_panics_total 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	s.Requests.Drain()
	if code, _ := get("/readyz"); code != 503 {
		t.Errorf("ready while stopping: %d", code)
	}
}

package servertest_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) {
	// The event loop's package keeps a pool of workers for the life of the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// TestTime: time stands still but for Advance; a waiter times out, clients that are connected stay
// alive, silent ones expire.
func TestTime(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	owner, waiter := dial(t, srv), dial(t, srv)
	owner.start(10 * time.Second)
	waiter.start(10 * time.Second)
	owner.must(owner.createSemaphore("lock", 1, ""))
	if r, err := owner.acquire("lock", 0); err != nil || r.State != protocol.Acquired {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := waiter.acquire("lock", time.Minute); err != nil || r.State != protocol.Queued {
		t.Fatalf("%+v, %v", r, err)
	}
	srv.Advance(59 * time.Second)
	if d, err := waiter.describe("lock"); err != nil || len(d.Owners) != 1 || len(d.Waiters) != 1 {
		t.Fatalf("after 59 s: %+v, %v", d, err)
	}
	srv.Advance(2 * time.Second)
	var result protocol.AcquireResult
	waiter.must(waiter.await(protocol.KindAcquireResult, &result))
	if result.State != protocol.NotAcquired || result.Status != protocol.StatusOK {
		t.Fatalf("%+v", result)
	}

	srv.AdvanceSilent(11 * time.Second)
	late := dial(t, srv)
	if err := late.attach(owner); !errors.Is(err, protocol.StatusSessionExpired) {
		t.Fatalf("attach after a silence: %v", err)
	}
	if d, err := late.describe("lock"); err != nil || d.NumOwners != 0 {
		t.Fatalf("after a silence: %+v, %v", d, err)
	}
}

// TestKill: what was acknowledged survives, sessions included; clients come back to the same
// address.
func TestKill(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	addr, adminAddr := srv.Addr(), srv.AdminAddr()
	a := dial(t, srv)
	a.start(10 * time.Second)
	a.must(a.createSemaphore("config", 1, "v1"))
	if r, err := a.acquire("config", 0); err != nil || r.State != protocol.Acquired {
		t.Fatalf("%+v, %v", r, err)
	}
	srv.Kill()
	a.awaitSessionEnd()
	if srv.Running() {
		t.Fatal("still running")
	}
	srv.Restart()
	if srv.Addr() != addr || srv.AdminAddr() != adminAddr {
		t.Fatalf("addresses changed: %s %s, were %s %s", srv.Addr(), srv.AdminAddr(), addr, adminAddr)
	}
	b := dial(t, srv)
	b.must(b.attach(a))
	d, err := b.describe("config")
	if err != nil || string(d.Data) != "v1" || len(d.Owners) != 1 || d.Owners[0].Session != a.session {
		t.Fatalf("%+v, %v", d, err)
	}
}

// TestStop: an orderly stop says goodbye.
func TestStop(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(1))
	a := dial(t, srv)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var bye protocol.Goodbye
		if err := a.await(protocol.KindGoodbye, &bye); err != nil {
			t.Error(err)
		}
		_ = a.c.Close()
	}()
	srv.Stop()
	<-stopped
	srv.Restart()
	_ = dial(t, srv).c.Close()
	srv.Restart() // of a running one
	dial(t, srv)
}

// TestNetwork: dropped connections, a server out of reach, answers held up.
func TestNetwork(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(1))
	a := dial(t, srv)
	srv.DropConnections()
	a.awaitSessionEnd()

	b := dial(t, srv)
	b.start(10 * time.Second)
	srv.Pause()
	b.send(protocol.KindCreate, b.bucket("x"), &protocol.Create{Head: b.head(), Name: []byte("x"), Limit: 1})
	srv.Advance(time.Second) // returns when the request was carried out
	srv.Resume()
	b.must(b.answer(protocol.KindCreate, b.id, nil))

	srv.Pause()
	b.send(protocol.KindPing, 0, nil)
	srv.Unreachable()
	b.awaitSessionEnd()
	if c, err := net.Dial("tcp", srv.Addr()); err == nil {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatalf("somebody says %d bytes", n)
		}
		_ = c.Close()
	}
	srv.Advance(11 * time.Second)
	srv.Reachable()
	srv.Resume()
	c := dial(t, srv)
	if err := c.attach(b); !errors.Is(err, protocol.StatusSessionExpired) {
		t.Fatalf("attach after the timeout: %v", err)
	}
}

// TestFolder: data on disk, in real time.
func TestFolder(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Folder(t.TempDir()), servertest.RealTime(), servertest.Shards(2))
	a := dial(t, srv)
	a.start(10 * time.Second)
	a.must(a.createSemaphore("x", 7, ""))
	if r, err := a.acquire("x", 0); err != nil || r.State != protocol.Acquired {
		t.Fatalf("%+v, %v", r, err)
	}
	w := dial(t, srv)
	w.start(10 * time.Second)
	w.must(w.createSemaphore("y", 1, ""))
	for i, r := range []*rawClient{a, w} {
		if got, err := r.acquire("y", 50*time.Millisecond); err != nil ||
			got.State != []protocol.AcquireState{protocol.Acquired, protocol.Queued}[i] {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	var result protocol.AcquireResult
	w.must(w.await(protocol.KindAcquireResult, &result)) // time passes by itself
	srv.Kill()
	srv.Restart()
	b := dial(t, srv)
	if d, err := b.describe("x"); err != nil || d.Limit != 7 || len(d.Owners) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
}

// TestOutsideTests: New, options, the admin pages, Close, and misuse.
func TestOutsideTests(t *testing.T) {
	t.Parallel()
	srv := servertest.New(servertest.RealTime(), servertest.Shards(1), servertest.Config(func(c *server.Config) { c.Limits.MaxData = 100 }))
	defer srv.Close()
	resp, err := http.Get("http://" + srv.AdminAddr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	a := dial(t, srv)
	a.start(time.Minute)
	if err := a.createSemaphore("x", 1, strings.Repeat("d", 101)); !errors.Is(err, protocol.StatusBadRequest) {
		t.Fatalf("data over the configured limit: %v", err)
	}
	for what, misuse := range map[string]func(){
		"advance in real time":       func() { srv.Advance(time.Second) },
		"restart after it is closed": func() { srv.Close(); srv.Restart() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", what)
				}
			}()
			misuse()
		}()
	}
	srv.Close()
}

// BenchmarkStart measures what a test pays.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		servertest.New().Close()
	}
}

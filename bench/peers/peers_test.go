package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// servers are the systems that are there, by name; the others are skipped, by name.
func servers(t *testing.T) map[string]*bench.Server {
	t.Helper()
	out := map[string]*bench.Server{}
	for _, p := range all(filepath.Join("..", "..", "bin")) {
		switch p.(type) {
		case *etcd, *zooKeeper, *redisServer:
		default:
			continue
		}
		if v, err := p.Version(t.Context()); err != nil {
			t.Logf("%s is missing: %v", p.Name(), err)
			continue
		} else {
			t.Logf("%s: %s", p.Name(), v)
		}
		dir := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := p.Start(t.Context(), dir)
		if err != nil {
			t.Errorf("%s: %v", p.Name(), err)
			continue
		}
		t.Cleanup(s.Stop)
		out[p.Name()] = s
		if c, ok := p.(bench.ClusterSystem); ok {
			if dir = filepath.Join(t.TempDir(), "three"); os.Mkdir(dir, 0o700) != nil {
				t.Fatal("no folder")
			}
			if s, err = c.StartCluster(t.Context(), dir); err != nil {
				t.Errorf("three servers of %s: %v", p.Name(), err)
				continue
			}
			t.Cleanup(s.Stop)
			out[p.Name()+", three"] = s
		}
	}
	if len(out) == 0 {
		t.Skip("no system is installed")
	}
	return out
}

// TestWatchOfSilentServer: a watch of Redis ends with its context, also while a server that took
// the connection does not answer.
func TestWatchOfSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	plan, err := redisPlan(bench.GoRedis, l.Addr().String(), bench.OwnWatchers)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, t.Context(), plan)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.(loadgen.CanWatch).Watch(ctx, "name", func([]byte) {}) }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil { // of the handshake
		t.Fatal(err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

func session(t *testing.T, ctx context.Context, plan bench.Plan) loadgen.Session {
	t.Helper()
	c, err := plan.Target.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSystemsDoTheirWork: what is measured is done. A lock that does not exclude, or a watch that
// misses the last change, would be fast.
func TestSystemsDoTheirWork(t *testing.T) {
	for name, s := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if plan, err := s.Plan(bench.Handoffs); err == nil {
				excludes(t, ctx, plan)
				givesUp(t, ctx, plan)
			}
			if plan, err := s.Plan(bench.LockPairs); err == nil {
				x := session(t, ctx, plan).(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{})
				for range 3 {
					held, err := x.Acquire(ctx, "a/lock")
					if err != nil {
						t.Fatal(err)
					}
					if err := held.Release(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			if plan, err := s.Plan(bench.Reads); err == nil {
				x := session(t, ctx, plan)
				if err := x.(loadgen.CanStore).Create(ctx, "kept/name", []byte("data")); err != nil {
					t.Fatal(err)
				}
				for _, strict := range []bool{true, false} {
					if err := x.(loadgen.CanRead).Reader(strict).Read(ctx, "kept/name"); err != nil {
						t.Errorf("reading, strict %v: %v", strict, err)
					}
				}
			}
			for _, w := range []bench.Workload{bench.Watchers, bench.OwnWatchers} {
				if plan, err := s.Plan(w); err == nil {
					sees(t, ctx, plan, fmt.Sprint("watched-", w))
				}
			}
			if plan, err := s.Plan(bench.SessionStarts); err == nil {
				if l, ok := session(t, ctx, plan).(loadgen.CanReportLiveness); ok && !l.Alive() {
					t.Error("a session has just started, and is over")
				}
			}
		})
	}
}

// excludes: several contenders, never two inside.
func excludes(t *testing.T, ctx context.Context, plan bench.Plan) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	inside, entered := 0, 0
	for range 4 {
		h := session(t, ctx, plan).(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{})
		wg.Go(func() {
			for range 5 {
				held, err := h.Acquire(ctx, "contended/lock")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				entered++
				if inside > 1 {
					t.Error("two hold the lock")
				}
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				if err := held.Release(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if entered != 20 {
		t.Errorf("%d of 20 entered", entered)
	}
}

// givesUp: an acquire ends with its context while another holds the lock, and keeps nobody from it.
func givesUp(t *testing.T, ctx context.Context, plan bench.Plan) {
	t.Helper()
	var all []loadgen.Acquirer
	for range 3 {
		all = append(all, session(t, ctx, plan).(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{}))
	}
	held, err := all[0].Acquire(ctx, "left/lock")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := all[1].Acquire(short, "left/lock"); err == nil || ctx.Err() != nil {
		t.Fatalf("an acquire was given up while another held the lock, and ended with %v", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if held, err = all[2].Acquire(ctx, "left/lock"); err != nil {
		t.Fatalf("after one that was given up: %v", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// observer watches as the bench does: without a session where the system can.
func observer(t *testing.T, ctx context.Context, plan bench.Plan) loadgen.Session {
	t.Helper()
	c, err := plan.Target.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	o, ok := c.(loadgen.CanObserve)
	if !ok {
		return session(t, ctx, plan)
	}
	s, err := o.Observer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sees: two watchers of one session, one of another and an observer see the last change.
func sees(t *testing.T, ctx context.Context, plan bench.Plan, name string) {
	t.Helper()
	one, two := session(t, ctx, plan), session(t, ctx, plan)
	if err := one.(loadgen.CanStore).Create(ctx, name, []byte("begin")); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	var begun, last, ended sync.WaitGroup
	for _, s := range []loadgen.Session{one, one, two, observer(t, ctx, plan)} {
		ready, done := sync.OnceFunc(begun.Done), sync.OnceFunc(last.Done)
		begun.Add(1)
		last.Add(1)
		ended.Go(func() {
			_ = s.(loadgen.CanWatch).Watch(watching, name, func(data []byte) {
				ready()
				if string(data) == "end" {
					done()
				}
			})
		})
	}
	begun.Wait()
	for _, data := range []string{"middle", "end"} {
		if err := two.(loadgen.CanStore).Write(ctx, name, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	last.Wait() // a watcher that misses it hangs, and the test's own timeout says so
	stop()
	ended.Wait()
}

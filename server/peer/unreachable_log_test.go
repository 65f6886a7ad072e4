package peer

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// TestUnreachableInstanceIsWarnedOfUnlessItStoppedAsPlanned: b was reached, and goes.
func TestUnreachableInstanceIsWarnedOfUnlessItStoppedAsPlanned(t *testing.T) {
	const message = 1
	type fixture struct {
		t       *testing.T
		net     *memorynet.Network
		stopped atomic.Bool // as far as a knows
		b       *Transport
		start   func(change func(*Config)) // of b
		pass    func(time.Duration)        // a has messages for b meanwhile
	}
	tests := []struct {
		name string
		do   func(x *fixture)
		want string // part of the only warning; empty: there is none
	}{
		{"known before", func(x *fixture) {
			x.stopped.Store(true)
			_ = x.b.Close()
			x.pass(time.Minute)
		}, ""},
		{"known a second later", func(x *fixture) {
			_ = x.b.Close()
			x.pass(time.Second)
			x.stopped.Store(true)
			x.pass(time.Minute)
		}, ""},
		{"back sooner than known", func(x *fixture) {
			_ = x.b.Close()
			x.pass(time.Second)
			x.start(nil)
			x.pass(time.Minute)
		}, ""},
		{"ends while it accepts", func(x *fixture) {
			x.stopped.Store(true)
			_ = x.b.Close()
			l, err := x.net.Endpoint("b:1").Listen("b:1")
			if err != nil {
				x.t.Fatal(err)
			}
			accepted := make(chan int)
			go func() {
				for n := 0; ; n++ {
					nc, err := l.Accept()
					if err != nil {
						accepted <- n
						return
					}
					_ = nc.Close()
				}
			}()
			x.pass(time.Minute)
			_ = l.Close()
			if <-accepted == 0 {
				x.t.Error("b accepts nothing")
			}
		}, ""},
		{"not planned", func(x *fixture) {
			_ = x.b.Close()
			x.pass(5 * time.Second)
		}, "connection refused"},
		{"does not answer", func(x *fixture) {
			x.net.CutBoth("a:1", "b:1")
			x.pass(time.Minute)
			x.net.HealAll()
		}, "deadline exceeded"},
		{"failed after it came back", func(x *fixture) {
			x.stopped.Store(true)
			_ = x.b.Close()
			x.pass(time.Minute)
			x.stopped.Store(false)
			x.pass(time.Minute)
		}, "connection refused"},
		{"comes back with another token", func(x *fixture) {
			x.stopped.Store(true)
			_ = x.b.Close()
			x.start(func(c *Config) { c.Tokens = [][]byte{[]byte("another")} })
			x.pass(time.Minute)
		}, ErrToken.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &fixture{t: t, net: memorynet.New()}
				var logs lockedBuffer
				cfg := memoryConfig(x.net, "a:1")
				cfg.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
				cfg.Stopped = func(address string) bool { return address == "b:1" && x.stopped.Load() }
				a := startTransport(t, cfg, nil)
				var arrived atomic.Int64
				x.start = func(change func(*Config)) {
					cfg := memoryConfig(x.net, "b:1")
					if change != nil {
						change(&cfg)
					}
					x.b = startTransport(t, cfg, func(m *Transport) {
						m.HandleMessage(message, func(string, []byte) { arrived.Add(1) })
					})
				}
				x.pass = func(d time.Duration) {
					for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
						a.Send("b:1", message, nil)
					}
				}
				x.start(nil)
				x.pass(time.Second)
				if arrived.Load() == 0 {
					t.Fatal("a did not reach b")
				}
				test.do(x)
				got := logs.String()
				if test.want == "" && got != "" || test.want != "" && strings.Count(got, "\n") != 1 ||
					!strings.Contains(got, test.want) {
					t.Errorf("warnings %q, want one with %q, none if that is empty", got, test.want)
				}
			})
		})
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

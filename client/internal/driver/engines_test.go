package driver_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// engine opens clients with a session each.
type engine struct {
	name string
	open func(ctx context.Context, endpoints []string) (pairer, error)
}

// pairer acquires and releases a name, as often as it is asked to.
type pairer interface {
	pair(ctx context.Context, name string) error
	close()
}

// deadline of each call, as programs have one.
const deadline = 10 * time.Second

type ofClient struct {
	c *client.Client
	s *client.Session
}

func (x ofClient) close() { x.c.CloseWithoutRelease() }

func (x ofClient) pair(ctx context.Context, name string) error {
	acquiring, cancel := context.WithTimeout(ctx, deadline)
	l, err := x.s.Acquire(acquiring, name, client.Exclusive())
	cancel()
	if err != nil {
		return err
	}
	releasing, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return l.Release(releasing)
}

type ofDriver struct {
	d *driver.Driver
	s *core.Session
}

func (x ofDriver) close() { x.d.Close() }

func (x ofDriver) pair(ctx context.Context, name string) error {
	acquiring, cancel := context.WithTimeout(ctx, deadline)
	l, err := x.d.Acquire(acquiring, x.s, name, driver.AcquireOptions{
		Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true,
	})
	cancel()
	if err != nil {
		return err
	}
	releasing, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return x.d.Release(releasing, l)
}

var engines = []engine{
	{"client", func(ctx context.Context, endpoints []string) (pairer, error) {
		s, err := client.OpenSession(ctx, client.Config{Endpoints: endpoints}, "/default")
		if err != nil {
			return nil, err
		}
		return ofClient{s.Client(), s}, nil
	}},
	{"core", func(ctx context.Context, endpoints []string) (pairer, error) {
		d, s, err := driver.Open(ctx, driver.Config{Endpoints: endpoints},
			driver.SessionConfig{Path: "/default", Timeout: client.DefaultTimeout})
		if err != nil {
			return nil, err
		}
		return ofDriver{d, s}, nil
	}},
}

// endpoints are those of a running cluster that SIGNALBOX_ENDPOINTS names, or of a server in this
// process, with which the figures are only good for a look.
func endpoints(b *testing.B) []string {
	if list := os.Getenv("SIGNALBOX_ENDPOINTS"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{servertest.Start(b).Addr()}
}

// BenchmarkEngines compares the SDK with this engine, as the bars of the project are measured:
// pairs of many callers over few connections and over one, of callers with a connection each, of
// one caller, and starts of sessions on new connections.
func BenchmarkEngines(b *testing.B) {
	addresses := endpoints(b)
	for _, x := range []struct {
		name           string
		clients, calls int
	}{
		{"callers=1024/conns=4", 4, 1024}, {"callers=1024/conns=1", 1, 1024},
		{"callers=256/conns=256", 256, 256}, {"callers=1/conns=1", 1, 1},
	} {
		for _, e := range engines {
			b.Run(x.name+"/"+e.name, func(b *testing.B) { benchmarkPairs(b, e, addresses, x.clients, x.calls) })
		}
	}
	for _, e := range engines {
		b.Run("starts/"+e.name, func(b *testing.B) { benchmarkStarts(b, e, addresses) })
	}
}

func benchmarkPairs(b *testing.B, e engine, addresses []string, clients, callers int) {
	ctx := b.Context()
	list := make([]pairer, clients)
	for i := range list {
		x, err := e.open(ctx, addresses)
		if err != nil {
			b.Fatal(err)
		}
		defer x.close()
		list[i] = x
	}
	before := usedCPU()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			x, name := list[w%clients], fmt.Sprintf("lock-%d", w)
			for next.Add(1) <= int64(b.N) {
				if err := x.pair(ctx, name); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((usedCPU()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func benchmarkStarts(b *testing.B, e engine, addresses []string) {
	ctx := b.Context()
	list := make([]pairer, b.N)
	defer func() {
		for _, x := range list {
			if x != nil {
				x.close()
			}
		}
	}()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 * runtime.GOMAXPROCS(0) / 2 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				x, err := e.open(ctx, addresses)
				if err != nil {
					b.Error(err)
					return
				}
				list[i-1] = x
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// usedCPU is the processor time of this process.
func usedCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

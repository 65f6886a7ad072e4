package integration

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// pairs makes a client that locks and unlocks names of its own, window of them at a time, and
// counts the pairs.
type pairs struct {
	c       *raw
	node    uint64
	session uint64
	names   [][]byte
	buckets []uint64
	out     []byte
}

func newPairs(b testing.TB, s *instance, n, window int) *pairs {
	c := connect(b, s)
	p := &pairs{c: c, node: c.node()}
	p.session = c.session(p.node, uint64(n)).Session
	for i := range window {
		name := fmt.Sprintf("%d/%d", n, i)
		p.names = append(p.names, []byte(name))
		p.buckets = append(p.buckets, c.bucket(p.node, name))
	}
	return p
}

func (p *pairs) round(tb testing.TB) {
	for _, kind := range []protocol.Kind{protocol.KindAcquire, protocol.KindRelease} {
		p.out = p.out[:0]
		low := p.c.seq + 1
		for i, name := range p.names {
			p.c.seq++
			head := protocol.Head{Session: p.session, Seq: p.c.seq, Low: low}
			p.c.nextID++
			if kind == protocol.KindAcquire {
				p.out = protocol.AppendFrame(p.out, kind, p.c.nextID, p.buckets[i],
					&protocol.Acquire{Head: head, Name: name, Count: 1, Ephemeral: true})
			} else {
				p.out = protocol.AppendFrame(p.out, kind, p.c.nextID, p.buckets[i], &protocol.Release{Head: head, Name: name})
			}
		}
		p.c.write(p.out)
		for got := 0; got < len(p.names); {
			h, err := p.c.next()
			if err != nil {
				tb.Error(err)
				return
			}
			if h.Kind == kind|protocol.KindReply {
				if h.Arg != 0 {
					tb.Errorf("%v: %v", kind, protocol.Status(h.Arg))
					return
				}
				got++
			}
		}
	}
}

// BenchmarkPairs: lock and unlock of distinct names. The log is on disk and synced.
func BenchmarkPairs(b *testing.B) {
	for _, v := range []struct{ conns, window int }{{1, 1}, {256, 1}, {4, 64}, {4, 256}} {
		b.Run(fmt.Sprintf("conns=%d/window=%d", v.conns, v.window), func(b *testing.B) {
			s := start(b, func(c *server.Config) {
				c.Memory, c.Raft, c.DataDir, c.Shards, c.Buckets, c.RTT = false, port.ForTest(b), b.TempDir(), 1, 4096, 100*time.Millisecond
			})
			clients := make([]*pairs, v.conns)
			for i := range clients {
				clients[i] = newPairs(b, s, i, v.window)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			rounds := max(1, b.N/(v.conns*v.window))
			for _, p := range clients {
				wg.Go(func() {
					for range rounds {
						p.round(b)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(rounds*v.conns*v.window)/b.Elapsed().Seconds(), "pairs/s")
			b.ReportMetric(float64(s.Transport.Metrics.Writes.Get())/float64(rounds*v.conns*v.window), "writes/pair")
		})
	}
}

// BenchmarkDescribe: reads of one semaphore.
func BenchmarkDescribe(b *testing.B) {
	for _, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed} {
		b.Run(map[protocol.Consistency]string{protocol.Strict: "strict", protocol.Relaxed: "relaxed"}[consistency], func(b *testing.B) {
			s := start(b, func(c *server.Config) { c.Shards = 1 })
			c := connect(b, s)
			node := c.node()
			r := c.session(node, 1)
			if _, err := c.lock(node, r.Session, "a", 0); err != nil {
				b.Fatal(err)
			}
			const conns, window = 4, 64
			b.ResetTimer()
			var wg sync.WaitGroup
			rounds := max(1, b.N/(conns*window))
			for range conns {
				x := connect(b, s)
				wg.Go(func() {
					var out []byte
					for i := range window {
						out = protocol.AppendFrame(out, protocol.KindDescribe, uint64(i), x.bucket(node, "a"), &protocol.Describe{
							Node: node, Name: []byte("a"), Flags: protocol.WithOwners, Consistency: consistency,
						})
					}
					for range rounds {
						x.write(out)
						for range window {
							if h, err := x.next(); err != nil || h.Arg != 0 {
								b.Errorf("%v %v", err, protocol.Status(h.Arg))
								return
							}
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(rounds*conns*window)/b.Elapsed().Seconds(), "reads/s")
		})
	}
}

// BenchmarkIdle: memory of connections with a session each, in bytes a session, server only.
func BenchmarkIdle(b *testing.B) {
	s := start(b, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	node := connect(b, s).node()
	const n = 2000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	clients := make([]net.Conn, 0, n)
	before := heap()
	for i := range n {
		c := connect(b, s)
		c.session(node, uint64(i))
		clients = append(clients, c.nc)
	}
	b.ReportMetric(float64(heap()-before)/n, "B/session") // the client's side included
	for _, nc := range clients {
		_ = nc.Close()
	}
}

package peer

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// newEngineTCP is the engine's own TCP transport, to compare with. It is internal there.
//
//go:linkname newEngineTCP github.com/lni/dragonboat/v4/internal/transport.NewTCPTransport
func newEngineTCP(config.NodeHostConfig, raftio.MessageHandler, raftio.ChunkHandler) raftio.ITransport

// wire is two ends of a transport.
type wire struct {
	ends  [2]raftio.ITransport
	addrs [2]string
	on    [2]atomic.Pointer[func(raftpb.MessageBatch)]
}

func (w *wire) handle(end int, f func(raftpb.MessageBatch)) { w.on[end].Store(&f) }

func (w *wire) conn(b *testing.B, from int) raftio.IConnection {
	c, err := w.ends[from].GetConnection(context.Background(), w.addrs[1-from])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

// transports runs a benchmark with the engine's TCP, the transport over TCP, and the transport in
// memory. The engine's buffers of 2 MiB per connection make the heap of a benchmark so large that
// it is collected less often; with rare collections for all, that makes no difference.
func transports(b *testing.B, f func(b *testing.B, w *wire)) {
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	for _, kind := range []string{"engine", "transport", "memory"} {
		b.Run(kind, func(b *testing.B) {
			w := &wire{}
			n := memorynet.New()
			for i := range w.ends {
				handler := func(x raftpb.MessageBatch) { (*w.on[i].Load())(x) }
				chunks := func(raftpb.Chunk) bool { return true }
				switch kind {
				case "engine":
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						b.Fatal(err)
					}
					w.addrs[i] = l.Addr().String()
					_ = l.Close()
					w.ends[i] = newEngineTCP(config.NodeHostConfig{RaftAddress: w.addrs[i]}, handler, chunks)
				default:
					cfg := tcpConfig(b)
					if kind == "memory" {
						cfg = memoryConfig(n, fmt.Sprintf("end-%d:1", i))
					}
					w.addrs[i] = cfg.Advertise
					w.ends[i] = startTransport(b, cfg,
						nil).RaftTransport().Create(config.NodeHostConfig{RaftAddress: w.addrs[i]}, handler, chunks)
				}
				if err := w.ends[i].Start(); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = w.ends[i].Close() })
			}
			f(b, w)
		})
	}
}

func benchBatch(from string, messages, entries, size int) raftpb.MessageBatch {
	x := raftpb.MessageBatch{SourceAddress: from, BinVer: raftio.TransportBinVersion}
	cmd := bytes.Repeat([]byte("x"), size)
	for i := range messages {
		m := raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: uint64(i), Term: 3}
		for j := range entries {
			m.Entries = append(m.Entries, raftpb.Entry{Term: 3, Index: uint64(j), Cmd: cmd})
		}
		x.Requests = append(x.Requests, m)
	}
	return x
}

// BenchmarkRaftPingPong: one small batch there and one back.
func BenchmarkRaftPingPong(b *testing.B) {
	transports(b, func(b *testing.B, w *wire) {
		there, back := w.conn(b, 0), w.conn(b, 1)
		question, answer := benchBatch(w.addrs[0], 1, 1, 128), benchBatch(w.addrs[1], 1, 0, 0)
		got := make(chan struct{}, 1)
		w.handle(1, func(raftpb.MessageBatch) { _ = back.SendMessageBatch(answer) })
		w.handle(0, func(raftpb.MessageBatch) { got <- struct{}{} })
		b.ReportAllocs()
		for b.Loop() {
			if err := there.SendMessageBatch(question); err != nil {
				b.Fatal(err)
			}
			<-got
		}
	})
}

// BenchmarkRaftThroughput: four senders, as the engine has them, one way.
func BenchmarkRaftThroughput(b *testing.B) {
	for _, size := range []struct{ messages, entries, bytes int }{{1, 1, 128}, {4, 8, 256}, {1, 1, 1 << 20}} {
		b.Run(fmt.Sprintf("%dx%dx%d", size.messages, size.entries, size.bytes), func(b *testing.B) {
			transports(b, func(b *testing.B, w *wire) {
				batch := benchBatch(w.addrs[0], size.messages, size.entries, size.bytes)
				var left atomic.Int64
				left.Store(int64(b.N))
				done := make(chan struct{})
				w.handle(1, func(raftpb.MessageBatch) {
					if left.Add(-1) == 0 {
						close(done)
					}
				})
				var conns [4]raftio.IConnection
				for i := range conns {
					conns[i] = w.conn(b, 0)
				}
				b.SetBytes(int64(batch.Size()))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				var next atomic.Int64
				for _, c := range conns {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if err := c.SendMessageBatch(batch); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				<-done
			})
		})
	}
}

// BenchmarkCall: a call and its answer.
func BenchmarkCall(b *testing.B) {
	a := startTransport(b, tcpConfig(b), nil)
	to := startTransport(b, tcpConfig(b), handlers(nil, nil))
	body := make([]byte, 128)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Call(context.Background(), to.Address(), echo, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := a.Call(context.Background(), to.Address(), echo, body); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

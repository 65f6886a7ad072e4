package replica

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// benchSink wakes one waiting goroutine per connection.
type benchSink struct {
	leading chan struct{}
	done    [1 << 12]chan struct{}
}

func newBenchSink() *benchSink {
	k := &benchSink{leading: make(chan struct{}, 1)}
	for i := range k.done {
		k.done[i] = make(chan struct{}, 1)
	}
	return k
}

func (k *benchSink) Applied(_ *Shard, _ uint64, origins []Origin, _ *shard.Events) {
	for i := range origins {
		if c := origins[i].Conn; c != 0 {
			k.done[c] <- struct{}{}
		}
	}
}

func (k *benchSink) Failed(_ *Shard, origins []Origin, _ protocol.Status) {
	panic("a batch failed in a benchmark")
}

func (k *benchSink) LeaderChanged(_ *Shard, _ uint64, leading bool) {
	if leading {
		select {
		case k.leading <- struct{}{}:
		default: // transferred and back
		}
	}
}
func (k *benchSink) Pong(*Shard, uint64, uint64) {}
func (k *benchSink) Cut(*Shard, uint64, string)  {}
func (k *benchSink) Detach(*Shard, uint64)       {}

// benchShards starts shards on a real disk: what is measured syncs.
func benchShards(b *testing.B, n int) ([]*Shard, []*benchSink) {
	b.Helper()
	h, err := OpenHost(HostConfig{Dir: b.TempDir(), Transport: NewMemoryNet(), RaftAddress: "bench:1",
		Logger: quiet(), RTT: 50 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	})
	var shards []*Shard
	var sinks []*benchSink
	for i := range n {
		k := newBenchSink()
		s, err := h.StartShard(ShardConfig{ID: uint64(i + 1), Replica: 1,
			Members: map[uint64]string{1: h.RaftAddress()}, Sink: k})
		if err != nil {
			b.Fatal(err)
		}
		shards, sinks = append(shards, s), append(sinks, k)
	}
	for _, k := range sinks {
		<-k.leading
	}
	return shards, sinks
}

// benchBody is a request that the machine refuses after having read it: the engine and the queue
// are measured here.
func benchBody() []byte {
	m := protocol.Release{Head: protocol.Head{Session: 1, Seq: 1, Low: 1}, Name: []byte("a semaphore of some length")}
	return m.AppendBody(nil)
}

// BenchmarkEngineAlone is the measure: one fsynced proposal of the bare engine after another.
func BenchmarkEngineAlone(b *testing.B) {
	shards, _ := benchShards(b, 1)
	s := shards[0]
	entry := shard.AppendCommand(shard.AppendHeader(nil, shard.Header{Format: shard.FormatVersion, Epoch: s.Stats().Epoch, Seq: 1 << 40}),
		shard.Command{Kind: shard.CmdRelease, Body: benchBody()})
	for b.Loop() {
		r, err := s.host.engine.ProposeRequest(s.session, entry, patience)
		if err != nil {
			b.Fatal(err)
		}
		if res := <-r.AppliedC(); !res.Completed() {
			b.Fatalf("%+v", res)
		}
		r.Release()
	}
}

func BenchmarkOneCaller(b *testing.B) {
	shards, sinks := benchShards(b, 1)
	s, k := shards[0], sinks[0]
	c := shard.Command{Kind: shard.CmdRelease, Body: benchBody()}
	for b.Loop() {
		if st := s.Submit(c, Origin{Conn: 1}); st != protocol.StatusOK {
			b.Fatal(st)
		}
		<-k.done[1]
	}
}

func BenchmarkCallers256(b *testing.B)         { benchCallers(b, 1, 256) }
func BenchmarkCallers1024(b *testing.B)        { benchCallers(b, 1, 1024) }
func BenchmarkShards4Callers256(b *testing.B)  { benchCallers(b, 4, 256) }
func BenchmarkShards16Callers256(b *testing.B) { benchCallers(b, 16, 256) }
func BenchmarkShards64Callers256(b *testing.B) { benchCallers(b, 64, 256) }

// Three replicas of each shard in one process, on real directories: each entry is synced three
// times by one machine.
func BenchmarkThreeOneCaller(b *testing.B)         { benchThree(b, 1, 1) }
func BenchmarkThreeCallers256(b *testing.B)        { benchThree(b, 1, 256) }
func BenchmarkThreeCallers1024(b *testing.B)       { benchThree(b, 1, 1024) }
func BenchmarkThreeShards4Callers256(b *testing.B) { benchThree(b, 4, 256) }

func benchThree(b *testing.B, nshards, ncallers int) {
	net := NewMemoryNet()
	members := make(map[uint64]string)
	for i := range uint64(3) {
		members[i+1] = fmt.Sprintf("bench-%d:1", i)
	}
	// The first replica's shards are made the leaders'.
	leaders, sinks := make([]*Shard, nshards), make([]*benchSink, nshards)
	var hosts []*Host
	for i := range uint64(3) {
		cfg := HostConfig{Dir: b.TempDir(), RaftAddress: members[i+1], Transport: net, Logger: quiet()}
		h, err := OpenHost(cfg)
		if err != nil {
			b.Fatal(err)
		}
		hosts = append(hosts, h)
		b.Cleanup(func() { closeHost(b, h) })
	}
	all := make([][]*Shard, 3)
	for i, h := range hosts {
		for n := range nshards {
			k := newBenchSink()
			s, err := h.StartShard(ShardConfig{ID: uint64(n + 1), Replica: uint64(i + 1), Members: members, Sink: k})
			if err != nil {
				b.Fatal(err)
			}
			all[i] = append(all[i], s)
			if i == 0 {
				leaders[n], sinks[n] = s, k
			}
		}
	}
	for n := range nshards {
		eventually(b, "the first replica to lead", func() bool {
			for i := range hosts {
				if i > 0 && all[i][n].Leading() {
					_ = hosts[i].Transfer(timeout(b), uint64(n+1), 1, 0)
				}
			}
			return all[0][n].Leading()
		})
	}
	benchOn(b, leaders, sinks, ncallers)
}

// benchCallers has callers wait for their own outcomes, on each shard.
func benchCallers(b *testing.B, nshards, ncallers int) {
	shards, sinks := benchShards(b, nshards)
	benchOn(b, shards, sinks, ncallers)
}

func benchOn(b *testing.B, shards []*Shard, sinks []*benchSink, ncallers int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, s := range shards {
		for w := range ncallers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c := shard.Command{Kind: shard.CmdRelease, Body: benchBody()}
				for left.Add(-1) >= 0 {
					if st := s.Submit(c, Origin{Conn: uint64(w + 1)}); st != protocol.StatusOK {
						b.Error(st)
						return
					}
					<-sinks[i].done[w+1]
				}
			}()
		}
	}
	wg.Wait()
	b.StopTimer()
	var commands, batches uint64
	for _, s := range shards {
		st := s.Stats()
		commands, batches = commands+st.Commands, batches+st.Batches
	}
	b.ReportMetric(float64(commands)/float64(batches), "commands/batch")
}

func BenchmarkBarrier(b *testing.B) {
	shards, _ := benchShards(b, 1)
	c := make(chan bool, 1)
	for b.Loop() {
		shards[0].Barrier(func(ok bool) { c <- ok })
		if !<-c {
			b.Fatal("barrier fails")
		}
	}
}

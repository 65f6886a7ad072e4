package shard

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// BenchmarkPairs is acquire and release on distinct names, 64 pairs a batch; n counts pairs.
func BenchmarkPairs(b *testing.B) {
	for _, size := range []int{1_000, 1_000_000} {
		for _, kind := range []string{"existing", "ephemeral"} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				x := newBenchMachine(256)
				names := fill(x, size)
				if kind == "ephemeral" {
					for i := range names {
						names[i] = append([]byte("eph/"), names[i]...)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += 64 {
					x.begin()
					for j := range 64 {
						s := (i + j) % 256
						name := names[(i+j)*7919%len(names)]
						x.acquire(s, name, kind == "ephemeral")
						x.release(s, name)
					}
					x.commit()
				}
			})
		}
	}
}

// BenchmarkRemotePairs is a pair of sessions at home elsewhere, 64 pairs a batch, over 64 shards
// with 16,384 sessions each: more than the processor's caches have. In "first" most pairs are the
// first of their session in the shard; in "again" none is.
func BenchmarkRemotePairs(b *testing.B) {
	const shards, sessions = 64, 16_384
	for _, kind := range []string{"first", "again"} {
		b.Run(kind, func(b *testing.B) {
			var all [shards]*benchMachine
			at := 0
			batch := func() {
				if at%(shards*sessions) == 0 && (kind == "first" || at == 0) {
					for i := range all {
						all[i] = newRemoteBenchMachine(sessions)
					}
				}
				x := all[at/64%shards]
				x.begin()
				for range 64 {
					s := at / 64 / shards * 64 % sessions
					s = (s + at%64) * 7919 % sessions
					x.name = fmt.Appendf(x.name[:0], "lock/%d/%d", at%64, s)
					x.acquire(s, x.name, true)
					x.release(s, x.name)
					at++
				}
				x.commit()
			}
			batch()
			if kind == "again" {
				for at < shards*sessions {
					batch()
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 64 {
				if at%(shards*sessions) == 0 && kind == "first" {
					b.StopTimer()
					batch()
					b.StartTimer()
				}
				batch()
			}
		})
	}
}

// newRemoteBenchMachine is a machine whose sessions are at home elsewhere.
func newRemoteBenchMachine(sessions int) *benchMachine {
	x := newBenchMachine(0)
	x.client = "worker"
	for i := range sessions {
		x.sessions = append(x.sessions, protocol.SessionID(container.Mix(uint64(i))>>4|1<<60))
		x.seqs = append(x.seqs, 0)
	}
	return x
}

// fill creates semaphores.
func fill(x *benchMachine, n int) (names [][]byte) {
	for i := 0; i < n; {
		x.begin()
		for range min(500, n-i) {
			name := fmt.Appendf(nil, "service/%03d/lock-%07d", i%100, i)
			names = append(names, name)
			x.create(i%len(x.sessions), name, 1)
			i++
		}
		x.commit()
	}
	return names
}

// BenchmarkQueue is a hand-off with a million waiters in the queue, and a waiter that leaves from
// the middle.
func BenchmarkQueue(b *testing.B) {
	const waiters = 1_000_000
	x := newBenchMachine(waiters + 1)
	name := []byte("lock")
	x.begin()
	x.create(0, name, 1)
	x.commit()
	for i := range x.sessions {
		x.begin()
		x.acquire(i, name, false)
		x.commit()
	}
	b.Run("hand-off", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			s := i % len(x.sessions)
			x.begin()
			x.release(s, name)
			x.acquire(s, name, false)
			x.commit()
		}
	})
	b.Run("leave", func(b *testing.B) {
		for i := range b.N {
			s := (i*7919 + 500) % len(x.sessions)
			x.begin()
			x.release(s, name)
			x.acquire(s, name, false)
			x.commit()
		}
	})
}

// BenchmarkSnapshot is a snapshot of a million semaphores; it reports the longest time that Apply
// has to wait.
func BenchmarkSnapshot(b *testing.B) {
	x := newBenchMachine(100_000)
	fill(x, 1_000_000)
	for b.Loop() {
		l := &stopwatch{}
		begun := time.Now()
		s := x.m.BeginSnapshot()
		l.record(time.Since(begun))
		w := &countWriter{}
		if err := s.WriteTo(w, l); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(l.longest.Microseconds()), "longest-us")
		b.SetBytes(int64(w.n))
	}
}

// BenchmarkCollect is a collection with a million semaphores and 100,000 sessions that nobody uses.
// It reports the CPU time that the collector takes for it: `make bench` pays that again and again.
func BenchmarkCollect(b *testing.B) {
	x := newBenchMachine(100_000)
	fill(x, 1_000_000)
	runtime.GC()
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	spent := func() float64 {
		runtime.GC() // the figures are those of the last one that ended
		metrics.Read(sample)
		return sample[0].Value.Float64()
	}
	before, n := spent(), 1
	for b.Loop() {
		runtime.GC()
		n++
	}
	b.ReportMetric((spent()-before)*1000/float64(n), "cpu-ms")
	runtime.KeepAlive(x)
}

// BenchmarkRestore is the start of a replica with a million semaphores and 100,000 sessions.
func BenchmarkRestore(b *testing.B) {
	x := newBenchMachine(100_000)
	fill(x, 1_000_000)
	var buf bytes.Buffer
	if err := x.m.BeginSnapshot().WriteTo(&buf, &sync.Mutex{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		if _, err := Restore(bytes.NewReader(buf.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMove moves 32 of 4,096 buckets from one machine to another and back, among 100,000
// semaphores, and 5,000 sessions of which each holds a lock. It reports the longest Apply of each
// step: requests wait meanwhile.
func BenchmarkMove(b *testing.B) {
	const buckets, moved = 4096, 32
	from, to := newBenchMachineWith(buckets, buckets, 5_000), newBenchMachineWith(buckets, 0, 0)
	fill(from, 100_000)
	for i := range from.sessions {
		from.begin()
		from.acquire(i, fmt.Appendf(nil, "held/%d", i), true)
		from.commit()
	}
	steps := []string{"freeze", "import", "activate", "drop"}
	longest := make(map[string]time.Duration)
	step := func(name string, x *benchMachine, kind CommandKind, body []byte) {
		begun := time.Now()
		x.begin()
		x.entry = AppendCommand(x.entry, Command{Kind: kind, Body: body})
		x.commit()
		longest[name] += time.Since(begun)
		if e := x.out.List[0]; e.Status != 0 {
			b.Fatalf("%s: %v", name, e)
		}
	}
	epoch := uint64(1)
	for i := 0; b.Loop(); i++ {
		run := BucketsBody{Total: buckets, First: uint32(i/2*moved) % buckets, Count: moved, Epoch: epoch + 1}
		epoch++
		body := AppendBuckets(nil, run)
		step("freeze", from, CmdFreeze, body)
		for cursor := []byte(nil); ; {
			chunk, next, err := from.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 0)
			if err != nil {
				b.Fatal(err)
			}
			step("import", to, CmdImport, AppendImport(nil, ImportBody{BucketsBody: run, Chunk: chunk}))
			if cursor = next; len(next) == 0 {
				break
			}
		}
		step("activate", to, CmdActivate, body)
		step("drop", from, CmdDropBuckets, body)
		from, to = to, from
	}
	for _, name := range steps {
		b.ReportMetric(float64(longest[name].Microseconds())/float64(b.N), name+"-us")
	}
}

// stopwatch is a lock that remembers how long it was held at most.
type stopwatch struct {
	begun   time.Time
	longest time.Duration
}

func (s *stopwatch) Lock()                  { s.begun = time.Now() }
func (s *stopwatch) Unlock()                { s.record(time.Since(s.begun)) }
func (s *stopwatch) record(d time.Duration) { s.longest = max(s.longest, d) }

type countWriter struct{ n int }

func (w *countWriter) Write(b []byte) (int, error) {
	w.n += len(b)
	return len(b), nil
}

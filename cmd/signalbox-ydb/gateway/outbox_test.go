package gateway

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sink is a stream that a test reads.
type sink struct {
	mu   sync.Mutex
	sent []*response
	gate chan struct{} // if not nil, each message waits for one
}

func (s *sink) Send(m *response) error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
	return nil
}

func (s *sink) numbers() (list []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		list = append(list, m.GetPong().GetOpaque())
	}
	return list
}

func pong(n uint64) *response {
	return &response{Response: &Ydb_Coordination.SessionResponse_Pong{Pong: &Ydb_Coordination.SessionResponse_PingPong{Opaque: n}}}
}

// unbounded is the share of a stream that nothing ends.
func unbounded() *share {
	return newMemory(math.MaxInt64, new(atomic.Uint64)).join(func(error) { panic("there is memory enough") })
}

// TestOutbox: messages keep their order; guarded ones wait for the session, and are dropped when
// the stream ends first; a reader that is too slow ends it.
func TestOutbox(t *testing.T) {
	to := new(sink)
	var mu sync.Mutex
	healthy := true
	set := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		healthy = on
	}
	failed := make(chan error, 1)
	total := new(atomic.Int64)
	o := newOutbox(t.Context(), to, func() bool { mu.Lock(); defer mu.Unlock(); return healthy }, func(err error) {
		select {
		case failed <- err:
		default:
		}
	}, total, unbounded())
	for i := range uint64(100) {
		o.put(pong(i), guarded)
	}
	o.flush(time.Minute)
	set(false)
	o.put(pong(100), guarded)
	o.flush(3 * healthCheck)
	if n := len(to.numbers()); n != 100 {
		t.Fatalf("%d messages were sent", n)
	}
	set(true)
	o.flush(time.Minute)
	set(false)
	o.put(pong(101), guarded) // is dropped
	o.put(pong(102), atOnce)
	o.flush(time.Minute)
	got := to.numbers()
	if len(got) != 102 || got[100] != 100 || got[101] != 102 {
		t.Fatal(got)
	}

	slow := &sink{gate: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	o = newOutbox(ctx, slow, func() bool { return true }, func(err error) {
		select {
		case failed <- err:
		default:
		}
	}, total, unbounded())
	long := failure(0, errors.New(string(make([]byte, maxQueued/2))))
	for range 3 {
		o.put(long, guarded)
	}
	if err := <-failed; protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Fatal(err)
	}
	cancel()
	close(slow.gate)
}

// TestOutboxOfSmallMessages: messages of a few bytes count with what they take in memory.
func TestOutboxOfSmallMessages(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow := &sink{gate: make(chan struct{})}
	failed := false
	o := newOutbox(ctx, slow, func() bool { return true },
		func(err error) { failed = protocol.StatusOf(err) == protocol.StatusOverloaded }, new(atomic.Int64), unbounded())
	m := pong(0)
	for range maxQueued/queuedCost + 1 {
		o.put(m, guarded)
	}
	if !failed {
		t.Errorf("%d messages wait for a client that does not read", len(o.queue))
	}
	cancel()
	close(slow.gate)
}

// TestOutboxOfDescriptions: descriptions wait for room, in order, and the stream goes on. Other
// messages pass those that wait.
func TestOutboxOfDescriptions(t *testing.T) {
	slow := &sink{gate: make(chan struct{})}
	total := new(atomic.Int64)
	o := newOutbox(t.Context(), slow, func() bool { return true }, func(err error) { t.Error(err) }, total, unbounded())
	description := func(id uint64, size int) *response {
		result := &Ydb_Coordination.SessionResponse_DescribeSemaphoreResult{
			ReqId: id, SemaphoreDescription: &Ydb_Coordination.SemaphoreDescription{Data: make([]byte, size)},
		}
		return &response{Response: &Ydb_Coordination.SessionResponse_DescribeSemaphoreResult_{DescribeSemaphoreResult: result}}
	}
	longest := description(0, maxDescription-64)
	if !o.reserve(longest) {
		t.Fatal("the longest description has no room")
	}
	o.putReserved(longest, nil)
	var done sync.WaitGroup
	for i := range uint64(100) {
		done.Go(func() {
			if m := description(i+1, 1<<20); o.reserve(m) {
				o.putReserved(m, nil)
			}
		})
	}
	o.put(pong(7), guarded)
	if n := total.Load(); n <= maxDescription || n > maxQueued {
		t.Fatalf("%d bytes wait", n)
	}
	unused := description(1000, 1<<20)
	done.Go(func() {
		if o.reserve(unused) {
			o.unreserve(unused)
		}
	})
	for range 102 {
		slow.gate <- struct{}{}
		if n := total.Load(); n > maxQueued {
			t.Fatalf("%d bytes wait", n)
		}
	}
	done.Wait()
	o.flush(time.Minute)
	if n := total.Load(); n != 0 {
		t.Errorf("%d bytes are counted when all is sent", n)
	}
	if len(slow.sent) != 102 || slow.sent[1].GetPong().GetOpaque() != 7 {
		t.Errorf("%d messages were sent", len(slow.sent))
	}

	// A reservation ends with the stream.
	ctx, cancel := context.WithCancel(t.Context())
	o = newOutbox(ctx, slow, func() bool { return true }, func(err error) { t.Error(err) }, total, unbounded())
	o.reserve(longest)
	cancel()
	if o.reserve(longest) {
		t.Error("a description has room that another one has")
	}
}

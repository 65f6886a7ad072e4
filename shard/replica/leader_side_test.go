package replica

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
)

// fakeConns is the connections of a test: when each was last heard.
type fakeConns struct {
	clock *ManualClock
	mu    sync.Mutex
	last  map[uint64]time.Duration
}

func newFakeConns(clock *ManualClock) *fakeConns {
	return &fakeConns{clock: clock, last: make(map[uint64]time.Duration)}
}

func (d *fakeConns) heard(conn uint64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[conn]
}

func (d *fakeConns) hear(conn uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last[conn] = d.clock.Now()
}

// close forgets the connection and says when it was last heard.
func (d *fakeConns) close(conn uint64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.last[conn]
	delete(d.last, conn)
	return at
}

func (r *recorder) has(kind shard.EventKind, session uint64) func() bool {
	return func() bool {
		for _, e := range r.events {
			if e.Kind == kind && e.Session == session {
				return true
			}
		}
		return false
	}
}

func (r *recorder) saw(kind shard.EventKind, session uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has(kind, session)()
}

func TestSessionsFollowTheirConnections(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	d := newFakeConns(clock)
	h := openHost(t, HostConfig{Clock: clock})
	s, r := startOne(t, h, func(c *ShardConfig) { c.Heard = d.heard })
	populate(t, s)
	d.hear(1)
	d.hear(2)
	d.hear(3)
	lives := newCaller(t, s, r, 1, 5_000)
	silent := newCaller(t, s, r, 2, 5_000)
	closed := newCaller(t, s, r, 3, 2_000)

	// A ping is answered behind a barrier.
	s.Ping(1, 77)
	r.await("a pong", func() bool { return len(r.pongs) == 1 && r.pongs[0] == 77 })

	s.ConnClosed(3, d.close(3), protocol.LinkClosed)
	for range 20 {
		clock.Advance(ManualStep)
		d.hear(1)
	}
	r.await("the closed connection's session to be detached", r.has(shard.EventSessionDetached, closed.session))
	r.await("the closed connection's session to end", r.has(shard.EventSessionEnded, closed.session))
	for range 20 {
		clock.Advance(ManualStep)
		d.hear(1)
	}
	r.await("the silent session to be detached", r.has(shard.EventSessionDetached, silent.session))
	r.await("the silent session to end", r.has(shard.EventSessionEnded, silent.session))
	r.await("the silent connection to be cut", func() bool { return r.cuts[2] != "" })
	if r.saw(shard.EventSessionDetached, lives.session) {
		t.Error("a session whose connection is heard was detached")
	}
	lives.mustCreate("alive")

	// No pong for a connection without a session that lives.
	s.Ping(3, 78)
	s.Ping(1, 79)
	r.await("another pong", func() bool { return len(r.pongs) == 2 })
	if r.pongs[1] != 79 {
		t.Errorf("pongs are %v", r.pongs)
	}
}

func TestPauseExpiresNoSession(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	d := newFakeConns(clock)
	h := openHost(t, HostConfig{Clock: clock})
	s, r := startOne(t, h, func(c *ShardConfig) { c.Heard = d.heard })
	populate(t, s)
	d.hear(1)
	c := newCaller(t, s, r, 1, 5_000)
	clock.Advance(time.Second)
	d.hear(1)
	before := s.Stats().LogTime

	clock.Jump(time.Hour) // the process was stopped for an hour
	d.hear(1)
	c.mustCreate("at once") // proposed before the ticker has noticed
	clock.Advance(time.Second)
	d.hear(1)
	if after := s.Stats().LogTime; after > before+5_000 {
		t.Errorf("log time went from %d to %d over a pause", before, after)
	}
	c.mustCreate("later")
	if r.saw(shard.EventSessionDetached, c.session) || r.saw(shard.EventSessionEnded, c.session) {
		t.Error("a pause of the process ended a session")
	}
}

func TestLogTimeFollowsTheClock(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	h := openHost(t, HostConfig{Clock: clock})
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 0, 60_000)
	c.mustCreate("a")
	before := s.Stats().LogTime
	clock.Advance(3 * time.Second)
	c.mustCreate("b")
	if got := s.Stats().LogTime - before; got != 3_000 {
		t.Errorf("log time advanced by %d ms in 3 s", got)
	}
}

// messageRouter carries messages between the shards of one host.
type messageRouter struct {
	mu     sync.Mutex
	shards map[uint64]*Shard
	sent   int
}

func (m *messageRouter) Send(to, from uint64, msg []byte) {
	m.mu.Lock()
	s := m.shards[to]
	m.sent++
	m.mu.Unlock()
	if s != nil {
		s.ReceiveMessage(from, msg)
	}
}

func TestRemoteSessionsAreReleased(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	d := newFakeConns(clock)
	h := openHost(t, HostConfig{Clock: clock})
	p := &messageRouter{shards: make(map[uint64]*Shard)}
	var shards []*Shard
	var recs []*recorder
	for id := range uint64(2) {
		r := newRecorder(t)
		s, err := h.StartShard(ShardConfig{
			ID: id + 1, Replica: 1, Members: map[uint64]string{1: h.RaftAddress()},
			Sink: r, Messages: p, Heard: d.heard,
			Route: func(_ uint8, bucket uint32) (uint64, uint64) { return uint64(bucket/(testBuckets/2)) + 1, 1 },
		})
		if err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.shards[id+1] = s
		p.mu.Unlock()
		r.awaitLeading()
		populateBuckets(t, s, uint32(id)*testBuckets/2, testBuckets/2)
		shards, recs = append(shards, s), append(recs, r)
	}
	d.hear(1)
	c := newCallerHome(t, shards[0], recs[0], 1, 5_000, 0)
	d.hear(2)
	other := newCallerHome(t, shards[1], recs[1], 2, 60_000, testBuckets/2)

	// A lock in shard 2, held by the session of shard 1; the session of shard 2 waits for it.
	name := nameIn(testBuckets/2, testBuckets)
	remote := &caller{t: t, s: shards[1], r: recs[1], conn: 1, session: c.session, low: 1, request: 1_000}
	acquire := func(c *caller) result {
		c.seq++
		m := protocol.Acquire{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low},
			Name: name, Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true}
		return recs[1].result(c.submit(shard.CmdAcquire, m.AppendBody(nil)))
	}
	if res := acquire(remote); res.event.State != protocol.Acquired {
		t.Fatalf("the lock is not acquired: %+v", res)
	}
	if res := acquire(other); res.event.State != protocol.Queued {
		t.Fatalf("the second acquire does not wait: %+v", res)
	}
	if !recs[1].saw(shard.EventRemoteHeld, c.session) {
		t.Error("the session is no remote")
	}
	for range 12 {
		clock.Advance(ManualStep)
		d.hear(1)
		d.hear(2)
	}
	if recs[1].saw(shard.EventRemoteIdle, c.session) {
		t.Fatal("the remote lost its lock while its session lives")
	}
	// The home ends it, by silence.
	s1 := d.close(1)
	shards[0].ConnClosed(1, s1, protocol.LinkClosed)
	shards[1].ConnClosed(1, s1, protocol.LinkClosed)
	for range 60 {
		clock.Advance(ManualStep)
		d.hear(2)
	}
	recs[0].await("the home to end the session", recs[0].has(shard.EventSessionEnded, c.session))
	recs[1].await("the remote's lock to be released", recs[1].has(shard.EventRemoteIdle, c.session))
	recs[1].await("the waiter to get the lock", recs[1].has(shard.EventAcquireResult, other.session))
}

// nameIn finds a semaphore name whose bucket is in [from, to).
func nameIn(from, to uint32) []byte {
	for i := 0; ; i++ {
		name := []byte(fmt.Sprint("name ", i))
		if b := protocol.Bucket(testNode, name, testBuckets); from <= b && b < to {
			return name
		}
	}
}

func TestQueuedMessagesAreBounded(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, _ := startOne(t, h, nil)
	s.ReceiveMessage(2, make([]byte, 1<<20))
	if got := s.Stats().MessagesDropped; got != 1 {
		t.Errorf("%d messages dropped", got)
	}
	for range 10 * leaderdriver.MaxQueuedMessages {
		s.ReceiveMessage(2, []byte("any bytes"))
	}
	if n := s.tasks.Queued(); n > leaderdriver.MaxQueuedMessages+10 {
		t.Errorf("%d messages wait", n)
	}
}

func TestEveryBarrierIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, _ := startOne(t, h, nil)
	const callers, each = 32, 50
	var calls [callers][each]atomic.Int32
	var wg sync.WaitGroup
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range each {
				done := make(chan bool, 2)
				s.Barrier(func(ok bool) {
					calls[i][j].Add(1)
					done <- ok
				})
				if !<-done {
					t.Error("a barrier fails")
				}
			}
		}()
	}
	wg.Wait()
	for i := range calls {
		for j := range calls[i] {
			if n := calls[i][j].Load(); n != 1 {
				t.Fatalf("a barrier was answered %d times", n)
			}
		}
	}
}

func TestBarriersAreSharedByThoseWhoCameBefore(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	var gated atomic.Bool
	rounds, goOn := make(chan struct{}), make(chan struct{})
	s, _ := startOne(t, h, func(c *ShardConfig) {
		c.ReadPeriod = time.Hour
		c.readVia = func(next func() bool) bool {
			if gated.Load() {
				rounds <- struct{}{}
				<-goOn
			}
			return next()
		}
	})
	s.awaitQuiet(patience)
	if !barrier(s) { // the first one since it leads: none is due by itself for an hour
		t.Fatal("a barrier fails")
	}
	gated.Store(true)
	var first, second atomic.Int32
	s.Barrier(func(bool) { first.Add(1) })
	<-rounds
	done := make(chan struct{})
	const n = 100
	for range n {
		s.Barrier(func(ok bool) {
			if !ok {
				t.Error("a barrier fails")
			}
			if second.Add(1) == n {
				close(done)
			}
		})
	}
	goOn <- struct{}{}
	<-rounds // callers that came during the first round wait for the next
	if first.Load() != 1 || second.Load() != 0 {
		t.Errorf("a round served %d that came before it and %d that came after", first.Load(), second.Load())
	}
	gated.Store(false)
	goOn <- struct{}{}
	<-done
	if first.Load() != 1 || second.Load() != n {
		t.Errorf("the next round served %d", second.Load())
	}
}

// TestFreshness: the age of a proof of leadership counts from its beginning. No round of read-index
// is due by itself: a second one would hide how the first was counted.
func TestFreshness(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	h := openHost(t, HostConfig{Clock: clock})
	var slow atomic.Bool
	s, _ := startOne(t, h, func(c *ShardConfig) {
		c.ReadPeriod = time.Hour
		c.readVia = func(next func() bool) bool {
			if slow.Load() {
				clock.Jump(10 * time.Second)
			}
			return next()
		}
	})
	if !s.awaitQuiet(patience) || !barrier(s) || !s.Fresh(time.Millisecond) || !s.awaitQuiet(patience) {
		t.Fatal("not fresh after a barrier")
	}
	slow.Store(true)
	if !barrier(s) || s.Fresh(10*time.Second) || !s.Fresh(11*time.Second) {
		t.Error("age is not counted from the start of the barrier")
	}
	slow.Store(false)
	if !barrier(s) || !s.Fresh(time.Millisecond) {
		t.Error("not fresh after a barrier")
	}
	clock.Jump(2 * time.Second)
	if s.Fresh(2*time.Second) || !s.Fresh(3*time.Second) {
		t.Error("age of a barrier is not counted")
	}
	populate(t, s) // the leader's own batches prove that it leads
	if !s.Fresh(time.Millisecond) {
		t.Error("an own batch that was applied is no proof")
	}
	proposed := make(chan error, 1)
	s.View(func(*shard.Machine) { // nothing is applied meanwhile
		go func() { proposed <- s.ProposeInternal(timeout(t), setupCommands(0, testBuckets)[1]) }()
		eventually(t, "a batch to be in flight", func() bool { n, _ := s.proposals.Load(); return n > 0 })
		clock.Jump(10 * time.Second)
	})
	if err := <-proposed; err != nil || s.Fresh(10*time.Second) || !s.Fresh(11*time.Second) {
		t.Errorf("age is not counted from the start of the batch: %v", err)
	}
}

// TestIdleLeaderStaysFresh: a leader without requests proves once a second that it leads.
func TestIdleLeaderStaysFresh(t *testing.T) {
	t.Parallel()
	clock := NewManualClock(time.Unix(0, 0))
	s, _ := startOne(t, openHost(t, HostConfig{Clock: clock}), nil)
	if !s.awaitQuiet(patience) || !barrier(s) || !s.awaitQuiet(patience) {
		t.Fatal("not fresh after a barrier")
	}
	clock.Jump(10 * time.Second)
	if s.Fresh(10 * time.Second) {
		t.Error("age of a barrier is not counted")
	}
	clock.Advance(2 * time.Second)
	if !s.Fresh(1500 * time.Millisecond) {
		t.Error("an idle leader does not stay fresh")
	}
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
)

// moveWorkload is sessions that work while buckets move under them, and remember what they were
// told. Any error that reaches them fails the test, and so does what must never be: two holders of
// one name, an order id that goes back, a member that is told gone while it is there, an
// acknowledged write that is missing.
type moveWorkload struct {
	t    *testing.T
	ctx  context.Context // ends when the workload is to stop
	stop context.CancelFunc
	end  atomic.Bool // nobody begins anything new
	wg   sync.WaitGroup
	work sync.WaitGroup // those who take turns

	clients  []*client.Client
	sessions []*client.Session

	names  []*workloadName
	rounds []*moveRounds
	calls  atomic.Int64
	fires  atomic.Int64
	looks  atomic.Int64
}

// workloadName is a semaphore with one unit, whose holder counts up a number in its data.
type workloadName struct {
	name   string
	holder atomic.Int64 // of a session, from 1
	token  atomic.Uint64
	writes atomic.Int64 // acknowledged
}

func newMoveWorkload(t *testing.T, addresses []string, clients, sessions, names int) *moveWorkload {
	t.Helper()
	m := &moveWorkload{t: t}
	m.ctx, m.stop = context.WithTimeout(context.Background(), 30*time.Minute)
	for range clients {
		c, err := client.Open(m.ctx, client.Config{Endpoints: addresses, Logger: clusterLog().With("instance", "client")})
		if err != nil {
			t.Fatal(err)
		}
		m.clients = append(m.clients, c)
	}
	t.Cleanup(func() {
		m.stop()
		m.work.Wait()
		m.wg.Wait()
		for _, c := range m.clients {
			_ = c.Close()
		}
	})
	for i := range sessions {
		s, err := m.clients[i%clients].Session(m.ctx, "/default", client.Timeout(20*time.Minute), client.OnStopped(func(err error) {
			if !errors.Is(err, client.ErrSessionClosed) && !errors.Is(err, client.ErrClientClosed) {
				t.Errorf("a session ended: %v", err)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		m.sessions = append(m.sessions, s)
		if _, err := s.Acquire(m.ctx, fmt.Sprintf("member/%d", i), client.Shared(), client.Data(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range names {
		x := &workloadName{name: fmt.Sprintf("job/%d", i)}
		if err := m.sessions[0].Create(m.ctx, x.name, 1, []byte("0")); err != nil {
			t.Fatal(err)
		}
		m.names = append(m.names, x)
	}
	return m
}

// begin sets everybody to work.
func (m *moveWorkload) begin() {
	m.addRounds(8)
	for _, x := range m.rounds {
		m.work.Go(func() { x.turns(m) })
	}
	for i, s := range m.sessions {
		m.work.Go(func() { m.turns(i+1, s, rand.New(rand.NewPCG(uint64(i), 3))) })
	}
	for _, c := range m.clients {
		synced := make(chan struct{})
		m.wg.Go(func() { m.mirror(c, synced) })
		<-synced
	}
	for i, x := range m.names {
		if i%4 == 0 {
			m.wg.Go(func() { m.look(m.sessions[i%len(m.sessions)], x) })
		}
	}
}

// failed reports that something went wrong, unless everybody was told to go.
func (m *moveWorkload) failed(format string, args ...any) {
	if m.ctx.Err() == nil {
		m.t.Errorf(format, args...)
	}
}

func (m *moveWorkload) turns(me int, s *client.Session, r *rand.Rand) {
	for !m.end.Load() && m.ctx.Err() == nil {
		x := m.names[r.IntN(len(m.names))]
		if err := m.turn(me, s, x); err != nil {
			m.failed("session %d at %s: %v", me, x.name, err)
			return
		}
		m.calls.Add(1)
		select { // the moves need the machine too
		case <-time.After(turnPause):
		case <-m.ctx.Done():
		}
	}
}

// turnPause is between two turns of a session.
const turnPause = 10 * time.Millisecond

// turn waits for a name, counts its number up, and gives it back.
func (m *moveWorkload) turn(me int, s *client.Session, x *workloadName) error {
	lease, err := s.Acquire(m.ctx, x.name)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if other := x.holder.Swap(int64(me)); other != 0 {
		return fmt.Errorf("acquired while session %d holds it", other)
	}
	if before := x.token.Swap(lease.Token()); before >= lease.Token() {
		return fmt.Errorf("order id %d after %d", lease.Token(), before)
	}
	sem, err := s.Node().Describe(m.ctx, x.name, client.ReadConsistency(client.Strict))
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	n, _ := strconv.ParseInt(string(sem.Data), 10, 64)
	if n != x.writes.Load() {
		return fmt.Errorf("number is %d after %d acknowledged writes", n, x.writes.Load())
	}
	if _, err := s.Update(m.ctx, x.name, strconv.AppendInt(nil, n+1, 10), client.IfVersion(sem.Version)); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	x.writes.Add(1)
	if err := lease.Lost(); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	if other := x.holder.Swap(0); other != int64(me) {
		return fmt.Errorf("session %d acquired it meanwhile", other)
	}
	if err := lease.Release(m.ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// mirror follows the members, who are all there all the time.
func (m *moveWorkload) mirror(c *client.Client, synced chan struct{}) {
	n, err := c.Node(m.ctx, "/default")
	if err != nil {
		m.failed("mirror: %v", err)
		close(synced)
		return
	}
	known := 0
	for ev, err := range n.Watch(m.ctx, "member/", client.Prefix()) {
		switch {
		case err != nil:
			m.failed("mirror: %v", err)
			return
		case ev.Kind == client.EventDeleted || len(ev.Removed) > 0:
			m.failed("mirror: member told gone: %+v", ev)
			return
		case ev.Kind == client.EventChanged && ev.Created:
			known++
		case ev.Kind == client.EventSynced && synced != nil:
			if known != len(m.sessions) {
				m.failed("mirror: %d members of %d", known, len(m.sessions))
			}
			close(synced)
			synced = nil
		}
	}
}

// look is armed again each time it fires; what it sees never goes back.
func (m *moveWorkload) look(s *client.Session, x *workloadName) {
	last := int64(0)
	for !m.end.Load() && m.ctx.Err() == nil {
		sem, fired, err := gateway.Describe(m.ctx, s, gateway.DescribeRequest{Name: x.name, Watch: gateway.OnData})
		if err != nil {
			m.failed("watch %s: %v", x.name, err)
			return
		}
		n, _ := strconv.ParseInt(string(sem.Data), 10, 64)
		if n < last {
			m.failed("watch %s: number %d after %d", x.name, n, last)
			return
		}
		last = n
		m.looks.Add(1)
		select {
		case <-fired:
			m.fires.Add(1)
		case <-m.ctx.Done():
		case <-time.After(100 * time.Millisecond): // nobody may be left to change it
		}
	}
}

// progress waits until so many more turns are done: everything still works.
func (m *moveWorkload) progress(sweeps int64) {
	m.t.Helper()
	until := m.calls.Load() + sweeps
	end := time.Now().Add(5 * time.Minute)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for m.calls.Load() < until {
		if m.t.Failed() {
			m.t.FailNow()
		}
		if time.Now().After(end) {
			m.t.Fatalf("%d turns in five minutes, and %d were to be done", m.calls.Load()-until+sweeps, sweeps)
		}
		<-look.C
	}
	m.roundsProgress()
}

// finish lets everybody finish what they are at, and checks what is left behind.
func (m *moveWorkload) finish() {
	m.t.Helper()
	m.end.Store(true)
	m.work.Wait()
	for _, x := range m.names {
		sem, err := m.sessions[0].Node().Describe(m.ctx, x.name, client.ReadConsistency(client.Strict))
		if err != nil {
			m.failed("describe %s: %v", x.name, err)
		} else if n, _ := strconv.ParseInt(string(sem.Data), 10, 64); n != x.writes.Load() {
			m.failed("%s has number %d after %d acknowledged writes", x.name, n, x.writes.Load())
		}
	}
	for i, s := range m.sessions {
		if !s.Held() {
			m.t.Errorf("session %d is not held any more: %v", i+1, s.Err())
		}
	}
	rounds := int64(0)
	for _, x := range m.rounds {
		rounds += x.done.Load()
	}
	m.t.Logf("%d turns, %d looks, %d fired, %d rounds of %d processes", m.calls.Load(), m.looks.Load(),
		m.fires.Load(), rounds, len(m.rounds))
	m.stop()
	m.wg.Wait()
}

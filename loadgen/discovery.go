// How long until watchers know of members that join and leave?

package loadgen

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// discovery: members register for services that others watch, and a part of them restarts each
// minute: the session ends, and another registers. What counts is how long it takes until each
// watcher knows: joined from the call of register, left from the call that ends the session.
var discovery = &Scenario{
	Name:      "discovery",
	Short:     "members register, watchers see them come and go; --churn per cent restart each minute",
	Series:    []string{"joined", "left", "restart"},
	Operation: 2,
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		w, err := buildDiscovery(ctx, c)
		if err != nil {
			if w != nil {
				closeWorkload(ctx, w)
			}
			return nil, err
		}
		return w, nil
	},
}

type service struct {
	name     string
	rec      *sharedRecorder
	watchers int64
	expected atomic.Int64 // comings and goings that watchers are to see
	seen     atomic.Int64
}

// member is one place in a service. Its data in the service is its number and its generation.
type member struct {
	number  int
	service *service
	conn    Conn
	session Session
	data    []byte

	generation  uint64
	joins, ends eventTimes
}

// eventTimes are when the last few generations of a member joined or ended: watchers may hear of
// the end of one when the next has come and gone.
type eventTimes [8]struct {
	generation atomic.Uint64 // stored last
	at         atomic.Int64
}

func (e *eventTimes) set(generation uint64, at int64) {
	x := &e[generation%uint64(len(e))]
	x.at.Store(at)
	x.generation.Store(generation)
}

func (e *eventTimes) get(generation uint64) (at int64, ok bool) {
	x := &e[generation%uint64(len(e))]
	return x.at.Load(), x.generation.Load() == generation
}

type discoveryWorkload struct {
	c        *Env
	services []*service
	members  []*member
	callers
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func buildDiscovery(ctx context.Context, c *Env) (*discoveryWorkload, error) {
	n := c.sessionCount(200)
	c.Watchers = cmp.Or(c.Watchers, n)
	c.Churn = cmp.Or(c.Churn, 10)
	c.watchers = c.Watchers
	c.setConnections(c.Watchers)
	list := c.names(max(1, n/200)).all()
	if n < len(list) || c.Watchers < len(list) {
		return nil, fmt.Errorf("%d services need at least as many members and watchers; %d and %d are given", len(list), n,
			c.Watchers)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &discoveryWorkload{c: c, stop: stop}
	for _, name := range list {
		w.services = append(w.services, &service{name: name, rec: c.recorder()})
	}
	handles := c.Watchers
	if c.Connections != Each {
		handles = min(handles, c.Connections)
	}
	watchers, err := c.StartObservers(ctx, handles)
	if err != nil {
		return w, err
	}
	discoverers, err := sessionsAs[CanDiscover](c.Target, "discover", watchers)
	if err != nil {
		return w, err
	}
	conns, err := c.assignConns(ctx, n)
	if err != nil {
		return w, err
	}
	for i := range n {
		m := &member{number: i, service: w.services[i%len(list)], conn: conns[i], data: make([]byte, max(16, c.DataSize))}
		w.members = append(w.members, m)
	}
	c.sessions += n
	if err := Parallel(ctx, n, func(ctx context.Context, i int) error {
		if err := w.members[i].join(ctx, c); err != nil {
			return fmt.Errorf("register member %d of %d: %w", i+1, n, err)
		}
		return nil
	}); err != nil {
		return w, err
	}
	begun := newReadyGroup("watches", c.Watchers)
	for i := range c.Watchers {
		s := w.services[i%len(list)]
		s.watchers++
		w.wg.Go(func() {
			ready := begun.member()
			defer ready()
			generations := make([]uint32, (n+len(list)-1)/len(list))
			err := discoverers[i/len(list)%len(discoverers)].Members(watching, s.name, ready,
				func(joined bool, data []byte) { w.observe(s, generations, joined, data) })
			if watching.Err() != nil {
				return
			}
			code := "ended"
			if err != nil {
				code = c.Target.Code(err)
			}
			s.rec.fail(afterWarmUp, "watch lost: "+code)
		})
	}
	if err := begun.wait(ctx); err != nil {
		return w, err
	}
	c.Callers = cmp.Or(c.Callers, 64)
	k := min(c.Callers, n)
	for i := range k {
		w.callers = append(w.callers, &restarter{c: c, members: w.members, next: i, step: k})
	}
	return w, nil
}

// join starts a session and registers it, as the member's next generation.
func (m *member) join(ctx context.Context, c *Env) error {
	s, err := c.startSession(ctx, m.conn)
	if err != nil {
		return err
	}
	m.session = s
	d, err := sessionsAs[CanRegister](c.Target, "register", []Session{s})
	if err != nil {
		return err
	}
	m.generation++
	binary.BigEndian.PutUint64(m.data, uint64(m.number))
	binary.BigEndian.PutUint64(m.data[8:], m.generation)
	m.joins.set(m.generation, c.Now())
	ctx, cancel := c.call(ctx)
	defer cancel()
	_, err = d[0].Register(ctx, m.service.name, m.data)
	return err
}

// observe is called by each watcher. generations are those that it knows, by the place of the
// member in the service.
func (w *discoveryWorkload) observe(s *service, generations []uint32, joined bool, data []byte) {
	if len(data) < 16 {
		return
	}
	i, generation := binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
	if i >= uint64(len(w.members)) || generation == 0 {
		return
	}
	m, now := w.members[i], w.c.Now()
	series, when := 1, &m.ends
	if joined {
		k := i / uint64(len(w.services))
		known := generations[k]
		generations[k] = uint32(generation)
		if known == 0 {
			return // it was there when the watch began
		}
		series, when = 0, &m.joins
		// No watcher learns of a generation that came and went between two notifications.
		s.seen.Add(2 * (int64(uint32(generation)-known) - 1))
	}
	if at, ok := when.get(generation); ok {
		s.rec.note(series, now, now-at)
		s.seen.Add(1)
	}
}

// Rate returns the rate of the churn, a second.
func (w *discoveryWorkload) Rate() float64 { return float64(len(w.members)) * w.c.Churn / 100 / 60 }

// Drain waits until the watchers have seen everything.
func (w *discoveryWorkload) Drain(ctx context.Context, rec *Recorder) {
	missing := func() (n int64) {
		for _, s := range w.services {
			n += max(0, s.expected.Load()-s.seen.Load())
		}
		return n
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for missing() > 0 {
		select {
		case <-t.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	for range missing() {
		rec.Fail(afterWarmUp, "unseen")
	}
}

func (w *discoveryWorkload) Close(ctx context.Context) error {
	w.stop()
	w.wg.Wait()
	return Parallel(ctx, len(w.members), func(ctx context.Context, i int) error {
		if s := w.members[i].session; s != nil {
			return s.Close(ctx)
		}
		return nil
	})
}

type restarter struct {
	c          *Env
	members    []*member
	next, step int
}

func (r *restarter) Do(ctx context.Context, _ *Recorder) error {
	m := r.members[r.next]
	if r.next += r.step; r.next >= len(r.members) {
		r.next %= r.step
	}
	m.ends.set(m.generation, r.c.Now())
	if err := r.c.endSession(ctx, m.session); err != nil {
		return err
	}
	m.service.expected.Add(m.service.watchers)
	if err := m.join(ctx, r.c); err != nil {
		return err
	}
	m.service.expected.Add(m.service.watchers)
	return nil
}

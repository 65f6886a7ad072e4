package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// starters bounds how many connections and sessions are made at a time.
const starters = 64

// Crowd is what a scenario builds its workload from: the load's configuration, connections, sessions, names. It closes what it gave.
type Crowd struct {
	Config
	prefix string // of all names of this run
	pool   *pool
	extra  *extras
	clock  clock
	span   *span

	// numbers in force, for the result
	sessions, keys, watchers int
}

// pool are the connections of a run, made when they are needed. Parts of a mix share it.
type pool struct {
	mu       sync.Mutex
	conns    []Conn
	sessions int // given out: they are dealt to the connections in turn
}

// extras are recorders of goroutines that are no callers.
type extras struct {
	mu   sync.Mutex
	recs []*sharedRecorder
}

// sharedRecorder is a recorder for goroutines that seldom have something to say.
type sharedRecorder struct {
	mu sync.Mutex
	*Recorder
}

func (r *sharedRecorder) note(series int, now, d int64) {
	r.mu.Lock()
	r.Recorder.Note(series, now, d)
	r.mu.Unlock()
}

func (r *sharedRecorder) fail(now int64, code string) {
	r.mu.Lock()
	r.Recorder.Fail(now, code)
	r.mu.Unlock()
}

// Now is the run's clock in nanoseconds, as Recorder.Note wants it.
func (c *Crowd) Now() int64 { return c.clock.now() }

// callerCount is the number of callers in force, for scenarios whose callers act for themselves. In an open loop there should be one free whenever an operation is
// to begin, so that there are more.
func (c *Crowd) callerCount() int {
	if c.Callers == 0 {
		c.Callers = 64
		if c.Rate > 0 {
			c.Callers = 512
		}
	}
	return c.Callers
}

// connect settles the number of connections, when the load does not say, for so many watchers: an instance bounds the streams of a connection.
func (c *Crowd) connect(watchers int) {
	if c.Connections == 0 {
		c.Connections = max(4, (watchers+999)/1000)
	}
}

// names gives the names of the scenario; def is how many if the load does not say.
func (c *Crowd) names(def int) []string {
	if c.Keys == 0 {
		c.Keys = def
	}
	c.keys = c.Keys
	return names(c.prefix, c.Keys)
}

// data of the load's size. It must not be changed when it was given to a Hold.
func (c *Crowd) data() []byte {
	if c.DataSize == 0 {
		return nil
	}
	b := make([]byte, c.DataSize)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// recorder makes a recorder for goroutines that are no callers.
func (c *Crowd) recorder() *sharedRecorder {
	c.extra.mu.Lock()
	defer c.extra.mu.Unlock()
	r := &sharedRecorder{Recorder: newRecorder(c.span, len(c.Scenario.Series), c.Scenario.Operation)}
	c.extra.recs = append(c.extra.recs, r)
	return r
}

// sessionCount is the number of sessions in force.
func (c *Crowd) sessionCount(def int) int {
	if c.Sessions == 0 {
		return def
	}
	return c.Sessions
}

// StartSessions starts n sessions, dealt to the connections in turn.
func (c *Crowd) StartSessions(ctx context.Context, n int) ([]Session, error) {
	return c.timedSessions(ctx, n, nil)
}

// timedSessions tells how long each start took, from many goroutines.
func (c *Crowd) timedSessions(ctx context.Context, n int, took func(i int, d int64)) ([]Session, error) {
	conns, err := c.dealt(ctx, n)
	if err != nil {
		return nil, err
	}
	list := make([]Session, n)
	err = parallel(ctx, n, func(ctx context.Context, i int) error {
		begun := c.Now()
		s, err := conns[i].Session(ctx)
		if err != nil {
			return fmt.Errorf("start session %d of %d: %w", i+1, n, err)
		}
		list[i] = s
		if took != nil {
			took(i, c.Now()-begun)
		}
		return nil
	})
	c.sessions += n
	return list, err
}

// dealt gives the connections of the next n sessions.
func (c *Crowd) dealt(ctx context.Context, n int) ([]Conn, error) {
	c.connect(0)
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.sessions
	p.sessions += n
	want := p.sessions
	if c.Connections != Each {
		want = min(want, c.Connections)
	}
	if have := len(p.conns); want > have {
		fresh := make([]Conn, want-have)
		err := parallel(ctx, len(fresh), func(ctx context.Context, i int) error {
			x, err := c.Target.Open(ctx)
			if err != nil {
				return fmt.Errorf("open connection %d of %d: %w", have+i+1, want, err)
			}
			fresh[i] = x
			return nil
		})
		for _, x := range fresh {
			if x != nil {
				p.conns = append(p.conns, x)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	out := make([]Conn, n)
	for i := range out {
		out[i] = p.conns[(first+i)%len(p.conns)]
	}
	return out, nil
}

// close ends all connections, and with them the sessions. A session whose end is not answered in time ends when its timeout does.
func (p *pool) close(ctx context.Context) {
	_ = parallel(ctx, len(p.conns), func(_ context.Context, i int) error { return p.conns[i].Close() })
}

// forget removes names, as far as that can be had: what stays behind is told by nothing but the server's list.
func forget(ctx context.Context, keepers []CanKeep, list []string) {
	_ = parallel(ctx, len(list), func(ctx context.Context, i int) error { return keepers[i%len(keepers)].Delete(ctx, list[i]) })
}

// keep creates names with data.
func keep(ctx context.Context, keepers []CanKeep, list []string, data []byte) error {
	return parallel(ctx, len(list), func(ctx context.Context, i int) error {
		if err := keepers[i%len(keepers)].Create(ctx, list[i], data); err != nil {
			return fmt.Errorf("make name %d of %d: %w", i+1, len(list), err)
		}
		return nil
	})
}

// parallel calls fn for 0 .. n-1 from a few goroutines, and returns the first error; no call begins after it.
func parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	var once sync.Once
	var next, wg = make(chan int), sync.WaitGroup{}
	for range min(n, starters) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if err := fn(ctx, i); err != nil {
					once.Do(func() { first = err })
					cancel()
				}
			}
		}()
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	if first == nil {
		first = context.Cause(ctx)
	}
	return first
}

// closing bounds what is done to leave nothing behind.
const closing = 30 * time.Second

// stall is how long nothing may get ready before preparing is given up.
const stall = 20 * time.Second

// readiness counts goroutines that get ready.
type readiness struct {
	what  string
	n     int
	ready chan struct{} // one value for each
}

func newReadiness(what string, n int) *readiness {
	return &readiness{what, n, make(chan struct{}, n)}
}

// one gives a function for one of them to call, as often as it likes.
func (r *readiness) one() func() { return sync.OnceFunc(func() { r.ready <- struct{}{} }) }

// wait for all.
func (r *readiness) wait(ctx context.Context) error {
	t := time.NewTimer(stall)
	defer t.Stop()
	for i := range r.n {
		select {
		case <-r.ready:
			t.Reset(stall)
		case <-t.C:
			return fmt.Errorf("%d of %d %s began, and then none for %s; the server may bound them for each connection: give more connections", i, r.n, r.what, stall)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

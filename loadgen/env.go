// From which connections, sessions and names is a load made?

package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// startConcurrency bounds how many connections and sessions are made at a time.
const startConcurrency = 64

// Env has the parts from which a scenario builds its workload: the load's configuration,
// connections, sessions, names. It closes the parts that it gave out.
type Env struct {
	Config
	prefix    string // of all names of this run
	pool      *connPool
	recorders *recorderList
	clock     clock
	span      *span

	// numbers in force, for the result
	sessions, keys, watchers int
}

// connPool are the connections of a run, made when they are needed. Parts of a mix share it.
type connPool struct {
	mu      sync.Mutex
	conns   []Conn
	handles int // sessions and watchers given out: they are dealt to the connections in turn
}

type recorderList struct {
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
func (e *Env) Now() int64 { return e.clock.now() }

// callerCount is the number of callers in force, for scenarios whose callers act for themselves. In
// an open loop there should be one free whenever an operation is to begin, so that there are more.
func (e *Env) callerCount() int {
	if e.Callers == 0 {
		e.Callers = 64
		if e.Rate > 0 {
			e.Callers = 512
		}
	}
	return e.Callers
}

// setConnections sets the number of connections, unless the load does, for this many watchers: an
// instance bounds the streams of a connection.
func (e *Env) setConnections(watchers int) {
	e.Connections = cmp.Or(e.Connections, max(4, (watchers+999)/1000))
}

// names returns the names of the scenario; def is their number unless the load has one.
func (e *Env) names(def int) nameSet {
	e.Keys = cmp.Or(e.Keys, def)
	e.keys = e.Keys
	return nameSet{e.prefix, e.Keys}
}

// data of the load's size. An Acquirer keeps it, so it must not be changed.
func (e *Env) data() []byte {
	if e.DataSize == 0 {
		return nil
	}
	b := make([]byte, e.DataSize)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

func (e *Env) recorder() *sharedRecorder {
	e.recorders.mu.Lock()
	defer e.recorders.mu.Unlock()
	r := &sharedRecorder{Recorder: newRecorder(e.span, len(e.Scenario.Series), e.Scenario.Operation)}
	e.recorders.recs = append(e.recorders.recs, r)
	return r
}

func (e *Env) sessionCount(def int) int { return cmp.Or(e.Sessions, def) }

// acquirers starts the sessions, and prepares each of n callers to acquire with one of them.
func (e *Env) acquirers(
	ctx context.Context, n, sessions int, what string, limit uint64,
) ([]Acquirer, []Session, error) {
	list, err := e.StartSessions(ctx, sessions)
	if err != nil {
		return nil, nil, err
	}
	holders, err := sessionsAs[CanAcquire](e.Target, what, list)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Acquirer, n)
	for i := range out {
		out[i] = holders[i%len(holders)].Acquirer(AcquireOptions{Limit: limit, Data: e.data()})
	}
	return out, list, nil
}

// StartSessions starts n sessions, dealt to the connections in turn.
func (e *Env) StartSessions(ctx context.Context, n int) ([]Session, error) {
	return e.timedSessions(ctx, n, nil)
}

// StartObservers gives n handles that watch, dealt to the connections in turn: without a session
// where the target can, else with one each.
func (e *Env) StartObservers(ctx context.Context, n int) ([]Session, error) {
	conns, err := e.assignConns(ctx, n)
	if err != nil {
		return nil, err
	}
	list := make([]Session, n)
	var sessions atomic.Int64
	err = Parallel(ctx, n, func(ctx context.Context, i int) (err error) {
		if o, ok := conns[i].(CanObserve); ok {
			list[i], err = o.Observer(ctx)
		} else {
			list[i], err = conns[i].Session(ctx)
			sessions.Add(1)
		}
		if err != nil {
			return fmt.Errorf("start watcher %d of %d: %w", i+1, n, err)
		}
		return nil
	})
	e.sessions += int(sessions.Load())
	return list, err
}

// timedSessions calls took with how long each start took, from many goroutines.
func (e *Env) timedSessions(ctx context.Context, n int, took func(i int, d int64)) ([]Session, error) {
	conns, err := e.assignConns(ctx, n)
	if err != nil {
		return nil, err
	}
	list := make([]Session, n)
	err = Parallel(ctx, n, func(ctx context.Context, i int) error {
		begun := e.Now()
		s, err := conns[i].Session(ctx)
		if err != nil {
			return fmt.Errorf("start session %d of %d: %w", i+1, n, err)
		}
		list[i] = s
		if took != nil {
			took(i, e.Now()-begun)
		}
		return nil
	})
	e.sessions += n
	return list, err
}

// assignConns gives the connections of the next n sessions or watchers.
func (e *Env) assignConns(ctx context.Context, n int) ([]Conn, error) {
	e.setConnections(0)
	p := e.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.handles
	p.handles += n
	want := p.handles
	if e.Connections != Each {
		want = min(want, e.Connections)
	}
	if have := len(p.conns); want > have {
		fresh := make([]Conn, want-have)
		err := Parallel(ctx, len(fresh), func(ctx context.Context, i int) error {
			x, err := e.Target.Open(ctx)
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

// close ends all connections, and with them the sessions. A session whose end is not answered in
// time ends when its timeout does.
func (p *connPool) close(ctx context.Context) {
	_ = Parallel(ctx, len(p.conns), func(_ context.Context, i int) error { return p.conns[i].Close() })
}

// deleteNames removes names as far as possible, also when some keepers have lost their sessions.
// Only the server's list shows the remaining ones.
func deleteNames(ctx context.Context, keepers []CanStore, list []string) {
	_ = Parallel(ctx, len(list), func(ctx context.Context, i int) error {
		for k := range keepers {
			if keepers[(i+k)%len(keepers)].Delete(ctx, list[i]) == nil {
				break
			}
		}
		return nil
	})
}

func createNames(ctx context.Context, keepers []CanStore, list []string, data []byte) error {
	return Parallel(ctx, len(list), func(ctx context.Context, i int) error {
		if err := keepers[i%len(keepers)].Create(ctx, list[i], data); err != nil {
			return fmt.Errorf("make name %d of %d: %w", i+1, len(list), err)
		}
		return nil
	})
}

// Parallel calls fn for 0 .. n-1 from a few goroutines, and returns the first error; no call begins
// after it.
func Parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, startConcurrency) {
		wg.Go(func() {
			for i := range next {
				if err := fn(ctx, i); err != nil {
					once.Do(func() { first = err })
					cancel()
				}
			}
		})
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
	first = cmp.Or(first, context.Cause(ctx))
	return first
}

// closeTimeout bounds the clean-up after a run.
const closeTimeout = 30 * time.Second

// closeWorkload closes a workload within closeTimeout, even after ctx has ended, and even if
// building it failed.
func closeWorkload(ctx context.Context, w Workload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = w.Close(ctx) // the remaining objects cost the run nothing
}

// readyTimeout is how long nothing may get ready before preparing is given up.
const readyTimeout = 20 * time.Second

// readyGroup counts goroutines that get ready.
type readyGroup struct {
	what  string
	n     int
	ready chan struct{} // one value for each
}

func newReadyGroup(what string, n int) *readyGroup {
	return &readyGroup{what, n, make(chan struct{}, n)}
}

// member gives a function for one of them to call, as often as it likes.
func (r *readyGroup) member() func() { return sync.OnceFunc(func() { r.ready <- struct{}{} }) }

// wait for all.
func (r *readyGroup) wait(ctx context.Context) error {
	t := time.NewTimer(readyTimeout)
	defer t.Stop()
	for i := range r.n {
		select {
		case <-r.ready:
			t.Reset(readyTimeout)
		case <-t.C:
			return fmt.Errorf(
				"%d of %d %s began, and then none for %s; the server may bound them for each connection: give more connections",
				i, r.n, r.what, readyTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

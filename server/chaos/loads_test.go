package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/client"
)

// loadEnv tells the test binary to be a load on a cluster: a loadSpec.
const loadEnv = "SIGNALBOX_CHAOS_LOAD"

// What all loads of a cluster share.
const (
	loadLocks    = 8
	loadCounters = 4
)

func lockName(k int) string    { return fmt.Sprintf("lock-%d", k) }
func counterName(k int) string { return fmt.Sprintf("count-%d", k) }

// loadSpec is what a load does.
type loadSpec struct {
	Name      string
	Endpoints []string
	History   string // the file it writes
	Timeout   time.Duration
	Grab      []string      // locks that it takes at the same time, and keeps: it reports "grabbed" for each
	MayLose   bool          // it may be cut off for longer than its sessions live; it then starts new ones
	Clients   int           // how many clients it is, 0 is one
	Pause     time.Duration // between two rounds, so that many loads leave the machine some time
}

// load is a client process. It holds a semaphore of its own for its whole life, takes locks that
// others take too, increments counters by compare-and-set, and watches them. On SIGTERM it finishes
// what is in progress.
type load struct {
	loadSpec
	ctx      context.Context // ends when the process is to stop
	out      *historyFile
	c        *client.Client
	lock     sync.Mutex
	failures []error
}

// callLimit is far above what any call may take. It only ends tests that fail.
const callLimit = waitLimit

// now is CLOCK_MONOTONIC, which all processes of the machine share.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// runLoad is the main function of a load.
func runLoad(text string) int {
	l := &load{}
	if err := json.Unmarshal([]byte(text), &l.loadSpec); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l.ctx = ctx
	if err := l.run(); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	return 0
}

func (l *load) run() error {
	var err error
	if l.out, err = createHistoryFile(l.History); err != nil {
		return err
	}
	var clients sync.WaitGroup
	errs := make(chan error, max(1, l.Clients))
	for i := range max(1, l.Clients) {
		one := &load{loadSpec: l.loadSpec, ctx: l.ctx, out: l.out}
		if l.Clients > 0 {
			one.Name = fmt.Sprintf("%s-%d", l.Name, i)
		}
		clients.Go(func() { errs <- one.client() })
	}
	clients.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(append(all, l.out.close())...)
}

// pause waits between two rounds.
func (l *load) pause() {
	if l.Pause <= 0 {
		return
	}
	select {
	case <-l.ctx.Done():
	case <-time.After(l.Pause/2 + rand.N(l.Pause)):
	}
}

// client is one client's life.
func (l *load) client() error {
	var err error
	if l.c, err = client.Open(context.Background(), client.Config{Endpoints: l.Endpoints, Name: l.Name}); err != nil {
		return err
	}
	defer l.c.Close()
	var all sync.WaitGroup
	part := func(what string, f func(s *client.Session) error) {
		all.Go(func() {
			for l.ctx.Err() == nil {
				err := l.session(f)
				if err == nil || l.MayLose && (errors.Is(err, client.ErrSessionExpired) || errors.Is(err, errLost)) {
					continue
				}
				l.lock.Lock()
				l.failures = append(l.failures, fmt.Errorf("%s: %w", what, err))
				l.lock.Unlock()
				say(report{Event: "failed", Text: l.failures[len(l.failures)-1].Error()})
				return
			}
		})
	}
	part("keeper", l.holdOwn)
	part("contender", l.takeLocks)
	part("counter", l.incrementCounters)
	for _, name := range l.Grab {
		part("grabber", func(s *client.Session) error { return l.acquireForever(s, name) })
	}
	for k := range loadCounters {
		all.Go(func() {
			if err := l.watch(k); err != nil {
				l.lock.Lock()
				l.failures = append(l.failures, fmt.Errorf("watch: %w", err))
				l.lock.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(l.failures...)
}

var errLost = errors.New("a lease was lost")

func (l *load) session(f func(s *client.Session) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	s, err := l.c.Session(ctx, nodePath, client.Timeout(l.Timeout), client.Description(l.Name))
	if err != nil {
		return err
	}
	err = f(s)
	closing, done := context.WithTimeout(context.Background(), callLimit)
	defer done()
	if closed := s.Close(closing); err == nil {
		return closed
	}
	return err
}

// timed measures a call.
func (l *load) timed(what, name string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	began := now()
	err := f(ctx)
	l.out.write(loadRecord{What: recordCall, Name: what, From: began, To: now()})
	if err != nil {
		return fmt.Errorf("%s %s, after %v: %w", what, name, now()-began, err)
	}
	return nil
}

// believe watches a lease for as long as it is wanted, and records how long it was relied on.
func (l *load) believe(lease *client.Lease, want time.Duration) error {
	r := loadRecord{What: recordHeld, Name: lease.Name(), Value: lease.Token()}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for r.From = now(); ; {
		at := now()
		if !lease.Held() {
			break
		}
		r.To = at
		if want != 0 && at-r.From > want || want == 0 && l.ctx.Err() != nil {
			break
		}
		if want == 0 {
			select {
			case <-lease.Context().Done():
			case <-l.ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		} else {
			<-look.C
		}
	}
	if r.To != 0 {
		l.out.write(r)
	}
	if err := lease.Lost(); err != nil {
		return fmt.Errorf("%w: %s: %w", errLost, lease.Name(), err)
	}
	return nil
}

// holdOwn holds one semaphore all the time.
func (l *load) holdOwn(s *client.Session) error {
	var lease *client.Lease
	err := l.timed("acquire", "own", func(ctx context.Context) (err error) {
		lease, err = s.Acquire(ctx, "own-"+l.Name, client.Exclusive())
		return err
	})
	if err != nil {
		return err
	}
	say(report{Event: "ready", Session: s.ID()})
	return l.believe(lease, 0)
}

// acquireForever waits for a lock for as long as it takes, and keeps it.
func (l *load) acquireForever(s *client.Session, name string) error {
	lease, err := s.Acquire(l.ctx, name, client.Exclusive())
	if l.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	say(report{Event: "grabbed", Text: name})
	return l.believe(lease, 0)
}

// takeLocks takes one lock after another.
func (l *load) takeLocks(s *client.Session) error {
	for ; l.ctx.Err() == nil; l.pause() {
		name := lockName(rand.IntN(loadLocks))
		var lease *client.Lease
		err := l.timed("acquire", name, func(ctx context.Context) (err error) {
			lease, err = s.Acquire(ctx, name, client.Exclusive())
			return err
		})
		if err != nil {
			return err
		}
		if err := l.believe(lease, time.Duration(1+rand.IntN(4))*time.Millisecond); err != nil {
			return err
		}
		if err := l.timed("release", name, lease.Release); err != nil {
			return err
		}
	}
	return nil
}

// incrementCounters increments one counter after another by compare-and-set.
func (l *load) incrementCounters(s *client.Session) error {
	for k := rand.IntN(loadCounters); l.ctx.Err() == nil; k++ {
		l.pause()
		name := counterName(k % loadCounters)
		cfg := s.Config(name)
		var v client.Value
		err := l.timed("read", name, func(ctx context.Context) (err error) {
			v, err = cfg.Get(ctx, client.ReadConsistency(client.Strict))
			return err
		})
		n := uint64(0)
		switch {
		case errors.Is(err, client.ErrNotFound):
		case err != nil:
			return err
		default:
			if n, err = strconv.ParseUint(string(v.Data), 10, 64); err != nil {
				return err
			}
		}
		if n > v.Version { // which leaves numbers out when a node of the cluster is deleted
			return fmt.Errorf("%s: version %d reads %d", name, v.Version, n)
		}
		r := loadRecord{What: recordCounted, Name: name, Value: n + 1, From: now()}
		err = l.timed("count", name, func(ctx context.Context) (err error) {
			_, err = cfg.Set(ctx, []byte(strconv.FormatUint(r.Value, 10)), client.IfVersion(v.Version))
			return err
		})
		if errors.Is(err, client.ErrPreconditionFailed) {
			continue // another one was faster
		}
		if err != nil {
			return err
		}
		r.To = now()
		l.out.write(r)
	}
	return nil
}

// watch follows a counter: it never goes back, and ends at what a strict read shows.
func (l *load) watch(k int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n, err := l.c.Node(ctx, nodePath)
	if err != nil {
		return err
	}
	cfg := n.Config(counterName(k))
	var lock sync.Mutex
	var last, last0, want uint64
	over := make(chan error, 1)
	go func() {
		for v, err := range cfg.Watch(ctx) {
			if err != nil {
				over <- fmt.Errorf("the watch of %s ended: %w", counterName(k), err)
				return
			}
			lock.Lock()
			last0, last = last, v.Version
			back, enough := last < last0, want != 0 && last >= want
			lock.Unlock()
			if back {
				over <- fmt.Errorf("the watch of %s went back from version %d to %d", counterName(k), last0, last)
				return
			}
			if enough {
				break
			}
		}
		over <- nil
	}()
	select {
	case err := <-over:
		return err
	case <-l.ctx.Done():
	}
	bounded, cancel2 := context.WithTimeout(ctx, callLimit)
	defer cancel2()
	v, err := cfg.Get(bounded, client.ReadConsistency(client.Strict))
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s is not read at the end: %w", counterName(k), err)
	}
	lock.Lock()
	want = v.Version
	enough := last >= want
	lock.Unlock()
	if enough {
		return nil
	}
	select {
	case err := <-over:
		return err
	case <-bounded.Done():
		return fmt.Errorf("the watch of %s does not come to version %d", counterName(k), v.Version)
	}
}

// historyFile is the file of a load's records.
type historyFile struct {
	lock sync.Mutex
	f    *os.File
	err  error
}

func createHistoryFile(path string) (*historyFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	return &historyFile{f: f}, err
}

func (h *historyFile) write(r loadRecord) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if _, err := h.f.WriteString(r.String()); err != nil && h.err == nil {
		h.err = err
	}
}

func (h *historyFile) close() error { return errors.Join(h.err, h.f.Close()) }

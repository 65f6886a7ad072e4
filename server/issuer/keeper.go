// Package issuer fetches the keys of trusts from their issuers, as OpenID Connect publishes them.
// The instance that leads the meta shard does so, and proposes a set that has changed: all
// instances have the same keys. A fetch that fails leaves the former ones.
package issuer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

const (
	defaultPeriod = 15 * time.Minute
	defaultPause  = time.Minute
	proposeMost   = 10 * time.Second
	podAccount    = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// Config of a Keeper.
type Config struct {
	State   func() *meta.State
	Leading func() bool            // of the meta shard
	Changed func() <-chan struct{} // closed when State or Leading may have changed since the call
	// Change changes a trust in the meta shard; see governor.Service.
	Change func(ctx context.Context, name string, change func(t *meta.Trust) error) error
	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP
	Pod    string                                                               // folder of a pod's service account; default Kubernetes'
	Period time.Duration                                                        // between fetches; default 15 min
	Pause  time.Duration                                                        // at least, between fetches, and after one that failed; default 1 min
	Log    *slog.Logger
}

// Keeper keeps the keys of all trusts up to date. Its methods may be called from any goroutine.
type Keeper struct {
	cfg  Config
	wake chan struct{} // capacity 1: an issuer has another time to be asked

	mu      sync.Mutex
	issuers map[string]*issuer // by name of the trust; empty while another instance leads
}

// issuer is the state of one trust's issuer. Keeper.mu guards it.
type issuer struct {
	trust  meta.Trust    // of which keys, rules and revision may be old
	due    time.Time     // of the next fetch
	begun  time.Time     // of the last fetch
	busy   bool          // it is under way
	good   time.Time     // of the last fetch that succeeded; before it, since when this instance fetches
	err    error         // of the last fetch
	failed uint64        // fetches
	done   chan struct{} // closed at the end of the fetch under way, or of the next one
}

// Status is what a Keeper knows of the keys of a trust.
type Status struct {
	Trust  string
	Age    time.Duration // since the issuer confirmed them
	Failed uint64        // fetches
	Err    error         // of the last fetch
}

// New makes a Keeper. Run starts it.
func New(c Config) *Keeper {
	if c.Period == 0 {
		c.Period = defaultPeriod
	}
	if c.Pause == 0 {
		c.Pause = defaultPause
	}
	if c.Pod == "" {
		c.Pod = podAccount
	}
	return &Keeper{cfg: c, wake: make(chan struct{}, 1), issuers: make(map[string]*issuer)}
}

// Run fetches while this instance leads, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var fetches sync.WaitGroup
	defer fetches.Wait()
	for {
		changed := k.cfg.Changed()
		due, next := k.begin()
		for _, i := range due {
			fetches.Go(func() { k.refresh(ctx, i) })
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-k.wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// follow takes over the trusts as they are. The caller holds mu.
func (k *Keeper) follow(now time.Time) {
	former := k.issuers
	k.issuers = make(map[string]*issuer)
	if !k.cfg.Leading() {
		return
	}
	for _, t := range k.cfg.State().Trusts() {
		if !t.Fetched() {
			continue
		}
		i := former[t.Name]
		if i == nil || !sameIssuer(&i.trust, &t) {
			i = &issuer{trust: t, good: now, due: now, done: make(chan struct{})}
		}
		k.issuers[t.Name] = i
	}
}

func sameIssuer(a, b *meta.Trust) bool {
	return a.CreatedAt == b.CreatedAt && a.Issuer == b.Issuer && bytes.Equal(a.CA, b.CA) && a.BearerFile == b.BearerFile
}

// begin returns the issuers whose keys are to be fetched now, and the time until the next one is.
func (k *Keeper) begin() (list []*issuer, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.follow(now)
	next = k.cfg.Period
	for _, i := range k.issuers {
		switch left := i.due.Sub(now); {
		case i.busy: // its end wakes Run
		case left > 0:
			next = min(next, left)
		default:
			i.busy, i.begun = true, now
			list = append(list, i)
		}
	}
	return list, next
}

// Refresh fetches the keys of a trust, unless that was done within the last Pause, and returns the
// outcome of the last fetch. It fails where another instance leads.
func (k *Keeper) Refresh(ctx context.Context, name string) error {
	k.mu.Lock()
	now := time.Now()
	k.follow(now) // it may have been created a moment ago
	i := k.issuers[name]
	if i == nil {
		k.mu.Unlock()
		return fmt.Errorf("the keys of trust %.80q are not fetched by this instance", name)
	}
	done := i.done
	fresh := !i.busy && now.Sub(i.begun) < k.cfg.Pause
	if !fresh {
		i.due = now
		k.notify()
	}
	k.mu.Unlock()
	if !fresh {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return i.err
}

// refresh fetches, proposes what has changed, and notes the outcome.
func (k *Keeper) refresh(ctx context.Context, i *issuer) {
	before, _ := k.cfg.State().Trust(i.trust.Name)
	keys, err := k.fetch(ctx, &i.trust)
	if err == nil {
		err = k.propose(ctx, i, before.Keys, keys)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	i.err, i.busy, i.due = err, false, now.Add(k.cfg.Period)
	if err == nil {
		i.good = now
	} else if ctx.Err() == nil {
		i.failed, i.due = i.failed+1, now.Add(k.cfg.Pause)
		k.cfg.Log.Warn("keys of a trust were not fetched", "trust", i.trust.Name, "issuer", i.trust.Issuer, "error", err)
	}
	close(i.done)
	i.done = make(chan struct{})
	k.notify()
}

func (k *Keeper) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

var errChanged = errors.New("the trust has changed meanwhile")

// propose has keys take the place of those from before the fetch. If there are others by now, those
// may be newer than what was fetched: another instance leads since.
func (k *Keeper) propose(ctx context.Context, i *issuer, before, keys []byte) error {
	if t, _ := k.cfg.State().Trust(i.trust.Name); bytes.Equal(t.Keys, keys) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proposeMost)
	defer cancel()
	return k.cfg.Change(ctx, i.trust.Name, func(t *meta.Trust) error {
		if t.Revision == 0 || !t.Fetched() || !sameIssuer(t, &i.trust) || !bytes.Equal(t.Keys, before) {
			return errChanged
		}
		t.Keys = keys
		return nil
	})
}

// Status returns what is known of the keys of each trust whose keys are fetched here.
func (k *Keeper) Status() (list []Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.issuers)) {
		i := k.issuers[name]
		list = append(list, Status{name, time.Since(i.good), i.failed, i.err})
	}
	return list
}

// Problems says in sentences which keys could not be fetched.
func (k *Keeper) Problems() (list []string) {
	for _, s := range k.Status() {
		if s.Err != nil {
			list = append(list, fmt.Sprintf("the keys of trust %s were last confirmed %s ago: %v; the former ones count",
				s.Trust, s.Age.Round(time.Second), s.Err))
		}
	}
	return list
}

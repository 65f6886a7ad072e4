package rollout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// FollowerState is the state of a Follower.
type FollowerState struct {
	Registered bool   // with a session that lives; false: no server can be reached, or it refuses, and Current stays
	Role       Role   // 0 while not registered
	Current    uint64 // the version that is served, 0 none
	Target     Target // what the server said last
	Attempts   int    // to load Target that failed
	Err        error  // of the last of them, or why it is not registered
}

// Follower is an instance that calls its program's Update for each version that it is to load.
type Follower struct {
	c *client.Client
	o FollowerOptions

	wake chan struct{} // capacity 1: look at wanted

	mu         sync.Mutex
	wantLeader bool // to be a leader
	state      FollowerState

	// Owned by Run.
	job         *updateJob
	report      Report    // what is known; sent with each poll
	retryAt     time.Time // not to be tried before
	ran         bool
	ownSessions []uint64 // the session that was registered last, and later ones that may have been
	fetched     *Version // the version whose payload was fetched last
	served      Version  // what Current of the report is
	unchecked   bool     // nothing says yet that it is of the track as it is registered in now
}

// errSuperseded ends an update whose version is not wanted any more.
var errSuperseded = errors.New("another version is to be loaded")

// MarkReady makes the instance a leader with its next report that it has its target, and after each
// registration again: its location waits for it.
func (f *Follower) MarkReady() { f.setWantLeader(true) }

// MarkNotReady makes it a follower: it still loads versions, but its location does not wait for it.
func (f *Follower) MarkNotReady() { f.setWantLeader(false) }

func (f *Follower) setWantLeader(leader bool) {
	f.mu.Lock()
	f.wantLeader = leader
	f.mu.Unlock()
	f.notify()
}

// State is the follower's state.
func (f *Follower) State() FollowerState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *Follower) wantsLeader() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wantLeader
}

func (f *Follower) setState(to func(*FollowerState)) {
	f.mu.Lock()
	to(&f.state)
	now := f.state
	f.mu.Unlock()
	if f.o.OnChange != nil {
		f.o.OnChange(now)
	}
}

// savedOwner identifies the follower that a folder belongs to.
func (f *Follower) savedOwner() string {
	return f.o.Node + "\x00" + f.o.Track + "\x00" + f.o.Location + "\x00" + f.o.ID
}

// Run runs the follower. It returns ctx's error; ErrFenced when another registration has taken the
// id; or a permanent refusal, such as ErrAlreadyRegistered, or at the start a track or location
// that does not exist. While no server can be reached, and after its session ended, it goes on with
// what it has and registers again. When it returns, the instance is no longer registered, if the
// server could be reached, and another process can have its id. It may be called once.
func (f *Follower) Run(ctx context.Context) error {
	if f.ran {
		return errors.New("follower: it has run already; make another one")
	}
	f.ran = true
	defer f.stopJob()
	defer func() {
		if f.o.Client == nil && f.c != nil {
			f.c.CloseWithoutRelease() // its session is stopped already, or cannot be
		}
	}()
	takeover := f.o.Takeover
	if f.o.Dir != "" {
		k, err := loadSavedVersion(f.o.Dir)
		if err != nil {
			return fmt.Errorf("follower: %w", err)
		}
		if k != nil && k.id == f.savedOwner() {
			takeover = true
			f.startJob(ctx, Version{Number: k.version, Payload: k.payload, HasPayload: k.hasPayload,
				Attempt: 1, Restored: true})
		}
	}
	registered, failures := false, 0
	for {
		ok, err := f.runSession(ctx, takeover)
		registered, takeover = registered || ok, takeover && !ok
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isPermanent(err, registered):
			return err
		case ok:
			failures = 0
		}
		f.o.Logger.Warn("rollout instance goes on by itself", "track", f.o.Track, "instance", f.o.ID,
			"current", f.State().Current, "error", err)
		f.setState(func(s *FollowerState) { s.Registered, s.Role, s.Err = false, 0, err })
		f.pause(ctx, f.backoff(failures))
		failures++
	}
}

// isPermanent reports whether registering again cannot help. What may be put right while an
// instance serves ends it at its start alone, when somebody looks.
func isPermanent(err error, registered bool) bool {
	switch {
	case errors.Is(err, ErrFenced), errors.Is(err, ErrAlreadyRegistered), errors.Is(err, client.ErrClientClosed):
		return true
	}
	switch protocol.StatusOf(err) {
	case protocol.StatusBadRequest, protocol.StatusUnsupported:
		return true
	case protocol.StatusNotFound, protocol.StatusForbidden, protocol.StatusUnauthenticated:
		return !registered
	}
	return false
}

// backoff returns the wait after a number of failures: it doubles, and half of it is random.
func (f *Follower) backoff(failures int) time.Duration {
	d := f.o.RetryMax
	if least := f.o.RetryMin; failures < 20 && least <= d>>failures {
		d = least << failures
	}
	return d/2 + rand.N(d/2+1)
}

// pause waits; the update that is under way may end meanwhile.
func (f *Follower) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case err := <-f.jobDone():
			f.finishJob(err)
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *Follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

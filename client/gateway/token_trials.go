package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxTrials is how many connections for new tokens of one host may be in the making. The
	// cluster answers wrong tokens late, so a host that guesses has few of them a second. A host
	// with many good tokens connects them in turn, within milliseconds each.
	maxTrials = 8
	// maxTrialsWaiting bounds the calls of a host that wait for that; more are answered OVERLOADED.
	maxTrialsWaiting = 256
	// refusalMemory is how long a token that the cluster refused is refused without asking again.
	// It is as short as one delay, because a token may have been made a moment ago.
	refusalMemory = 2 * time.Second
	// anonymousMemory is the same for a token that the cluster does not know and takes, because
	// authentication is off. It may have been made known since.
	anonymousMemory = time.Minute
	// maxRefusals bounds the memory for both.
	maxRefusals = 10_000
)

// trials are the first connections with tokens, which may be wrong. They are bounded for each host,
// so that a client with wrong tokens takes neither the cluster's time nor the places of others.
type trials struct {
	mu       sync.Mutex
	hosts    map[string]*trialHost          // those with calls
	refusals map[[sha256.Size]byte]*refusal // by the token's hash
}

type trialHost struct {
	calls int           // in a trial, or waiting for one
	slots chan struct{} // one element for each trial
}

type refusal struct {
	err   error
	until time.Time
}

func newTrials() *trials {
	return &trials{hosts: make(map[string]*trialHost), refusals: make(map[[sha256.Size]byte]*refusal)}
}

// begin waits until the host may try a token. The caller calls end when the trial is over. Errors:
// ErrOverloaded; the end of ctx.
func (t *trials) begin(ctx context.Context, host string) (end func(), err error) {
	t.mu.Lock()
	h := t.hosts[host]
	if h == nil {
		h = &trialHost{slots: make(chan struct{}, maxTrials)}
		t.hosts[host] = h
	}
	if h.calls >= maxTrials+maxTrialsWaiting {
		t.mu.Unlock()
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d calls of this host wait until their tokens are checked, the most that may be; try again later",
			maxTrialsWaiting)
	}
	h.calls++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if h.calls--; h.calls == 0 {
			delete(t.hosts, host)
		}
	}
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// refused is the error of a token that the cluster has just refused, or errAnonymous, or nil.
func (t *trials) refused(token string, now time.Time) error {
	key := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.refusals[key]; r != nil && now.Before(r.until) {
		return r.err
	}
	return nil
}

// refuse remembers a token that the cluster has refused, or that is errAnonymous.
func (t *trials) refuse(token string, err error, now time.Time) {
	key := sha256.Sum256([]byte(token))
	until := now.Add(refusalMemory)
	if errors.Is(err, errAnonymous) {
		until = now.Add(anonymousMemory)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refusals) >= maxRefusals {
		for k, r := range t.refusals {
			if !now.Before(r.until) {
				delete(t.refusals, k)
			}
		}
	}
	if len(t.refusals) < maxRefusals { // else it is asked for again
		t.refusals[key] = &refusal{err: err, until: until}
	}
}

// callEnded forgets that a token was unknown if its caller was refused, or had no right: with
// authentication, callers without a token may have rights, and this one may have its own by now.
func (t *trials) callEnded(token string, err error) {
	if IsUnauthenticated(err) || errors.Is(err, protocol.StatusForbidden) {
		t.forgetAnonymous(token)
	}
}

// forgetAnonymous has the cluster be asked again about a token that it did not know. False: it is
// not remembered as such.
func (t *trials) forgetAnonymous(token string) bool {
	key := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.refusals[key]
	if r == nil || !errors.Is(r.err, errAnonymous) {
		return false
	}
	delete(t.refusals, key)
	return true
}

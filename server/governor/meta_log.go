package governor

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// metaLog is the meta shard's log, and the state that this instance has applied. Its methods may be
// called from any goroutine.
type metaLog struct {
	meta    Meta
	clock   Clock
	changes notifier // of the state, of heartbeats, and of leaders
}

// State is the meta state as this instance has applied it. It is immutable.
func (l *metaLog) State() *meta.State { return l.meta.State() }

// Await returns once what holds for the state that this instance has applied, or when ctx ends.
func (l *metaLog) Await(ctx context.Context, what func(s *meta.State) bool) error {
	for {
		changed := l.changes.wait()
		if what(l.State()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// proposeOnce has the meta shard apply a command exactly once. build makes the command from the
// present state, and is called again after ABORTED. An error is a *protocol.Error.
func (l *metaLog) proposeOnce(
	ctx context.Context, build func(s *meta.State) (meta.Command, error),
) (meta.Result, error) {
	for {
		changed := l.changes.wait()
		s := l.State()
		c, err := build(s)
		if err != nil {
			return meta.Result{}, err
		}
		var op meta.OpID
		_, _ = rand.Read(op[:]) // it never fails
		entry, err := s.Entry(op, c)
		if err != nil {
			return meta.Result{}, err
		}
		res, err := l.proposeEntry(ctx, entry)
		if err != nil {
			return meta.Result{}, err
		}
		if res.Status != protocol.StatusAborted {
			return res, res.Err()
		}
		// The change in the way may have finished before changed was taken: look again in any case.
		if !sleep(ctx, changed, Backoff) {
			return meta.Result{}, res.Err()
		}
	}
}

// proposeEntry repeats an entry until its result is known. The op id in the entry makes that safe.
func (l *metaLog) proposeEntry(ctx context.Context, entry []byte) (meta.Result, error) {
	for {
		try, cancel := context.WithTimeout(ctx, StepTimeout)
		answer, err := l.meta.Propose(try, entry)
		cancel()
		if err == nil {
			res, err := meta.DecodeResult(answer)
			if err != nil {
				return meta.Result{}, protocol.Errorf(protocol.StatusInternal, "%v", err)
			}
			return res, nil
		}
		if !sleep(ctx, nil, Backoff) {
			return meta.Result{}, outcomeUnknown(err)
		}
	}
}

// outcomeUnknown is the error of a change whose time ran out before the meta shard answered.
func outcomeUnknown(err error) error {
	return protocol.Errorf(protocol.StatusUnavailable,
		"the meta shard did not answer in time (%v); the change may still happen: look before trying again", err)
}

// awaitApplied waits until this instance has applied the result and done is true of the state.
func (l *metaLog) awaitApplied(ctx context.Context, res meta.Result, done func(s *meta.State) bool) error {
	for {
		changed := l.changes.wait()
		if s := l.State(); s.Revision() >= res.Revision && done(s) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return protocol.Errorf(protocol.StatusUnavailable,
				"the change is decided, and not finished in time; it continues: look again to see it")
		}
	}
}

// proposeAndWait proposes a command and waits until this instance has applied it.
func (l *metaLog) proposeAndWait(
	ctx context.Context, build func(s *meta.State) (meta.Command, error),
) (meta.Result, error) {
	res, err := l.proposeOnce(ctx, build)
	if err != nil {
		return res, err
	}
	return res, l.awaitApplied(ctx, res, func(*meta.State) bool { return true })
}

func (l *metaLog) wall() uint64 { return uint64(max(0, l.clock.Wall().UnixMilli())) }

// sleep waits for changed or d; false when ctx ends first.
func sleep(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

package governor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// proposeOnce has the meta shard apply a command exactly once. build makes the command from the
// present state, and is called again after ABORTED. An error is a *protocol.Error.
func (g *Governor) proposeOnce(ctx context.Context, build func(s *meta.State) (meta.Command, error)) (meta.Result, error) {
	for {
		changed := g.changes.wait()
		c, err := build(g.State())
		if err != nil {
			return meta.Result{}, err
		}
		var op meta.OpID
		if _, err := io.ReadFull(g.random, op[:]); err != nil {
			return meta.Result{}, protocol.Errorf(protocol.StatusInternal, "no random bytes: %v", err)
		}
		res, err := g.proposeEntry(ctx, meta.AppendCommand(nil, op, c))
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
func (g *Governor) proposeEntry(ctx context.Context, entry []byte) (meta.Result, error) {
	for {
		try, cancel := context.WithTimeout(ctx, StepTimeout)
		answer, err := g.meta.Propose(try, entry)
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
func (g *Governor) awaitApplied(ctx context.Context, res meta.Result, done func(s *meta.State) bool) error {
	for {
		changed := g.changes.wait()
		if s := g.State(); s.Revision() >= res.Revision && done(s) {
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

// RotateKeys makes a new ticket key. The previous key still verifies; older keys do not.
func (g *Governor) RotateKeys(ctx context.Context) error {
	var secret [meta.KeySecretLen]byte
	if _, err := io.ReadFull(g.random, secret[:]); err != nil {
		return fmt.Errorf("no random bytes for a ticket key: %w", err)
	}
	_, err := g.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
		current, _ := s.Keys()
		return &meta.RotateKeys{Current: current.ID, Secret: secret}, nil
	})
	return err
}

package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Generator makes the versions of a track whose source is External. It is asked when the first
// location is to have another version, one question at a time. Several may run for the same track,
// in several processes: all are asked and the first version counts, so a silent one delays nobody.
//
// Versions are opaque numbers from 1 to 2^63-1. Each must be above all versions before
// (Status.Last), and at most half way from those to 2^63-1; others are rejected, and show as the
// source's error.
type Generator struct {
	Track *Track // opened on a session, which need not be that of an instance

	// Next makes a version; expected is the one that the first location has, 0 none. An error shows
	// in the track's status until a version comes, while the location keeps what it has. A version
	// that is not wanted any more, or not yet, is lost. The context ends after Timeout, or with
	// Run.
	Next func(ctx context.Context, expected uint64) (version uint64, err error)

	// Timeout bounds a call of Next. Default 5 s.
	Timeout time.Duration

	// RetryMin and RetryMax are how long the first and later questions after a failure wait,
	// doubling between. Defaults 1 s and 30 s.
	RetryMin, RetryMax time.Duration

	// OnResult, if not nil, is called with the result of each question. ErrPreconditionFailed:
	// another generator was faster; ErrBadRequest: the version does not increase.
	OnResult func(expected, version uint64, err error)
}

// Advance offers a version to the first location of a track whose source is External, if its target
// is still the expected one. Generator calls it. Errors: ErrPreconditionFailed when it is not time,
// or the track has another source; ErrBadRequest for a version that is not above all others.
func (t *Track) Advance(ctx context.Context, expected, version uint64) error {
	if version == 0 {
		return protocol.Errorf(protocol.StatusBadRequest, "version is 0; versions begin at 1")
	}
	m := &protocol.TrackAdvance{Name: t.name(), Expected: expected, Version: version}
	return t.change(ctx, protocol.KindTrackAdvance, &m.Head, m, &protocol.Empty{})
}

// SourceFailed says why there is no version; the status shows it until there is one. Targets stay.
// Errors: ErrPreconditionFailed when the first location has another target than the expected one by
// now, or wants no version, or the track has another source.
func (t *Track) SourceFailed(ctx context.Context, expected uint64, why string) error {
	if why = printable(why, protocol.MaxTrackMessage); why == "" {
		why = "no reason was given"
	}
	m := &protocol.TrackAdvance{Name: t.name(), Expected: expected, Text: why}
	return t.change(ctx, protocol.KindTrackAdvance, &m.Head, m, &protocol.Empty{})
}

// Run answers questions until ctx ends, and returns its error; otherwise what ended the watch or
// the session.
func (g *Generator) Run(ctx context.Context) error {
	if g.Next == nil || g.Track == nil {
		return errors.New("generator: it needs a track, and what makes its versions")
	}
	var err error
	millis.Of("timeout", g.Timeout, &err)
	if err = checkRetry(g.RetryMin, g.RetryMax, 30*time.Second, err); err != nil {
		return fmt.Errorf("generator: %w", err)
	}
	return g.Track.whileSession(ctx, g.run)
}

func (g *Generator) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	event, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- g.listen(ctx, event) }()
	over := false
	defer func() {
		cancel()
		if !over {
			<-ended
		}
	}()
	retryMin, retryMax := cmp.Or(g.RetryMin, time.Second), cmp.Or(g.RetryMax, 30*time.Second)
	wait := retryMin
	for {
		var again <-chan time.Time
		inbox := event
		expected, wanted, err := g.wanted(ctx)
		if err == nil && wanted {
			err = g.answer(ctx, expected)
			// Also when it was taken: the next question comes as an event. When it was not, nothing
			// may change that would be an event.
			again = time.After(wait)
			if wait = min(wait+min(wait, retryMax-wait), retryMax); err == nil {
				wait = retryMin
			} else if protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
				inbox = nil // whatever happens meanwhile, what fails is not asked more often
			}
		} else if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-inbox:
		case <-again:
		case err := <-ended:
			over = true
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listen notifies of what may be a question, until the watch ends.
func (g *Generator) listen(ctx context.Context, event chan<- struct{}) error {
	for n, err := range g.Track.watch(ctx, "", false) {
		if err != nil {
			return asRefusal(err)
		}
		if n.Change != nil && !concernsSource(n.Change.Events) {
			continue
		}
		select {
		case event <- struct{}{}:
		default: // a notification waits already
		}
	}
	return ctx.Err()
}

// wanted reports whether the first location is ready for another version. Whether it is one from
// the source is looked at again when the version comes.
func (g *Generator) wanted(ctx context.Context) (expected uint64, yes bool, err error) {
	s, err := g.Track.Describe(ctx)
	if err != nil {
		return 0, false, err
	}
	for i := range s.Locations {
		switch l := &s.Locations[i]; l.State {
		case protocol.StateExcluded, protocol.StateSkipped, protocol.StateRemoved:
			continue
		default:
			return l.Target, l.State == protocol.StateReady, nil
		}
	}
	return 0, false, nil
}

func (g *Generator) answer(ctx context.Context, expected uint64) error {
	own, cancel := context.WithTimeout(ctx, cmp.Or(g.Timeout, 5*time.Second))
	version, err := g.Next(own, expected)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = g.Track.Advance(ctx, expected, version)
	} else if bad := g.Track.SourceFailed(ctx, expected, err.Error()); bad != nil &&
		protocol.StatusOf(bad) != protocol.StatusPreconditionFailed {
		// else another one has given a version, and nobody waits
		err = fmt.Errorf("%w; and that could not be told: %w", err, bad)
	}
	if g.OnResult != nil {
		g.OnResult(expected, version, err)
	}
	return err
}

func concernsSource(list []protocol.TrackEvent) bool {
	for i := range list {
		switch list[i].Kind {
		case protocol.TrackEventState, protocol.TrackEventTarget, protocol.TrackEventAdmin:
			return true
		}
	}
	return false
}

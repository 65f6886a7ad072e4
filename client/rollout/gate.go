package rollout

import (
	"context"
	"errors"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Outcome is the result of a gate.
type Outcome = protocol.GateOutcome

const (
	Success      = protocol.GateSuccess      // the location may take the version
	Failure      = protocol.GateFailure      // the version, and all before it, is never chosen by the location
	Inconclusive = protocol.GateInconclusive // it is run again later
)

// Decide sets the outcome of a gate's run, with a text for people. Errors: ErrPreconditionFailed
// when the run is over.
func (t *Track) Decide(ctx context.Context, run GateRun, outcome Outcome, text string) error {
	m := &protocol.TrackGateReport{
		Name: t.name(), Location: run.Location, Version: run.Version, Gate: run.Gate.Name,
		Attempt: run.Attempt, Outcome: outcome,
		Text: printable(text, protocol.MaxTrackMessage),
	}
	return t.change(ctx, protocol.KindTrackGateReport, &m.Head, m, &protocol.Empty{})
}

// Gatekeeper runs the gates of a track. Several may serve the same track: the first outcome of a
// run counts.
type Gatekeeper struct {
	Track *Track // opened on a session

	// Check runs one gate and says how it went. Its context ends when the run is not waited for any
	// more: the time it has is over, somebody else decided, or the version was given up. Several
	// checks, of different locations, may run at a time.
	Check func(ctx context.Context, run GateRun) (Outcome, string)

	// OnDecided, if not nil, is called with each outcome. err is not nil when the outcome came too
	// late.
	OnDecided func(run GateRun, outcome Outcome, text string, err error)
}

type runKey struct {
	location         string
	gate             Gate // as it is configured: one that was replaced runs again
	version, attempt uint64
}

// Run runs gates until ctx ends, and returns its error; otherwise what ended the watch or the
// session. It returns after all checks have.
func (g *Gatekeeper) Run(ctx context.Context) error {
	if g.Check == nil || g.Track == nil {
		return errors.New("gatekeeper: it needs a track, and what runs its gates")
	}
	return g.Track.whileSession(ctx, g.run)
}

func (g *Gatekeeper) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	under := map[runKey]context.CancelFunc{}
	for event, err := range g.Track.watch(ctx, "", false) {
		if err != nil {
			return asRefusal(err)
		}
		if event.Change != nil && !concernsGates(event.Change.Events) {
			continue
		}
		status, err := g.Track.Describe(ctx)
		if err != nil {
			return err
		}
		now := map[runKey]bool{}
		for _, run := range status.Gates {
			key := runKey{run.Location, run.Gate, run.Version, run.Attempt}
			now[key] = true
			if under[key] != nil {
				continue
			}
			own, stop := context.WithTimeout(ctx, run.Left)
			under[key] = stop
			work.Go(func() {
				defer stop()
				g.check(own, run)
			})
		}
		for key, stop := range under {
			if !now[key] {
				stop()
				delete(under, key)
			}
		}
	}
	return ctx.Err()
}

// check runs one gate and tells its outcome. What its context ended is not told: nobody waits for
// it.
func (g *Gatekeeper) check(ctx context.Context, run GateRun) {
	outcome, text := g.Check(ctx, run)
	if ctx.Err() != nil {
		return
	}
	err := g.Track.Decide(ctx, run, outcome, text)
	if g.OnDecided != nil {
		g.OnDecided(run, outcome, text, err)
	}
}

func concernsGates(list []protocol.TrackEvent) bool {
	for i := range list {
		switch list[i].Kind {
		case protocol.TrackEventGate, protocol.TrackEventGateDone, protocol.TrackEventTarget,
			protocol.TrackEventAdmin:
			return true
		}
	}
	return false
}

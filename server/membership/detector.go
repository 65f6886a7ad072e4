package membership

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// missedAfter is the age of a last heartbeat at which one has been missed.
const missedAfter = 3 * cluster.HeartbeatPeriod

// updateTimeout bounds one attempt to change a target in the meta shard.
const updateTimeout = 3 * time.Second

// detectorDriver drives the failure detector of this instance.
type detectorDriver struct {
	member *Member
	wake   chan struct{}
	missed atomic.Int64 // beats since the last step
	// leaving: the instance may have been made Offline because it stops. It does not come back by
	// itself.
	leaving atomic.Bool

	mu       sync.Mutex
	detector *failuredetector.Detector
	actions  map[detectorAction]uint64
	last     detectorAction
	lastAt   time.Duration
}

// detectorAction is an action of the failure detector, and what became of it.
type detectorAction struct {
	kind    failuredetector.ActionKind
	outcome actionOutcome
}

// actionOutcome is what became of an action of the failure detector.
type actionOutcome string

const (
	accepted   actionOutcome = "accepted"
	refused    actionOutcome = "refused"
	unanswered actionOutcome = "unanswered" // nobody who leads the meta shard answered: it may have been accepted
)

var actionOutcomes = []actionOutcome{accepted, refused, unanswered}

func actionOutcomeOf(answer protocol.Status) actionOutcome {
	switch answer {
	case protocol.StatusOK:
		return accepted
	case protocol.StatusUnavailable, protocol.StatusWrongShard, protocol.StatusInternal:
		return unanswered
	}
	return refused
}

func newDetectorDriver(m *Member) *detectorDriver {
	return &detectorDriver{member: m, detector: failuredetector.New(m.OfflineAfter), wake: make(chan struct{}, 1),
		actions: make(map[detectorAction]uint64)}
}

// with calls the detector, and takes a step soon.
func (d *detectorDriver) with(call func(*failuredetector.Detector)) {
	d.mu.Lock()
	call(d.detector)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *detectorDriver) activate() { d.with((*failuredetector.Detector).Activate) }

// leave tells the cluster that this instance goes.
func (d *detectorDriver) leave() { d.with((*failuredetector.Detector).Shutdown) }

// heartbeat takes one heartbeat of another instance.
func (d *detectorDriver) heartbeat(instance, incarnation, applied uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detector.HeartbeatReceived(instance, incarnation, applied, d.member.Clock.Now())
}

// run steps the detector until ctx ends.
func (d *detectorDriver) run(ctx context.Context) {
	for {
		changed := d.member.Meta.Changed()
		wait := d.step(ctx)
		d.missed.Store(0)
		if wait == failuredetector.StepInterval {
			wait = beat.Next(wait)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
		case <-d.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// feel counts beats, until ctx ends: a pause of the process is one.
func (d *detectorDriver) feel(ctx context.Context) {
	for beat.Sleep(ctx, beat.Next(failuredetector.StepInterval)) {
		d.missed.Add(1)
	}
}

// silence is how long the detector has taken no step.
func (d *detectorDriver) silence() time.Duration {
	return time.Duration(max(0, d.missed.Load()-1)) * failuredetector.StepInterval
}

// step takes one step and carries out its action.
func (d *detectorDriver) step(ctx context.Context) (wait time.Duration) {
	m := d.member
	state := m.Meta.State()
	now := m.Clock.Now()
	view := failuredetector.View{Self: m.instance, Leading: m.Meta.Leading(), Applied: state.AppliedIndex()}
	health := m.service.Instances().Health()
	d.mu.Lock()
	for _, i := range state.Instances() {
		if i.Expelled() {
			continue
		}
		view.Members = append(view.Members,
			failuredetector.Member{ID: i.ID, Target: targetOf(i.Target.Variant), Incarnation: i.Target.Incarnation})
		if h, ok := health[i.ID]; i.ID != m.instance &&
			(!ok || h.Incarnation < i.Target.Incarnation || now-h.Heard > missedAfter) {
			d.detector.HeartbeatFailed(i.ID, now)
		}
	}
	a, wait := d.detector.Step(now, view)
	d.mu.Unlock()
	if a.Kind == failuredetector.None {
		return wait
	}
	answer := d.execute(ctx, a, state)
	d.mu.Lock()
	d.detector.Finished(a, answer, m.Meta.State().AppliedIndex(), m.Clock.Now())
	d.last, d.lastAt = detectorAction{a.Kind, actionOutcomeOf(answer)}, m.Clock.Now()
	d.actions[d.last]++
	d.mu.Unlock()
	return wait
}

func targetOf(v meta.Variant) failuredetector.Target {
	switch v {
	case meta.Online:
		return failuredetector.Online
	case meta.Expelled:
		return failuredetector.Expelled
	}
	return failuredetector.Offline
}

func (d *detectorDriver) execute(ctx context.Context, a failuredetector.Action, state *meta.State) protocol.Status {
	m := d.member
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	var err error
	switch a.Kind {
	case failuredetector.MarkOffline:
		i, ok := state.Instance(a.Instance)
		if !ok {
			return protocol.StatusNotFound
		}
		m.Logger.Warn("instance marked offline", "instance", i.ID, "name", i.Name, "reason", a.Reason)
		_, err = m.governor.UpdateInstance(ctx,
			meta.InstanceUpdate{Instance: i.ID, Expected: i.Revision, Target: meta.Offline, Reason: a.Reason})
	case failuredetector.GoOnline:
		if d.leaving.Load() {
			return protocol.StatusUnavailable
		}
		err = m.service.SetTarget(ctx, meta.Online, a.Reason, false)
	case failuredetector.GoOffline:
		err = m.service.SetTarget(ctx, meta.Offline, a.Reason, false)
	}
	if err == nil {
		return protocol.StatusOK
	}
	if !errors.Is(err, context.Canceled) {
		m.Logger.Info("state change was not accepted", "instance", a.Instance, "reason", a.Reason,
			"outcome", actionOutcomeOf(protocol.StatusOf(err)), "error", err)
	}
	return protocol.StatusOf(err)
}

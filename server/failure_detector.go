package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// detectorDriver drives the failure detector of this instance.
type detectorDriver struct {
	server *Server

	mu       sync.Mutex
	detector *failuredetector.Detector
	wake     chan struct{}
	actions  map[detectorAction]uint64
	last     detectorAction
	lastAt   time.Duration
}

// detectorAction is an action of the failure detector, and whether the cluster accepted it.
type detectorAction struct {
	kind failuredetector.ActionKind
	ok   bool
}

func newDetectorDriver(s *Server, offlineAfter time.Duration) *detectorDriver {
	return &detectorDriver{server: s, detector: failuredetector.New(offlineAfter), wake: make(chan struct{}, 1), actions: make(map[detectorAction]uint64)}
}

func (y *detectorDriver) notify() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

func (y *detectorDriver) activate() {
	y.mu.Lock()
	y.detector.Activate()
	y.mu.Unlock()
	y.notify()
}

// leave has the cluster told that this instance goes.
func (y *detectorDriver) leave() {
	y.mu.Lock()
	y.detector.Shutdown()
	y.mu.Unlock()
	y.notify()
}

// heartbeat is told of each heartbeat of another instance.
func (y *detectorDriver) heartbeat(instance, applied uint64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.detector.HeartbeatReceived(instance, failuredetector.Report{Applied: applied}, y.server.clock.Now())
}

// run steps the machine until ctx ends.
func (y *detectorDriver) run(ctx context.Context) {
	for {
		changed := y.server.meta.Changed()
		wait := y.step(ctx)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
		case <-y.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// step takes one step and carries out what comes of it.
func (y *detectorDriver) step(ctx context.Context) (wait time.Duration) {
	s := y.server
	state := s.meta.State()
	now := s.clock.Now()
	view := failuredetector.View{Self: s.instance, Leading: s.meta.Leading(), Applied: state.AppliedIndex()}
	health := s.member.Instances().Health()
	y.mu.Lock()
	for _, i := range state.Instances() {
		if i.Expelled() {
			continue
		}
		view.Members = append(view.Members, failuredetector.Member{ID: i.ID, Target: targetOf(i.Target.Variant), Incarnation: i.Target.Incarnation})
		if h, ok := health[i.ID]; i.ID != s.instance && (!ok || now-h.Heard > missedAfter) {
			y.detector.HeartbeatFailed(i.ID, now)
		}
	}
	a, wait := y.detector.Step(now, view)
	y.mu.Unlock()
	if a.Kind == failuredetector.None {
		return wait
	}
	outcome := y.execute(ctx, a, state)
	y.mu.Lock()
	y.detector.Finished(a, outcome, s.meta.State().AppliedIndex(), s.clock.Now())
	y.last, y.lastAt = detectorAction{a.Kind, outcome == protocol.StatusOK}, s.clock.Now()
	y.actions[y.last]++
	y.mu.Unlock()
	return wait
}

// missedAfter is the age of a last heartbeat at which one has been missed.
const missedAfter = 3 * cluster.HeartbeatPeriod

func targetOf(v meta.Variant) failuredetector.Target {
	switch v {
	case meta.Online:
		return failuredetector.Online
	case meta.Expelled:
		return failuredetector.Expelled
	}
	return failuredetector.Offline
}

func (y *detectorDriver) execute(ctx context.Context, a failuredetector.Action, state *meta.State) protocol.Status {
	s := y.server
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	var err error
	switch a.Kind {
	case failuredetector.MarkOffline:
		i, ok := state.Instance(a.Instance)
		if !ok {
			return protocol.StatusNotFound
		}
		s.log.Warn("instance is taken for dead", "instance", i.ID, "name", i.Name, "reason", a.Reason)
		_, err = s.governor.UpdateInstance(ctx, meta.InstanceUpdate{Instance: i.ID, Expected: i.Revision, Target: meta.Offline, Reason: a.Reason})
	case failuredetector.GoOnline:
		err = s.member.SetTarget(ctx, meta.Online, a.Reason)
	case failuredetector.GoOffline:
		err = s.member.SetTarget(ctx, meta.Offline, a.Reason)
	}
	if err == nil {
		return protocol.StatusOK
	}
	if !errors.Is(err, context.Canceled) {
		s.log.Info("the cluster did not take a change of state", "instance", a.Instance, "reason", a.Reason, "error", err)
	}
	return protocol.StatusOf(err)
}

// updateTimeout bounds one attempt to have the meta shard note something.
const updateTimeout = 3 * time.Second

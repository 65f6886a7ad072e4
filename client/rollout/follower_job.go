package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// errExited: Update has ended its goroutine, as FailNow of a test does.
var errExited = errors.New("the update ended its goroutine")

// updateJob is a version that is being loaded.
type updateJob struct {
	v       Version
	foreign bool // v is of a track that was deleted
	checked bool // v is of the track as it is registered in now
	cancel  context.CancelCauseFunc
	done    chan error // capacity 1
}

// load begins to load the target, if that is due.
func (f *Follower) load(ctx context.Context, i *Instance, t Target) error {
	if f.job != nil || t.Version == 0 || t.Version == f.report.Current || time.Now().Before(f.retryAt) {
		return nil
	}
	v := f.fetched
	if v == nil || v.Number != t.Version {
		with, _, err := f.getTarget(ctx, i, true)
		if err != nil {
			return err
		}
		if with.Version != t.Version || with.Generation != t.Generation {
			f.notify()
			return nil // it moved on between the two
		}
		v = &Version{Number: t.Version, Payload: with.Payload, HasPayload: with.HasPayload}
		f.fetched = v
	}
	next := *v
	next.Generation, next.Attempt = t.Generation, int(f.report.Attempts)+1
	f.startJob(ctx, next)
	f.job.checked = true
	return nil
}

func (f *Follower) startJob(ctx context.Context, v Version) {
	own, cancel := context.WithCancelCause(ctx)
	j := &updateJob{v: v, cancel: cancel, done: make(chan error, 1)}
	f.job = j
	f.o.Logger.Info("rollout instance loads a version", "track", f.o.Track, "instance", f.o.ID,
		"version", v.Number, "attempt", v.Attempt, "kept", v.Restored)
	go func() {
		err := errExited
		defer func() { j.done <- err }()
		err = f.o.Update(own, v)
		if err != nil && errors.Is(context.Cause(own), errSuperseded) {
			err = errSuperseded
		}
	}()
}

func (f *Follower) jobDone() <-chan error {
	if f.job == nil {
		return nil
	}
	return f.job.done
}

func (f *Follower) finishJob(err error) {
	j := f.job
	j.cancel(nil)
	f.job = nil
	v := j.v
	switch {
	case j.foreign && err == nil:
		f.forgetServed()
	case err == nil:
		f.report.Current, f.served = v.Number, v
		f.unchecked = f.unchecked && !j.checked
		if f.report.Target == v.Number {
			f.report.Code, f.report.Message = CodeOK, ""
			f.report.Attempts = uint64(v.Attempt)
		}
		f.retryAt = time.Time{}
		f.saveVersion(v)
		f.setState(func(s *FollowerState) { s.Current, s.Attempts, s.Err = v.Number, 0, nil })
	case v.Restored:
		f.o.Logger.Warn("rollout instance could not load the version it kept", "track", f.o.Track,
			"instance", f.o.ID, "version", v.Number, "error", err)
	case err == errSuperseded || j.foreign || f.report.Target != v.Number:
	default:
		f.report.Attempts++
		f.report.Code, f.report.Message = codeOf(err), printable(err.Error(), protocol.MaxTrackMessage)
		f.retryAt = time.Now().Add(f.backoff(int(f.report.Attempts) - 1))
		f.o.Logger.Warn("rollout instance could not load a version", "track", f.o.Track, "instance", f.o.ID,
			"version", v.Number, "code", f.report.Code, "error", err)
		f.setState(func(s *FollowerState) { s.Attempts, s.Err = int(f.report.Attempts), err })
	}
}

// saveVersion writes down what is served. What cannot be written is no reason not to serve it.
func (f *Follower) saveVersion(v Version) {
	if f.o.Dir == "" || v.Restored {
		return
	}
	k := &savedVersion{id: f.savedOwner(), version: v.Number, hasPayload: v.HasPayload, payload: v.Payload}
	if err := k.save(f.o.Dir); err != nil {
		f.o.Logger.Warn("rollout instance could not keep its version", "dir", f.o.Dir, "error", err)
	}
}

// stopJob ends the update under way, and waits for it.
func (f *Follower) stopJob() {
	if f.job != nil {
		f.job.cancel(errSuperseded)
		f.finishJob(<-f.job.done)
	}
}

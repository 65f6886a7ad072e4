package rollout

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"
)

// poll asks for the target, and does what follows from it. next is when to ask again at the latest.
func (f *Follower) poll(ctx context.Context, i *Instance) (next time.Duration, err error) {
	for {
		t, sent, err := f.getTarget(ctx, i, f.unchecked)
		if err != nil {
			return 0, err
		}
		if f.unchecked && t.Version != 0 {
			f.checkPayload(t)
		}
		if f.applyTarget(t); f.report != sent {
			continue // there is more to tell
		}
		again, err := f.updateRole(ctx, i)
		if err != nil {
			return 0, err
		}
		if again {
			continue // a leader's question may move the location
		}
		if err := f.load(ctx, i, t); err != nil {
			return 0, err
		}
		if f.report != sent {
			continue
		}
		next = f.o.PollEvery
		if t.RetryAfter > 0 {
			// the watch says so first, and all instances must not ask in one moment
			next = min(next, t.RetryAfter+rand.N(time.Second))
		}
		if f.job == nil && t.Version != 0 && t.Version != f.report.Current {
			next = min(next, max(0, time.Until(f.retryAt)))
		}
		return max(next, time.Millisecond), nil
	}
}

// getTarget asks for the target, and reports. sent is the report that went with it.
func (f *Follower) getTarget(ctx context.Context, i *Instance, payload bool) (t Target, sent Report, err error) {
	sent = f.report
	t, err = await(f, func() (Target, error) { return i.GetTargetState(ctx, &sent, payload) })
	return t, sent, err
}

// checkPayload forgets what has the number of the target and another payload: the track was deleted
// and made again since, and versions begin again then. What has another number may be the target
// later, and stays unchecked until a version of this registration takes its place.
func (f *Follower) checkPayload(t Target) {
	foreign := func(v *Version) bool { return t.HasPayload && !(v.HasPayload && bytes.Equal(v.Payload, t.Payload)) }
	if t.HasPayload {
		f.fetched = &Version{Number: t.Version, Payload: t.Payload, HasPayload: true}
	}
	if j := f.job; j != nil && j.v.Number == t.Version && !j.checked {
		j.checked = true
		if foreign(&j.v) {
			j.foreign = true
			j.cancel(errSuperseded)
		}
	}
	if f.served.Number == t.Version && foreign(&f.served) {
		f.forgetServed()
	}
	f.unchecked = f.served.Number != 0 && f.served.Number != t.Version || f.job != nil && !f.job.checked
}

// forgetServed notes that what is served is no version of the track.
func (f *Follower) forgetServed() {
	f.report, f.served = Report{}, Version{}
	f.setState(func(s *FollowerState) { s.Current, s.Attempts, s.Err = 0, 0, nil })
}

// applyTarget takes in what the server said: the report is about that target from now on.
func (f *Follower) applyTarget(t Target) {
	last := f.State().Target
	f.setState(func(s *FollowerState) { s.Target = t })
	if t.Version == last.Version && t.Generation == last.Generation && f.report.Target == t.Version ||
		t.Version == 0 {
		return
	}
	if j := f.job; j != nil && j.v.Number != t.Version {
		j.cancel(errSuperseded)
	}
	f.retryAt = time.Time{}
	f.report.Target, f.report.Code, f.report.Message, f.report.Attempts = t.Version, CodeNone, "", 0
	if f.report.Current == t.Version {
		f.report.Code = CodeOK
	}
	f.setState(func(s *FollowerState) { s.Attempts, s.Err = 0, nil })
}

// updateRole makes the instance what it is to be. True: it became a leader.
func (f *Follower) updateRole(ctx context.Context, i *Instance) (bool, error) {
	s := f.State()
	want := FollowerRole
	switch {
	case !f.wantsLeader():
	case s.Role == LeaderRole, s.Target.Version != 0 && s.Target.Version == f.report.Current:
		want = LeaderRole
	}
	if want == s.Role {
		return false, nil
	}
	if _, err := await(f, func() (struct{}, error) { return struct{}{}, i.SetRole(ctx, want) }); err != nil {
		return false, err
	}
	f.o.Logger.Info("rollout instance has another role",
		"track", f.o.Track, "instance", f.o.ID, "role", want.String())
	f.setState(func(s *FollowerState) { s.Role = want })
	return want == LeaderRole, nil
}

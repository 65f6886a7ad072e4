package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// member is a follower in a process of its own: a client, and what its program does.
type member struct {
	w    *world
	id   string
	f    *sdk.Follower
	dead atomic.Bool // its process is gone: it reaches nobody

	lines  []net.Conn // guarded by mu
	cancel context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	calls  []sdk.Version
	update func(ctx context.Context, v sdk.Version) error // nil: loads at once
	fail   map[uint64]error
}

// follow starts a member.
func (w *world) follow(id, location string, change func(*sdk.FollowerOptions, *member)) *member {
	w.t.Helper()
	m := &member{w: w, id: id, ended: make(chan error, 1), fail: map[uint64]error{}}
	o := sdk.FollowerOptions{Connect: client.Config{Endpoints: []string{"one"}, Dial: m.connect}, Node: "/geo", Track: "geo/base", ID: id, Location: location, Session: longSession, Update: m.load}
	if change != nil {
		change(&o, m)
	}
	var err error
	if m.f, err = sdk.NewFollower(o); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	m.cancel = cancel
	go func() { m.ended <- m.f.Run(ctx) }()
	return m
}

func (m *member) load(ctx context.Context, v sdk.Version) error {
	m.mu.Lock()
	m.calls = append(m.calls, v)
	err, update := m.fail[v.Number], m.update
	m.mu.Unlock()
	if v.HasPayload && !bytes.Equal(v.Payload, payload(v.Number)) {
		m.w.t.Errorf("%s was given the payload %q with version %d", m.id, v.Payload, v.Number)
	}
	if update != nil {
		return update(ctx, v)
	}
	return err
}

// connect is how the member reaches the coordinator while it lives.
func (m *member) connect(ctx context.Context, address string) (net.Conn, error) {
	if m.dead.Load() {
		return nil, errors.New("the process is gone")
	}
	nc, err := m.w.connect(ctx, address)
	if err == nil {
		m.set(func() { m.lines = append(m.lines, nc) })
	}
	return nc, err
}

// cut ends its connections.
func (m *member) cut() {
	m.set(func() {
		for _, nc := range m.lines {
			_ = nc.Close()
		}
	})
}

// loaded are the versions that were to be loaded, in order, one for each attempt.
func (m *member) loaded() (list []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.calls {
		list = append(list, v.Number)
	}
	return list
}

func (m *member) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// has says what the member serves.
func (m *member) has(version uint64) {
	m.w.t.Helper()
	if s := m.f.State(); s.Current != version {
		m.w.t.Fatalf("%s serves %d, want %d (%+v)", m.id, s.Current, version, s)
	}
}

var oneLocation = sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}}}

func TestFollowerLoadsAndLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		m := w.follow("a", "SAS", nil)
		w.wait(time.Second)
		m.has(10)
		if s := m.f.State(); !s.Registered || s.Role != sdk.LeaderRole || s.Target.Version != 10 {
			t.Fatalf("state is %+v", s)
		}
		w.publish(11)
		w.publish(12)
		w.wait(time.Second)
		m.has(12)
		if got := m.loaded(); !slices.Equal(got, []uint64{10, 11, 12}) && !slices.Equal(got, []uint64{10, 12}) {
			t.Errorf("loaded %v", got)
		}
		m.cancel()
		if err := <-m.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		synctest.Wait()
		if s, err := w.track.Describe(w.ctx); err != nil || s.NumInstances != 0 {
			t.Errorf("after it left: %+v, %v", s, err)
		}
	})
}

// TestSteadyFollowersPollRarely: nobody asks more often than PollEvery while nothing happens.
func TestSteadyFollowersPollRarely(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		for i := range 3 {
			w.follow(fmt.Sprint("m", i), "SAS", nil)
		}
		w.wait(time.Minute)
		w.mu.Lock()
		before := w.polls
		w.mu.Unlock()
		w.wait(10 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := w.polls - before; n < 3*50 || n > 3*70 {
			t.Errorf("%d polls in 10 minutes", n)
		}
	})
}

// TestAttempts: what fails is tried again, ever more slowly, and each attempt is reported; the next
// target begins again.
func TestAttempts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		var at []time.Time
		m := w.follow("a", "SAS", func(_ *sdk.FollowerOptions, m *member) {
			m.update = func(_ context.Context, v sdk.Version) error {
				if v.Number == 10 {
					at = append(at, time.Now())
					if v.Attempt != len(at) {
						t.Errorf("attempt %d says that it is %d", len(at), v.Attempt)
					}
					return errors.New("the source is down\nand so on")
				}
				return nil
			}
		})
		w.wait(20 * time.Minute)
		if len(at) < 18 || len(at) > 50 {
			t.Fatalf("%d attempts in 20 minutes", len(at))
		}
		for i := 1; i < len(at); i++ {
			bound := min(time.Minute, time.Second<<(i-1))
			if gap := at[i].Sub(at[i-1]); gap < bound/2 || gap > bound+2*time.Second {
				t.Errorf("attempt %d came %v after the one before, with a bound of %v", i+1, gap, bound)
			}
		}
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Instances[0].Report; r.Code != sdk.CodeSourceError || r.Target != 10 || int(r.Attempts) != len(at) || r.Message != "the source is down and so on" {
			t.Errorf("report is %+v after %d attempts", r, len(at))
		}
		if s := m.f.State(); s.Attempts != len(at) || s.Err == nil || s.Current != 0 || s.Role != sdk.FollowerRole {
			t.Errorf("state is %+v", s)
		}
		w.publish(11)
		w.wait(2 * time.Minute)
		m.has(11)
	})
}

// TestAttemptsCountWithinARegistration: who registers again begins to count again, as the server
// does.
func TestAttemptsCountWithinARegistration(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		m := w.follow("a", "SAS", func(_ *sdk.FollowerOptions, m *member) { m.fail[10] = errors.New("down") })
		w.wait(20 * time.Second)
		before := len(m.loaded())
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil || before < 3 {
			t.Fatal(before, err)
		}
		w.mu.Lock()
		w.end(s.Instances[0].Session)
		w.mu.Unlock()
		w.wait(5 * time.Minute)
		m.set(func() {
			if v := m.calls[before]; v.Attempt != 1 {
				t.Errorf("the first attempt after it registered again says that it is %d", v.Attempt)
			}
		})
	})
}

// TestChangesAreReportedAtOnce: an instance that has its target says so with its registration.
func TestChangesAreReportedAtOnce(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		own := func(o *sdk.FollowerOptions, _ *member) { o.Dir, o.Manual, o.PollEvery = dir, true, time.Hour }
		a := w.follow("a", "SAS", own)
		w.wait(time.Second)
		a.cancel()
		<-a.ended
		w.follow("a", "SAS", own)
		w.wait(time.Second)
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil || len(s.Instances) != 1 || s.Instances[0].Report.Current != 10 || s.Instances[0].Report.Code != sdk.CodeOK || s.Instances[0].Report.Target != 10 {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}

// TestBadVersion: a version with an explicit code is left at once for the next one, and no later
// location gets it.
func TestBadVersion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second}}})
		bad := sdk.Code("TimestampOutOfRange", errors.New("older than the retention"))
		a := w.follow("a", "SAS", func(_ *sdk.FollowerOptions, m *member) { m.fail[11] = bad })
		b := w.follow("b", "MAN", nil)
		w.publish(10)
		w.wait(10 * time.Second)
		w.publish(11)
		w.wait(time.Second)
		w.publish(12)
		w.wait(20 * time.Second)
		a.has(12)
		b.has(12)
		if got := b.loaded(); !slices.Equal(got, []uint64{10, 12}) {
			t.Errorf("MAN loaded %v", got)
		}
	})
}

// TestHangingUpdate: an update that does not end is ended when another version is to be loaded.
func TestHangingUpdate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := oneLocation
		c.AutoDemote, c.StallTimeout = true, time.Minute
		w.create(c)
		w.publish(10)
		a := w.follow("a", "SAS", nil)
		w.follow("b", "SAS", nil)
		w.wait(time.Second)
		var cause error
		a.set(func() {
			a.update = func(ctx context.Context, v sdk.Version) error {
				if v.Number != 11 {
					return nil
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			}
		})
		w.publish(11)
		w.wait(30 * time.Second)
		w.publish(12)
		w.wait(10 * time.Second)
		if got := w.targets(); got["SAS"] != 11 {
			t.Fatalf("targets are %v while a leader hangs", got)
		}
		w.wait(time.Minute)
		if got := w.targets(); got["SAS"] != 12 || cause == nil {
			t.Fatalf("targets are %v after a hanging leader was demoted; it ended with %v", got, cause)
		}
		a.has(12)
		if v := a.calls[len(a.calls)-1]; v.Number != 12 || v.Attempt != 1 {
			t.Errorf("%+v was loaded: what was given up counts for what came after it", v)
		}
	})
}

// TestServerUnreachable: what is served stays, the update under way goes on, and the registration
// comes back, also when the session has expired meanwhile.
func TestServerUnreachable(t *testing.T) {
	for _, away := range []time.Duration{5 * time.Second, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create(oneLocation)
				w.publish(10)
				a := w.follow("a", "SAS", nil)
				w.wait(time.Second)
				a.has(10)
				loading := make(chan struct{})
				a.set(func() {
					a.update = func(context.Context, sdk.Version) error {
						<-loading
						return nil
					}
				})
				w.publish(11)
				w.wait(time.Second)
				w.setUnreachable(true)
				w.wait(away)
				a.has(10)
				close(loading)
				w.wait(time.Second)
				a.has(11)
				w.setUnreachable(false)
				w.operate()
				w.wait(2 * time.Minute)
				s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
				if err != nil || len(s.Instances) != 1 || s.Instances[0].Report.Current != 11 || s.Instances[0].Role != sdk.LeaderRole {
					t.Fatalf("%+v, %v", s, err)
				}
				if got := a.loaded(); !slices.Equal(got, []uint64{10, 11}) {
					t.Errorf("loaded %v", got)
				}
				w.publish(12)
				w.wait(time.Second)
				a.has(12)
			})
		})
	}
}

// TestRestart: a process that was killed and started again serves what it kept before it has asked
// anybody, and takes its id over.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		own := func(o *sdk.FollowerOptions, _ *member) { o.Dir = dir }
		a := w.follow("a", "SAS", own)
		w.wait(time.Second)
		a.has(10)

		w.setUnreachable(true)
		again := w.follow("a", "SAS", own) // while the server is away, and before the old one's session is given up
		w.wait(time.Minute)
		again.has(10)
		if v := again.calls[0]; !v.Restored || !v.HasPayload || again.f.State().Registered {
			t.Fatalf("loaded %+v, %+v", v, again.f.State())
		}
		w.setUnreachable(false)
		w.operate()
		w.wait(time.Minute)
		w.publish(11)
		w.wait(10 * time.Second)
		again.has(11)
		if err := <-a.ended; !errors.Is(err, sdk.ErrFenced) && !errors.Is(err, sdk.ErrAlreadyRegistered) {
			t.Errorf("the old one ended with %v", err)
		}
		a.has(10)

		// Another instance's folder is no claim.
		other := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) { o.Dir = t.TempDir() })
		if err := <-other.ended; !errors.Is(err, sdk.ErrAlreadyRegistered) || !errors.Is(err, client.AlreadyExists) {
			t.Errorf("a stranger ended with %v", err)
		}
		// With Takeover it is.
		third := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) { o.Takeover = true })
		if err := <-again.ended; !errors.Is(err, sdk.ErrFenced) || !errors.Is(err, client.BadSession) {
			t.Errorf("who was evicted ended with %v", err)
		}
		w.wait(time.Second)
		third.has(11)
	})
}

// TestManual: who says itself when it serves holds nobody up until then.
func TestManual(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		a := w.follow("a", "SAS", nil)
		slow := w.follow("slow", "SAS", func(o *sdk.FollowerOptions, m *member) { o.Manual = true })
		w.wait(time.Second)
		slow.has(10)
		slow.set(func() {
			slow.update = func(ctx context.Context, _ sdk.Version) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		w.publish(11)
		w.wait(time.Second)
		w.publish(12)
		w.wait(time.Second)
		a.has(12)
		if s := slow.f.State(); s.Role != sdk.FollowerRole || s.Current != 10 {
			t.Fatalf("state is %+v", s)
		}
		slow.set(func() { slow.update = nil })
		w.publish(13) // ends the hanging update
		slow.f.MarkReady()
		w.wait(time.Second)
		if s := slow.f.State(); s.Role != sdk.LeaderRole || s.Current != 13 {
			t.Fatalf("state is %+v", s)
		}
		slow.f.MarkNotReady()
		w.wait(time.Second)
		if s := slow.f.State(); s.Role != sdk.FollowerRole {
			t.Fatalf("state is %+v", s)
		}
	})
}

// TestRollback: an instance is told the older version, and loads it.
func TestRollback(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		a := w.follow("a", "SAS", nil)
		for v := uint64(10); v <= 12; v++ {
			w.publish(v)
			w.wait(time.Second)
		}
		a.has(12)
		if err := w.track.Rollback(w.ctx, 10, "SAS"); err != nil {
			t.Fatal(err)
		}
		w.wait(20 * time.Second)
		a.has(10)
		w.publish(13)
		w.wait(time.Second)
		a.has(13)
		if got := a.loaded(); !slices.Equal(got, []uint64{10, 11, 12, 10, 13}) {
			t.Errorf("loaded %v", got)
		}
	})
}

// TestFinalErrors: what nobody can put right while it waits is told at once.
func TestFinalErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nobody := w.follow("a", "SAS", nil)
		if err := <-nobody.ended; !errors.Is(err, client.NotFound) {
			t.Errorf("without a track it ended with %v", err)
		}
		w.create(oneLocation)
		lost := w.follow("a", "VLA", nil)
		if err := <-lost.ended; !errors.Is(err, sdk.ErrUnknownLocation) || !errors.Is(err, client.NotFound) {
			t.Errorf("in no location it ended with %v", err)
		}
		// A location that goes later is waited for.
		m := w.follow("b", "SAS", nil)
		w.publish(10)
		w.wait(time.Second)
		two := oneLocation
		two.Locations = []sdk.Location{{Name: "VLA"}}
		if _, err := w.track.Alter(w.ctx, 1, two); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		m.has(10)
		if s := m.f.State(); s.Registered || !errors.Is(s.Err, sdk.ErrUnknownLocation) {
			t.Errorf("state is %+v", s)
		}
		if _, err := w.track.Alter(w.ctx, 2, oneLocation); err != nil {
			t.Fatal(err)
		}
		w.publish(11)
		w.wait(3 * time.Minute)
		m.has(11)
	})
}

func TestFollowerOptions(t *testing.T) {
	good := sdk.FollowerOptions{
		Connect: client.Config{Endpoints: []string{"127.0.0.1:7070"}},
		Node:    "/geo", Track: "geo/base", ID: "a", Location: "SAS", Update: func(context.Context, sdk.Version) error { return nil },
	}
	if _, err := sdk.NewFollower(good); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*sdk.FollowerOptions){
		"way": func(o *sdk.FollowerOptions) { o.Connect.Endpoints = nil }, "update": func(o *sdk.FollowerOptions) { o.Update = nil }, "node": func(o *sdk.FollowerOptions) { o.Node = "" },
		"track": func(o *sdk.FollowerOptions) { o.Track = "" }, "id": func(o *sdk.FollowerOptions) { o.ID = "" },
		"location": func(o *sdk.FollowerOptions) { o.Location = "" }, "poll": func(o *sdk.FollowerOptions) { o.PollEvery = -1 },
		"retry": func(o *sdk.FollowerOptions) { o.RetryMin = -1 }, "folder": func(o *sdk.FollowerOptions) { o.Dir = "/dev/null/x" },
	} {
		o := good
		spoil(&o)
		if _, err := sdk.NewFollower(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestWatchTarget: what an instance that polls by itself is told.
func TestWatchTarget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		i, err := w.track.Register(w.ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		var seen []uint64
		done := make(chan error, 1)
		go func() {
			for target, err := range i.WatchTarget(ctx) {
				if err != nil {
					done <- err
					return
				}
				seen = append(seen, target.Version)
				if target.Version == 0 {
					continue
				}
				if err := i.Report(ctx, sdk.Report{Current: target.Version, Target: target.Version, Code: sdk.CodeOK}); err != nil {
					t.Error(err)
				}
			}
		}()
		for v := uint64(10); v < 13; v++ {
			w.wait(time.Second)
			w.publish(v)
		}
		w.wait(time.Second)
		w.setUnreachable(true)
		w.wait(time.Second)
		w.setUnreachable(false)
		w.wait(time.Minute)
		w.publish(13)
		w.wait(time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if !slices.Equal(seen, []uint64{0, 10, 11, 12, 13}) {
			t.Errorf("told %v", seen)
		}
		target, err := i.GetTargetState(w.ctx, nil, true)
		if err != nil || target.Version != 13 || !bytes.Equal(target.Payload, payload(13)) {
			t.Errorf("%+v, %v", target, err)
		}
		if err := i.Unregister(w.ctx); err != nil {
			t.Error(err)
		}
		if _, err := i.GetTargetState(w.ctx, nil, false); !errors.Is(err, client.NotFound) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// TestOperators: every command of an operator, with what it changes and how it is refused.
func TestOperators(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		config := sdk.Config{Source: sdk.Published, Retention: 2 * time.Hour, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: time.Hour, Share: 50}}}
		w.create(config)
		if _, err := w.track.Create(w.ctx, config); !errors.Is(err, client.AlreadyExists) {
			t.Errorf("created twice: %v", err)
		}
		if _, err := w.track.Alter(w.ctx, 7, config); !errors.Is(err, client.PreconditionFailed) {
			t.Errorf("altered at another revision: %v", err)
		}
		if revision, err := w.track.Alter(w.ctx, 1, config); err != nil || revision != 2 {
			t.Errorf("altered to %d, %v", revision, err)
		}
		a, b := w.follow("a", "SAS", nil), w.follow("b", "MAN", nil)
		w.publish(10)
		w.wait(time.Second)
		ok := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			w.wait(time.Second)
		}
		ok("promote", w.track.Promote(w.ctx, "MAN"))
		b.has(10)
		ok("pause", w.track.Pause(w.ctx, false))
		w.publish(11)
		w.wait(time.Minute)
		a.has(10)
		ok("resume", w.track.Resume(w.ctx))
		w.wait(20 * time.Second)
		a.has(11)
		ok("exclude", w.track.Exclude(w.ctx, "SAS"))
		w.wait(20 * time.Second)
		b.has(11)
		ok("include", w.track.Include(w.ctx, "SAS"))
		ok("reelect", w.track.Reelect(w.ctx, "SAS"))
		w.publish(12)
		w.wait(20 * time.Second)
		a.has(12)
		if err := w.track.Withdraw(w.ctx, 99); !errors.Is(err, client.NotFound) {
			t.Errorf("withdrawn what is not there: %v", err)
		}
		ok("withdraw", w.track.Withdraw(w.ctx, 12))
		if err := w.track.Rollback(w.ctx, 99, "SAS"); !errors.Is(err, client.PreconditionFailed) {
			t.Errorf("rolled back to what never was: %v", err)
		}
		if err := w.track.Promote(w.ctx); !errors.Is(err, client.BadRequest) {
			t.Errorf("promoted nothing: %v", err)
		}
		if err := w.track.Drop(w.ctx, "nobody"); !errors.Is(err, client.NotFound) {
			t.Errorf("dropped nobody: %v", err)
		}
		ok("drop", w.track.Drop(w.ctx, "b"))
		s, err := w.track.Describe(w.ctx, sdk.IncludeConfig(), sdk.IncludeInstances())
		if err != nil || s.Track != "geo/base" || s.Config == nil || s.Config.Retention != 2*time.Hour || s.Config.Locations[1].Delay != time.Hour || s.ConfigRevision != 2 ||
			len(s.Locations) != 2 || s.Locations[0].Target != 12 || s.Locations[0].Reason != protocol.ReasonOperator {
			t.Errorf("%+v, %v", s, err)
		}
		rows, err := w.track.History(w.ctx, "SAS")
		if err != nil || len(rows) != 3 || rows[0].Version != 10 || !rows[0].Converged || !rows[1].Skip || rows[2].Reason != protocol.ReasonOperator {
			t.Errorf("%+v, %v", rows, err)
		}
		if _, err := w.track.History(w.ctx, "NOWHERE"); !errors.Is(err, sdk.ErrUnknownLocation) {
			t.Errorf("history of nowhere: %v", err)
		}
		if err := w.track.Delete(w.ctx, false); !errors.Is(err, client.PreconditionFailed) {
			t.Errorf("deleted with instances: %v", err)
		}
		ok("delete", w.track.Delete(w.ctx, true))
		if _, err := w.track.Describe(w.ctx); !errors.Is(err, client.NotFound) {
			t.Errorf("described what is gone: %v", err)
		}
	})
}

// TestPages: instances come in pages of the server's, and all of them are told.
func TestPages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		var want []string
		for i := range 7 {
			id := fmt.Sprint("m", i)
			want = append(want, id)
			if _, err := w.track.Register(w.ctx, sdk.Registration{ID: id, Location: "SAS"}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range s.Instances {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("instances are %v", got)
		}
	})
}

// TestGatekeeper: gates are run once each, in order, again after an inconclusive one, and their
// outcomes decide.
func TestGatekeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		gates := []sdk.Gate{{Name: "smoke", Kind: sdk.Command, Spec: "true", Retry: 10 * time.Second}, {Name: "load", Kind: sdk.Webhook, Spec: "http://load", Timeout: time.Minute}}
		w.create(sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second, Gates: gates}}})
		w.follow("a", "SAS", nil)
		b := w.follow("b", "MAN", nil)
		var mu sync.Mutex
		var ran []string
		var late error
		keeper := sdk.Gatekeeper{
			Track: w.track,
			Check: func(ctx context.Context, run sdk.GateRun) (sdk.Outcome, string) {
				mu.Lock()
				ran = append(ran, fmt.Sprintf("%s %d %s %d", run.Location, run.Version, run.Gate.Name, run.Attempt))
				mu.Unlock()
				switch {
				case run.Gate.Name == "smoke" && run.Attempt == 1 && run.Version == 10:
					return sdk.Inconclusive, "no traffic yet"
				case run.Version == 11:
					return sdk.Failure, "3 of 10 failed"
				case run.Version == 12 && run.Gate.Name == "load" && run.Attempt == 1:
					<-ctx.Done() // it takes too long
					mu.Lock()
					late = ctx.Err()
					mu.Unlock()
				}
				return sdk.Success, ""
			},
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { ended <- keeper.Run(ctx) }()
		for v := uint64(10); v <= 12; v++ {
			w.publish(v)
			w.wait(2 * time.Minute)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		want := []string{
			"MAN 10 smoke 1", "MAN 10 smoke 2", "MAN 10 load 1", "MAN 11 smoke 1", "MAN 12 smoke 1", "MAN 12 load 1", "MAN 12 load 2",
		}
		if !slices.Equal(ran, want) || late == nil {
			t.Errorf("ran %v, late %v", ran, late)
		}
		b.has(12)
		if got := b.loaded(); !slices.Equal(got, []uint64{10, 12}) {
			t.Errorf("MAN loaded %v", got)
		}
	})
}

// TestWatch: a status, then events with their reasons; after a lost connection a status again; an
// end when the track is deleted.
func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		var statuses, published int
		var last error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event, err := range w.track.Watch(w.ctx, "") {
				switch {
				case err != nil:
					last = err
				case event.Status != nil:
					statuses++
				case event.Event.Kind == sdk.EventPublished:
					published++
				case event.Event.Text == "":
					t.Errorf("event without a reason: %+v", event.Event)
				}
			}
		}()
		w.wait(time.Second)
		w.follow("a", "SAS", nil)
		w.publish(10)
		w.wait(time.Second)
		w.setUnreachable(true)
		w.wait(time.Second)
		w.setUnreachable(false)
		w.wait(time.Minute)
		w.publish(11)
		w.wait(time.Second)
		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		<-done
		if statuses != 2 || published != 2 || !errors.Is(last, client.NotFound) {
			t.Errorf("%d statuses, %d versions, ended with %v", statuses, published, last)
		}
	})
}

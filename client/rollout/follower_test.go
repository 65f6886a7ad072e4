package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
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
	o := sdk.FollowerOptions{Connect: client.Config{Endpoints: []string{"one"}, Dial: m.connect}, Node: "/geo",
		Track: "geo/base", ID: id, Location: location, Session: longSession, Update: m.load}
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
			bound := min(time.Minute, time.Second<<min(i-1, 6))
			if gap := at[i].Sub(at[i-1]); gap < bound/2 || gap > bound+2*time.Second {
				t.Errorf("attempt %d came %v after the one before, with a bound of %v", i+1, gap, bound)
			}
		}
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Instances[0].Report; r.Code != sdk.CodeSourceError || r.Target != 10 ||
			int(r.Attempts) != len(at) || r.Message != "the source is down and so on" {
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

// TestUpdateEndsGoroutine: an update that ends its goroutine, as FailNow of a test does, has failed, and
// is tried again.
func TestUpdateEndsGoroutine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		m := w.follow("a", "SAS", func(_ *sdk.FollowerOptions, m *member) {
			m.update = func(_ context.Context, v sdk.Version) error {
				if v.Attempt == 1 {
					runtime.Goexit()
				}
				return nil
			}
		})
		w.wait(2 * time.Minute)
		m.has(10)
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
		if err != nil || len(s.Instances) != 1 || s.Instances[0].Report.Current != 10 ||
			s.Instances[0].Report.Code != sdk.CodeOK || s.Instances[0].Report.Target != 10 {
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

func TestFollowerOptions(t *testing.T) {
	good := sdk.FollowerOptions{
		Connect: client.Config{Endpoints: []string{"127.0.0.1:7070"}},
		Node:    "/geo", Track: "geo/base", ID: "a", Location: "SAS", Update: func(context.Context, sdk.Version) error { return nil },
	}
	if _, err := sdk.NewFollower(good); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*sdk.FollowerOptions){
		"way":    func(o *sdk.FollowerOptions) { o.Connect.Endpoints = nil },
		"update": func(o *sdk.FollowerOptions) { o.Update = nil },
		"node":   func(o *sdk.FollowerOptions) { o.Node = "" },
		"track":  func(o *sdk.FollowerOptions) { o.Track = "" }, "id": func(o *sdk.FollowerOptions) { o.ID = "" },
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

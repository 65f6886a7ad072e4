package rollout_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestServerUnreachable: what is served stays, the update under way goes on, and the registration
// comes back, also when the session has expired meanwhile.
func TestServerUnreachable(t *testing.T) {
	t.Parallel()
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
		if err := <-other.ended; !errors.Is(err, sdk.ErrAlreadyRegistered) ||
			!errors.Is(err, client.ErrAlreadyExists) {
			t.Errorf("a stranger ended with %v", err)
		}
		// With Takeover it is.
		third := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) { o.Takeover = true })
		if err := <-again.ended; !errors.Is(err, sdk.ErrFenced) || !errors.Is(err, client.ErrBadSession) {
			t.Errorf("who was evicted ended with %v", err)
		}
		w.wait(time.Second)
		third.has(11)
	})
}

// TestIDIsFreeAtTheEnd: a follower that ends gives its id back. Another process gets the id though
// the track's shard has not heard yet that the session of the first one has ended.
func TestIDIsFreeAtTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		a := w.follow("a", "SAS", nil)
		w.wait(time.Second)
		a.has(10)
		w.set(func() {
			w.intercept = func(l *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindSessionStop {
					return false
				}
				w.sessions[decode(l, h, &protocol.SessionStop{}).Session] = new(fakeConn) // attached, as far as the shard knows
				l.reply(h, &protocol.Empty{}, nil)
				return true
			}
		})
		a.cancel()
		if err := <-a.ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		again := w.follow("a", "SAS", nil)
		w.wait(time.Minute)
		if s := again.f.State(); !s.Registered {
			t.Errorf("state is %+v", s)
		}
		again.has(10)
	})
}

// TestFinalErrors: what nobody can put right while it waits is told at once.
func TestFinalErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nobody := w.follow("a", "SAS", nil)
		if err := <-nobody.ended; !errors.Is(err, client.ErrNotFound) {
			t.Errorf("without a track it ended with %v", err)
		}
		w.create(oneLocation)
		lost := w.follow("a", "VLA", nil)
		if err := <-lost.ended; !errors.Is(err, sdk.ErrUnknownLocation) || !errors.Is(err, client.ErrNotFound) {
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

// TestTrackMadeAgain: a track is deleted by force and made again, and its first version has the
// number of the former first one, and another payload. Nobody keeps the former payload: not an
// instance that serves it, nor one that comes back with it in its folder, nor one that is loading
// it.
func TestTrackMadeAgain(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		publish := func(text string) {
			t.Helper()
			if _, err := w.track.Publish(w.ctx, 1, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		served := map[string]string{} // guarded by mu
		var mu sync.Mutex
		loads := func(as string, before func(ctx context.Context, v sdk.Version)) func(*sdk.FollowerOptions, *member) {
			return func(o *sdk.FollowerOptions, _ *member) {
				o.Update = func(ctx context.Context, v sdk.Version) error {
					before(ctx, v)
					mu.Lock()
					defer mu.Unlock()
					served[as] += string(v.Payload) + " "
					return nil
				}
			}
		}
		atOnce := func(context.Context, sdk.Version) {}
		inDir := func(o *sdk.FollowerOptions, m *member) {
			loads("b", atOnce)(o, m)
			o.Dir = dir
		}
		w.create(oneLocation)
		publish("old")
		a := w.follow("a", "SAS", loads("a", atOnce))
		b := w.follow("b", "SAS", inDir)
		loading := make(chan struct{})
		c := w.follow("c", "SAS", loads("c", func(_ context.Context, v sdk.Version) {
			if string(v.Payload) == "old" {
				<-loading
			}
		}))
		w.wait(time.Second)
		a.has(1)
		b.has(1)
		w.kill(b)

		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		w.create(oneLocation)
		publish("new")
		b = w.follow("b", "SAS", inDir)
		w.wait(time.Minute)
		close(loading)
		w.wait(time.Minute)
		for _, m := range []*member{a, b, c} {
			m.has(1)
		}
		mu.Lock()
		defer mu.Unlock()
		for as, want := range map[string]string{"a": "old new ", "b": "old old new ", "c": "old new "} {
			if served[as] != want {
				t.Errorf("%s loaded %q, want %q", as, served[as], want)
			}
		}
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil || len(s.Instances) != 3 {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, i := range s.Instances {
			if i.Report.Current != 1 || i.Report.Code != sdk.CodeOK || i.Role != sdk.LeaderRole {
				t.Errorf("%s is %+v", i.ID, i)
			}
		}
	})
}

// TestTrackMadeAgainReachesFormerNumber: the new track's first version cannot be loaded, and a
// later one has the number of what is served of the former track.
func TestTrackMadeAgainReachesFormerNumber(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		publish := func(number uint64, text string) {
			t.Helper()
			if _, err := w.track.Publish(w.ctx, number, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var loaded []string
		w.create(oneLocation)
		publish(3, "old")
		a := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) {
			o.Update = func(_ context.Context, v sdk.Version) error {
				if v.Number == 1 {
					return errors.New("it cannot be loaded")
				}
				mu.Lock()
				defer mu.Unlock()
				loaded = append(loaded, string(v.Payload))
				return nil
			}
		})
		w.wait(time.Second)
		a.has(3)

		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		w.create(oneLocation)
		publish(1, "bad")
		w.wait(time.Minute)
		publish(3, "new")
		w.wait(time.Minute)
		a.has(3)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(loaded, []string{"old", "new"}) {
			t.Errorf("loaded %q", loaded)
		}
	})
}

// TestTrackMadeAgainWithAGoodPayload: what failed of a deleted track does not delay a version of
// the same number.
func TestTrackMadeAgainWithAGoodPayload(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		if _, err := w.track.Publish(w.ctx, 1, []byte("bad")); err != nil {
			t.Fatal(err)
		}
		a := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) {
			o.RetryMin, o.RetryMax = time.Second, 10*time.Minute
			o.Update = func(_ context.Context, v sdk.Version) error {
				if string(v.Payload) == "bad" {
					return errors.New("it cannot be loaded")
				}
				return nil
			}
		})
		w.wait(8 * time.Minute)
		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		w.create(oneLocation)
		if _, err := w.track.Publish(w.ctx, 1, []byte("good")); err != nil {
			t.Fatal(err)
		}
		w.wait(30 * time.Second)
		a.has(1)
	})
}

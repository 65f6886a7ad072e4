package rollout_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// endSessions cuts all connections and ends the sessions, which their clients learn when they
// attach them again.
func (w *world) endSessions(sessions ...uint64) {
	w.setUnreachable(true)
	w.set(func() {
		for _, id := range sessions {
			w.end(id)
		}
	})
	w.setUnreachable(false)
}

// set changes the server.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// TestEndsWithSession: what runs on a session ends when the session does, with the session's error,
// although its watch and its reads could go on.
func TestEndsWithSession(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *sdk.Track, *sdk.Instance) error{
		"generator": func(ctx context.Context, track *sdk.Track, _ *sdk.Instance) error {
			return newGenerator(track, 0).Run(ctx)
		},
		"gatekeeper": func(ctx context.Context, track *sdk.Track, _ *sdk.Instance) error {
			check := func(context.Context, sdk.GateRun) (sdk.Outcome, string) { return sdk.Success, "" }
			return (&sdk.Gatekeeper{Track: track, Check: check}).Run(ctx)
		},
		"target": func(ctx context.Context, _ *sdk.Track, i *sdk.Instance) error {
			for _, err := range i.WatchTarget(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create(oneLocation)
				s, err := w.dial().Session(w.ctx, "/geo", longSession...)
				if err != nil {
					t.Fatal(err)
				}
				track := sdk.NewTrack(s, "geo/base")
				i, err := track.Register(w.ctx, sdk.Registration{ID: "a", Location: "SAS"})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- run(w.ctx, track, i) }()
				w.wait(time.Second)
				w.set(func() { // nothing else tells of the end
					w.intercept = func(_ *fakeConn, h protocol.Header) bool {
						return h.Kind == protocol.KindTrackWatch
					}
				})
				w.endSessions(s.ID())
				w.wait(time.Hour)
				select {
				case err := <-ended:
					if !errors.Is(err, client.ErrSessionExpired) {
						t.Errorf("ended with %v", err)
					}
				default:
					t.Errorf("it goes on after its session ended: %v", s.Err())
				}
			})
		})
	}
}

// TestFollowerSessionEnds: a follower registers again as soon as its session ends, and not only
// when it polls next.
func TestFollowerSessionEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		var ends []error // of registrations; owned by Run
		a := w.follow("a", "SAS", func(o *sdk.FollowerOptions, _ *member) {
			o.PollEvery = 24 * time.Hour
			o.OnChange = func(s sdk.FollowerState) {
				if !s.Registered && s.Err != nil {
					ends = append(ends, s.Err)
				}
			}
		})
		w.wait(time.Minute)
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil || len(s.Instances) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		w.set(func() { // its watch does not have it poll
			w.intercept = func(_ *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindTrackWatch }
		})
		w.endSessions(s.Instances[0].Session)
		w.wait(time.Hour)
		if len(ends) != 1 || !errors.Is(ends[0], client.ErrSessionExpired) || !a.f.State().Registered {
			t.Errorf("registrations ended with %v, state is %+v", ends, a.f.State())
		}
		a.has(10)
	})
}

// TestUnansweredRegistration: a registration is applied, its answer is lost, and its session ends.
// The track's shard has not heard of the end when the next session registers. The follower takes
// the id over from its own session.
func TestUnansweredRegistration(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create(oneLocation)
				w.publish(10)
				var unanswered []uint64
				w.set(func() {
					w.intercept = func(l *fakeConn, h protocol.Header) bool {
						switch h.Kind {
						case protocol.KindTrackRegister:
							if len(unanswered) == times {
								return false
							}
							m := decode(l, h, &protocol.TrackRegister{})
							if len(unanswered) == 0 {
								if _, err := l.apply(m); err != nil {
									t.Error(err)
								}
							}
							unanswered = append(unanswered, m.Session)
							w.sessions[m.Session] = new(fakeConn) // so that the connection's end is not the session's
							_ = l.nc.Close()
							return true
						case protocol.KindSessionAttach:
							if slices.Contains(unanswered, decode(l, h, &protocol.SessionAttach{}).Session) {
								l.reply(h, nil, protocol.Errorf(protocol.StatusSessionExpired, "it expired"))
								return true
							}
						}
						return false
					}
				})
				a := w.follow("a", "SAS", nil)
				w.wait(10 * time.Minute)
				select {
				case err := <-a.ended:
					t.Fatalf("ended with %v", err)
				default:
				}
				s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
				if err != nil || len(s.Instances) != 1 || len(unanswered) != times ||
					slices.Contains(unanswered, s.Instances[0].Session) {
					t.Fatalf("%+v, %v; sessions %x got no answer", s, err, unanswered)
				}
				a.has(10)
				if s := a.f.State(); !s.Registered {
					t.Errorf("state is %+v", s)
				}
			})
		})
	}
}

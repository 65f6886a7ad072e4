package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// troubled runs a test on a fake that, for the kind it is told, swallows so many requests and has
// their connection end, and then answers UNAVAILABLE; kind 0 ends that.
func troubled(t *testing.T, test func(t *testing.T, f *fake, s *Session, trouble func(kind protocol.Kind, swallowed int))) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		test(t, f, s, func(kind protocol.Kind, swallowed int) {
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					switch {
					case h.Kind != kind || kind == 0:
						return false
					case swallowed > 0:
						swallowed--
						_ = fc.nc.Close()
						delete(f.conns, fc)
					default:
						fc.fail(h, protocol.StatusUnavailable)
					}
					return true
				}
			})
		})
	})
}

// TestRefusedIsNotDecided: that a request was refused for now decides nothing about it. When its
// context ends then, what is to go on goes on, and what was sent and not answered before has an
// outcome that is not known.
func TestRefusedIsNotDecided(t *testing.T) {
	t.Run("a release goes on", func(t *testing.T) {
		troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
			l, err := s.Acquire(bg, "x")
			if err != nil {
				t.Fatal(err)
			}
			trouble(protocol.KindRelease, 0)
			ctx, cancel := brief()
			defer cancel()
			if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) || l.Held() {
				t.Fatal(err)
			}
			trouble(0, 0)
			if _, err := s.Acquire(bg, "x"); err != nil { // behind the release
				t.Fatal(err)
			}
		})
	})
	t.Run("a release goes on while the session is not attached", func(t *testing.T) {
		troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
			l, err := s.Acquire(bg, "x")
			if err != nil {
				t.Fatal(err)
			}
			trouble(protocol.KindSessionAttach, 0)
			f.drop()
			synctest.Wait()
			ctx, cancel := brief()
			defer cancel()
			if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) {
				t.Fatal(err)
			}
			trouble(0, 0)
			if _, err := s.Acquire(bg, "x"); err != nil {
				t.Fatal(err)
			}
			if n := f.count(protocol.KindRelease); n != 1 {
				t.Errorf("%d releases", n)
			}
		})
	})
	for name, swallowed := range map[string]int{"an acquire that was sent is given back": 1,
		"an acquire that was always refused is not": 0} {
		t.Run(name, func(t *testing.T) {
			troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
				trouble(protocol.KindAcquire, swallowed)
				ctx, cancel := brief()
				defer cancel()
				if _, err := s.Acquire(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) ||
					swallowed == 0 && (!Retryable(err) || !errors.Is(err, Unavailable)) {
					t.Fatal(err)
				}
				trouble(0, 0)
				if _, err := s.Acquire(bg, "x"); err != nil {
					t.Fatal(err)
				}
				if n := f.count(protocol.KindRelease); n != swallowed {
					t.Errorf("%d releases", n)
				}
			})
		})
	}
	t.Run("a lease is lowered", func(t *testing.T) {
		troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
			l, err := s.Acquire(bg, "x", Count(3))
			if err != nil {
				t.Fatal(err)
			}
			trouble(protocol.KindAcquire, 1)
			ctx, cancel := brief()
			defer cancel()
			if err := l.Reduce(ctx, 1); !errors.Is(err, ErrOutcomeUnknown) || Retryable(err) {
				t.Fatal(err)
			}
			f.set(func() { f.memory[2] = f.holds["x"] }) // it was applied: the fake takes a new number for a new acquire
			trouble(0, 0)
			if err := l.UpdateData(bg, nil); err == nil || l.Count() != 1 {
				t.Fatal(err, l.Count()) // the fake knows nothing of changes, and the first of them was done
			}
		})
	})
	t.Run("a change that was always refused is not carried out later", func(t *testing.T) {
		troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
			l, err := s.Acquire(bg, "x", Count(3))
			if err != nil {
				t.Fatal(err)
			}
			trouble(protocol.KindAcquire, 0)
			ctx, cancel := brief()
			defer cancel()
			if err := l.Reduce(ctx, 1); !Retryable(err) || errors.Is(err, ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			trouble(0, 0)
			sent := f.count(protocol.KindAcquire)
			synctest.Wait()
			if err := l.Release(bg); err != nil || l.Count() != 3 { // nothing keeps it from its turn
				t.Error(err, l.Count())
			}
			if n := f.count(protocol.KindAcquire); n != sent {
				t.Errorf("%d acquires more", n-sent)
			}
		})
	})
	t.Run("what was sent may have been done", func(t *testing.T) {
		troubled(t, func(t *testing.T, f *fake, s *Session, trouble func(protocol.Kind, int)) {
			trouble(protocol.KindCreate, 1)
			ctx, cancel := brief()
			defer cancel()
			if err := s.Create(ctx, "x", 1, nil); !errors.Is(err, ErrOutcomeUnknown) ||
				!errors.Is(err, context.DeadlineExceeded) || Retryable(err) {
				t.Fatal(err)
			}
			trouble(protocol.KindNodeCreate, 1)
			ctx, cancel = brief()
			defer cancel()
			if _, err := s.c.CreateNode(ctx, "/m", NodeConfig{}); !errors.Is(err, ErrOutcomeUnknown) || Retryable(err) {
				t.Fatal(err)
			}
		})
	})
}

// TestCauseOfAnotherSession: the end of another session, which a request's context carries as its
// cause, is no answer to the request, and ends nothing of this session.
func TestCauseOfAnotherSession(t *testing.T) {
	for name, cause := range map[string]error{
		"ended":      fmt.Errorf("%w (%w)", ErrSessionExpired, protocol.Errorf(protocol.StatusSessionExpired, "killed")),
		"taken over": fmt.Errorf("%w (%w)", ErrTakenOver, protocol.Errorf(protocol.StatusBadSession, "attached elsewhere")),
	} {
		t.Run(name, func(t *testing.T) {
			withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
				hold(protocol.KindAcquire)
				ctx, cancel := context.WithCancelCause(bg)
				acquired := make(chan error, 1)
				go func() {
					_, err := s.Acquire(ctx, nameIn(2))
					acquired <- err
				}()
				synctest.Wait()
				cancel(cause)
				if err := <-acquired; !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Error(err)
				}
				hold(0)
				synctest.Wait()
				if s.State() != Attached || !l.Held() {
					t.Errorf("the session is %v", s.State())
				}
				if n := f.count(protocol.KindRelease); n != 1 {
					t.Errorf("%d releases of what was sent", n)
				}
				if n := f.count(protocol.KindSessionAttach); n != 0 {
					t.Errorf("%d attaches", n)
				}
			})
		})
	}
}

// TestEndedRightAway: the end of a session, or its take-over, that is told right behind the reply
// to its start is not lost.
func TestEndedRightAway(t *testing.T) {
	for name, c := range map[string]struct {
		kind   protocol.Kind
		event  protocol.Message
		status protocol.Status
		want   State
	}{
		"ended": {protocol.KindSessionEnded,
			&protocol.SessionEnded{Session: protocol.MakeSessionID(0, 0, 1), Reason: protocol.EndKilled},
			protocol.StatusSessionExpired, Expired},
		"taken over": {protocol.KindTakenOver, &protocol.TakenOver{Session: protocol.MakeSessionID(0, 0, 1), Epoch: 2}, protocol.StatusBadSession, Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				client := f.open(t)
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						switch h.Kind {
						case protocol.KindSessionStart:
							h.Arg = 0 // the session's home is the first bucket
							fc.answer(h)
							fc.send(c.kind, 0, 0, c.event)
							return true
						case protocol.KindSessionAttach:
							fc.fail(h, c.status)
							return true
						}
						return false
					}
				})
				s, err := client.Session(bg, "/n")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if s.State() != c.want || s.Held() {
					t.Errorf("the session is %v", s.State())
				}
			})
		})
	}
}

// TestRefusedHelloIsNoAnswer: credentials that are refused on the next connection say nothing about
// the request that was sent on the last one.
func TestRefusedHelloIsNoAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		kind protocol.Kind
		call func(s *Session, l *Lease) error
	}{
		"update":     {protocol.KindUpdate, func(s *Session, l *Lease) error { _, err := s.Update(bg, l.Name(), nil); return err }},
		"lower":      {protocol.KindAcquire, func(_ *Session, l *Lease) error { return l.Reduce(bg, 1) }},
		"alter node": {protocol.KindNodeAlter, func(s *Session, _ *Lease) error { _, err := s.c.AlterNode(bg, "/n", NodeConfig{}); return err }},
		"operator": {protocol.KindCluster, func(s *Session, _ *Lease) error {
			return callCluster(bg, s.c, protocol.MethodDrain, nil, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				if test.kind == protocol.KindUpdate || test.kind == protocol.KindAcquire {
					f.master[2] = 2 // the session stays attached at instance 1
				}
				c := f.open(t)
				s := f.sessionIn(t, c, 0)
				l, err := s.Acquire(bg, nameIn(1), Count(3))
				if err != nil {
					t.Fatal(err)
				}
				sent := 0
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						switch {
						case h.Kind == test.kind && sent == 0:
							_ = fc.nc.Close()
							sent++
						case h.Kind == protocol.KindHello && sent > 0:
							fc.fail(h, protocol.StatusUnauthenticated)
						default:
							return false
						}
						return true
					}
				})
				if err := test.call(s, l); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, Unauthenticated) {
					t.Error(err)
				}
			})
		})
	}
}

// TestReleaseOverARefusedHello: a release is answered by the shard, and not by the refusal of a
// connection to it. It goes on in the background, and the name stays locked until it is done.
func TestReleaseOverARefusedHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[2] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		l, err := s.Acquire(bg, nameIn(1))
		if err != nil {
			t.Fatal(err)
		}
		refused := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind == protocol.KindRelease && refused:
					_ = fc.nc.Close()
				case h.Kind == protocol.KindHello && refused:
					fc.fail(h, protocol.StatusForbidden)
				default:
					return false
				}
				return true
			}
		})
		if err := l.Release(bg); !errors.Is(err, Forbidden) || l.Held() {
			t.Fatal(err)
		}
		lost := 0
		f.set(func() {
			refused = false
			for _, r := range f.log { // one, and perhaps the first in the background
				if r.kind == protocol.KindRelease {
					lost++
				}
			}
		})
		if next, err := s.Acquire(bg, l.Name()); err != nil || next.Token() <= l.Token() {
			t.Fatal(next, err)
		}
		if n := f.count(protocol.KindRelease) - lost; lost == 0 || n != 1 {
			t.Errorf("released by %d requests, after %d that were lost", n, lost)
		}
	})
}

// TestReleaseRefusedInTheBackground: what stays held because its release was refused is logged,
// also if a connection was refused before the release.
func TestReleaseRefusedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[2] = 2
		var log bytes.Buffer
		c := f.open(t, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		s := f.sessionIn(t, c, 0)
		lost, refused := false, false
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind == protocol.KindAcquire: // it is not answered
				case h.Kind == protocol.KindRelease && !lost:
					lost = true
					_ = fc.nc.Close()
				case h.Kind == protocol.KindRelease:
					fc.fail(h, protocol.StatusForbidden)
				case h.Kind == protocol.KindHello && lost && !refused:
					refused = true
					fc.fail(h, protocol.StatusUnauthenticated)
				default:
					return false
				}
				return true
			}
		})
		ctx, cancel := brief()
		defer cancel()
		if _, err := s.Acquire(ctx, nameIn(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		if n := strings.Count(log.String(), "semaphore stays held until the session ends"); n != 1 {
			t.Errorf("%d warnings in %q", n, log.String())
		}
	})
}

package core

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// startedEngine is an engine with a session, and an acquire that is not answered.
func startedEngine(t *testing.T) (s *script, a *Acquire) {
	t.Helper()
	s = newScript()
	s.step(t, nil, "ready")
	s.step(t, nil, "acquire a jobs")
	s.came()
	return s, &s.calls["a"].acquire
}

// TestRulesAreKept breaks the rules of steps. Each time the engine stops with a sentence, every call
// that is under way ends once, and later ones end at once.
func TestRulesAreKept(t *testing.T) {
	for name, breaks := range map[string]func(*script, *Acquire){
		"completed twice": func(s *script, a *Acquire) {
			s.e.complete(&a.Request, Result{})
			s.e.complete(&a.Request, Result{})
		},
		"sent when it is over": func(s *script, a *Acquire) {
			s.e.complete(&a.Request, Result{})
			s.e.send(&a.Request)
		},
		"paused when it is over": func(s *script, a *Acquire) {
			s.e.complete(&a.Request, Result{})
			s.e.pause(&a.Request)
		},
		"changed inside another step": func(s *script, a *Acquire) {
			other := &Request{purpose: purpose{op: &notice{}}}
			s.e.stepped = other
			s.e.step(&a.Request, inLost, errConnLost)
			s.e.stepped = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := startedEngine(t)
			s.step(t, nil, "acquire b others")
			s.came()
			breaks(s, a)
			s.e.Tick(s.now)
			if err := s.e.Bug(); !errors.Is(err, ErrBug) {
				t.Fatalf("the engine goes on: %v", err)
			}
			s.step(t, nil, "ask c")
			s.e.Open(s.now)
			s.e.Tick(s.now + 1<<40)
			var r Ready
			s.e.Take(&r)
			done := map[*Request]int{}
			for _, x := range r.Done {
				done[x]++
			}
			for _, x := range []string{"a", "b", "c"} {
				if n := done[s.calls[x].last]; n != 1 {
					t.Errorf("call %s ended %d times", x, n)
				}
			}
			for _, x := range []string{"b", "c"} {
				if err := s.calls[x].last.Err; !errors.Is(err, ErrBug) {
					t.Errorf("call %s ended with: %v", x, err)
				}
			}
			if err := s.s.Err(); !errors.Is(err, ErrBug) {
				t.Errorf("the session ended with: %v", err)
			}
			if len(r.Close) != 1 || len(r.Dial) > 0 {
				t.Errorf("%d connections are closed, and %d are made", len(r.Close), len(r.Dial))
			}
			if _, armed := s.e.Next(); armed {
				t.Error("a timer is armed")
			}
		})
	}
}

// TestOverIsInNoList: whatever a request waited in, one that is complete is in no list, has no timer,
// and its connection does not know it.
func TestOverIsInNoList(t *testing.T) {
	s, a := startedEngine(t)
	for name, wait := range map[string]func(){
		"sent":   func() {},
		"paused": func() { s.e.refused(&a.Request, protocol.Errorf(protocol.StatusOverloaded, "later")) },
	} {
		t.Run(name, func(t *testing.T) {
			s, a = startedEngine(t)
			wait()
			s.e.resolve()
			s.e.complete(&a.Request, Result{})
			r := &a.Request
			if r.in != nil || r.delay.place != 0 || r.on != nil || r.listed {
				t.Errorf("it is in a list: %t, has a timer: %t, a connection: %t, is its session's: %t",
					r.in != nil, r.delay.place != 0, r.on != nil, r.listed)
			}
			if open := s.e.openRequests(); len(open) > 0 {
				t.Errorf("%d requests are open", len(open))
			}
		})
	}
}

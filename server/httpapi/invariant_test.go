package httpapi

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// callersOf returns how many requests a session has, and when it ends without another one. No program
// needs to know. The session's lock is held.
func callersOf(x *session) (calls int64, ends time.Duration) {
	m := reflect.ValueOf(&x.machine).Elem()
	return m.FieldByName("calls").Int(), time.Duration(m.FieldByName("ends").Int())
}

// requests counts those under way at each gateway of this process, by their session; those of streams
// with sessions of their own have no name.
var requests struct {
	sync.Mutex
	of map[*API]map[[2]string]int64 // by node and name
}

// count notes a request until the result is called.
func (a *API) count(node, name string) (answered func()) {
	add := func(n int64) {
		requests.Lock()
		defer requests.Unlock()
		if requests.of == nil {
			requests.of = make(map[*API]map[[2]string]int64)
		}
		if requests.of[a] == nil {
			requests.of[a] = make(map[[2]string]int64)
		}
		key := [2]string{node, name}
		if requests.of[a][key] += n; requests.of[a][key] == 0 {
			delete(requests.of[a], key)
		}
		if len(requests.of[a]) == 0 {
			delete(requests.of, a)
		}
	}
	add(1)
	return func() { add(-1) }
}

// fault says why nothing would ever end a session; empty: something will.
func (s *session) fault() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, ends := callersOf(s)
	requests.Lock()
	under := requests.of[s.api]
	most := under[[2]string{s.node, s.name}] + under[[2]string{s.node, ""}]
	requests.Unlock()
	if calls > most && s.ctx.Err() == nil { // else nobody waits until it is left
		return fmt.Sprintf("has %d callers, of %d requests", calls, most)
	}
	if s.machine.State() == machine.Live && (calls == 0) != (ends != 0) || calls < 0 {
		return fmt.Sprintf("has %d callers, and its end is set to %s", calls, ends)
	}
	next, now := s.machine.Next(), boottime.Now()
	switch {
	case next == 0:
	case s.timer == nil:
		return fmt.Sprintf("is due in %s, and has no timer", next-now)
	case s.timer.Stop():
		s.timer.Reset(next - now)
	case next-now > time.Second, now-next > await.Limit: // else it has fired, and waits for the lock
		return fmt.Sprintf("is due in %s, and its timer does not run", next-now)
	}
	return ""
}

// maxLooked is how many sessions a gateway has at most whose sessions are all looked at after each answer.
const maxLooked = 256

// look reports sessions of a gateway that have no caller, no running timer, and are not being stopped.
// It is called after each answer. Of a gateway with many sessions those of the answer's name are looked at.
func (a *API) look(name string, wrong func(format string, args ...any)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := len(a.sessions) <= maxLooked
	if !all && name == "" {
		return
	}
	for at, x := range a.sessions {
		if x == noSession || !all && at.name != name {
			continue
		}
		if why := x.fault(); why != "" {
			wrong("the session %s %s", at.name, why)
		}
	}
}

// checkSessions fails the test unless each session of the gateway has a caller, a running timer, or is
// being stopped, and counts once for its identity and its token.
func (s *site) checkSessions() {
	s.t.Helper()
	a := s.api
	a.mu.Lock()
	defer a.mu.Unlock()
	own, tokens := make(map[string]int), make(map[*callers]int64)
	for name, x := range a.sessions {
		if x == noSession {
			continue
		}
		own[x.identity]++
		tokens[x.callers]++
		if why := x.fault(); why != "" {
			s.t.Errorf("the session %s %s", name.name, why)
		}
	}
	if !maps.Equal(own, a.own) {
		s.t.Errorf("sessions by identity are counted as %v, and are %v", a.own, own)
	}
	for c, n := range tokens {
		if counted := c.sessions.Load(); counted != n {
			s.t.Errorf("%d sessions of a token are counted as %d", n, counted)
		}
	}
}

// gateways are the open ones by their test, which has one cluster.
var gateways struct {
	sync.Mutex
	of map[*testing.T][]*site
}

// opened notes a gateway until the result is called.
func (s *site) opened() (closed func()) {
	gateways.Lock()
	defer gateways.Unlock()
	if gateways.of == nil {
		gateways.of = make(map[*testing.T][]*site)
	}
	gateways.of[s.t] = append(gateways.of[s.t], s)
	return func() {
		gateways.Lock()
		defer gateways.Unlock()
		gateways.of[s.t] = slices.DeleteFunc(gateways.of[s.t], func(g *site) bool { return g == s })
	}
}

// checkEnd is checkSessions of a gateway whose test is over: no request goes on, so no session has a
// caller, and what is being stopped ends, if the server runs.
func (s *site) checkEnd(running bool) {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	await.True(s.t, "the end of all requests", func() bool { return s.api.held.Load() == 0 })
	await.True(s.t, "a gateway whose sessions have no callers", func() bool {
		s.api.mu.Lock()
		defer s.api.mu.Unlock()
		for _, x := range s.api.sessions {
			if x == noSession {
				continue
			}
			x.mu.Lock()
			calls, _ := callersOf(x)
			state := x.machine.State()
			x.mu.Unlock()
			if calls > 0 && state <= machine.Live || state == machine.Starting || state == machine.Stopping && running {
				return false
			}
		}
		return true
	})
	s.checkSessions()
}

// checkServer fails the test if a session is kept at the server that no gateway knows. Sessions of
// callers without a holder have a description by which they are known.
func (s *site) checkServer(address string) {
	s.t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{address}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	n, err := c.Node(ctx, client.DefaultNode)
	if err != nil {
		return // the server shows its sessions to nobody without a token
	}
	var left admin.SessionInfo
	await.True(s.t, "a server without sessions that no gateway has", func() bool {
		known := make(map[uint64]bool)
		gateways.Lock()
		for _, g := range gateways.of[s.t] {
			for _, x := range g.sessions() {
				if x != noSession && isOpen(x) {
					known[x.native.ID()] = true
				}
			}
		}
		gateways.Unlock()
		for left, err = range admin.OfNode(n).Sessions(ctx) {
			if err != nil || left.Attached && strings.HasPrefix(left.Description, "anonymous at ") && !known[left.ID] {
				time.Sleep(50 * time.Millisecond) // a list of all sessions is dear: others want the processor
				return false
			}
		}
		return true
	})
}

// isOpen reports whether a session has a native one.
func isOpen(x *session) bool {
	select {
	case <-x.ready:
		return x.err == nil
	default:
		return false
	}
}

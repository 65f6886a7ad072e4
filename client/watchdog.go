package client

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
)

// watchdog checks the clocks while there are sessions. The runtime's timers stop while the machine
// is suspended, so deadlines would be found late. A machine that is stopped from outside, such as a
// virtual one, may see only the wall clock move.
//
// One watchdog serves all clients of the process that use its clock: a program may have thousands.
type watchdog struct {
	clock clock

	mu       sync.Mutex
	timer    *time.Timer                  // nil until there is a session
	tables   map[*sessionTable]*clockJump // of the clients with sessions
	shortest time.Duration                // the shortest timeout of their sessions, or less; 0: there is none
	left     bool                         // a client has left: shortest may be less
	mono     time.Time                    // the runtime's monotonic clock at the last check
	boot     time.Duration
	wall     time.Time
}

// clockJump is what a check found that a client's sessions were not notified of yet.
type clockJump struct {
	found  bool
	jumped time.Duration // how far the wall clock went ahead of the others
}

func newWatchdog(ck clock) *watchdog {
	return &watchdog{clock: ck, tables: make(map[*sessionTable]*clockJump)}
}

// systemWatchdog is that of all clients with the system's clocks.
var systemWatchdog = newWatchdog(systemClock{})

// watchdogOf is the watchdog of a client's clock. The clocks of tests have one for each client.
func watchdogOf(ck clock) *watchdog {
	if ck == (systemClock{}) {
		return systemWatchdog
	}
	return newWatchdog(ck)
}

// watch has a client's sessions notified of jumps from now on. timeout is the shortest of its
// sessions.
func (w *watchdog) watch(t *sessionTable, timeout time.Duration) {
	w.mu.Lock()
	found := w.compare() // what was before concerns t no more than a check just before it came
	if w.tables[t] == nil {
		w.tables[t] = new(clockJump)
	}
	if w.shortest == 0 || timeout < w.shortest {
		w.shortest = timeout
		if w.timer == nil {
			w.timer = time.AfterFunc(w.period(), w.tick)
		} else {
			w.timer.Reset(w.period())
		}
	}
	w.mu.Unlock()
	w.notify(found)
}

// forget is the end of watch. It may be called again.
func (w *watchdog) forget(t *sessionTable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tables, t)
	w.left = true
	if len(w.tables) == 0 && w.timer != nil {
		w.timer.Stop()
		w.shortest = 0
	}
}

// period is a twentieth of the shortest session timeout, 50 ms .. 1 s. mu is held.
func (w *watchdog) period() time.Duration {
	return min(max(w.shortest/20, 50*time.Millisecond), time.Second)
}

func (w *watchdog) tick() {
	w.mu.Lock()
	found := w.compare()
	if w.left {
		w.left, w.shortest = false, 0
		for t := range w.tables {
			if d := t.shortestTimeout(); d > 0 && (w.shortest == 0 || d < w.shortest) {
				w.shortest = d
			}
		}
	}
	if len(w.tables) > 0 {
		w.timer.Reset(w.period())
	}
	w.mu.Unlock()
	w.notify(found)
}

// check is called before the state of a client's leases is reported. Its sessions are
// notified of jumps before it returns.
func (w *watchdog) check(t *sessionTable) {
	w.mu.Lock()
	if w.tables[t] == nil {
		w.mu.Unlock()
		return
	}
	found := w.compare()
	jump := w.take(t)
	w.mu.Unlock()
	t.clocksJumped(jump)
	w.notify(found)
}

// compare looks how far the clocks went since it was called last, for all clients. It returns those
// that are to be notified. mu is held.
func (w *watchdog) compare() (found []*sessionTable) {
	mono, boot, wall := time.Now(), w.clock.now(), w.clock.wall().Round(0)
	ran, went, jumped := mono.Sub(w.mono), boot-w.boot, wall.Sub(w.wall)-(boot-w.boot)
	w.mono, w.boot, w.wall = mono, boot, wall
	if slept := went-ran > w.period(); !slept && jumped <= sessionstate.MinTimeout/2 {
		return nil
	}
	for t, jump := range w.tables {
		jump.found, jump.jumped = true, max(jump.jumped, jumped)
		found = append(found, t)
	}
	return found
}

// take gives what a client's sessions were not notified of yet, to the one that notifies them. mu
// is held.
func (w *watchdog) take(t *sessionTable) (jump clockJump) {
	if j := w.tables[t]; j != nil {
		jump, *j = *j, clockJump{}
	}
	return jump
}

// notify notifies the sessions of each client. One that takes long holds up only its own client's.
func (w *watchdog) notify(found []*sessionTable) {
	for _, t := range found {
		go func() {
			w.mu.Lock()
			jump := w.take(t)
			w.mu.Unlock()
			t.clocksJumped(jump)
		}()
	}
}

// clocksJumped ticks all sessions after a jump of the clocks.
func (t *sessionTable) clocksJumped(jump clockJump) {
	if !jump.found {
		return
	}
	for _, s := range t.allSessions() {
		s.step(func(m *sessionstate.Machine, now time.Duration) {
			m.Tick(now)
			if jump.jumped > m.Timeout()/2 {
				m.ClockJumped(now)
			}
		})
	}
}

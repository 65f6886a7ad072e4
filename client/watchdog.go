package client

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
)

// watchdog checks the clocks while there are sessions. The runtime's timers stop while the machine
// is suspended, so deadlines would be found late. A machine that is stopped from outside, such as a
// virtual one, may see only the wall clock move.
type watchdog struct {
	sessions *sessionTable
	clock    clock

	mu    sync.Mutex
	timer *time.Timer
	over  bool
	mono  time.Time // the runtime's monotonic clock
	boot  time.Duration
	wall  time.Time
}

func startWatchdog(sessions *sessionTable, ck clock) *watchdog {
	w := &watchdog{sessions: sessions, clock: ck, mono: time.Now(), boot: ck.now(), wall: ck.wall().Round(0)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.period(), w.tick)
	return w
}

// period is a twentieth of the shortest session timeout, 50 ms .. 1 s.
func (w *watchdog) period() time.Duration {
	return min(max(w.sessions.shortestTimeout()/20, 50*time.Millisecond), time.Second)
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

func (w *watchdog) tick() {
	w.check()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.timer.Reset(w.period())
	}
}

// check compares how far the clocks went since the last check. A jump is counted before the next
// check can begin, and sessions look at the count. So a goroutine whose check found nothing sees
// the jump that another one found, although not every session has been ticked yet.
func (w *watchdog) check() {
	w.mu.Lock()
	mono, boot, wall := time.Now(), w.clock.now(), w.clock.wall().Round(0)
	ran, went, jumped := mono.Sub(w.mono), boot-w.boot, wall.Sub(w.wall)-(boot-w.boot)
	w.mono, w.boot, w.wall = mono, boot, wall
	leap := jumped > sessionstate.MinTimeout/2
	if leap {
		w.sessions.addJump(jumped, w.clock.now()) // boot may be from before the jump
	}
	w.mu.Unlock()
	if slept := went-ran > w.period(); !slept && !leap {
		return
	}
	for _, s := range w.sessions.allSessions() {
		s.step((*sessionstate.Machine).Tick)
	}
}

// wallAhead is how far the wall clock is ahead of the other one.
func wallAhead(ck clock) time.Duration { return time.Duration(ck.wall().UnixNano()) - ck.now() }

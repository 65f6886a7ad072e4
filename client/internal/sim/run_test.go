package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
)

// Options of a run. The zero value of everything but the seed is a full run.
type Options struct {
	Seed        uint64
	Off         Faults         // switched off in addition to those that the seed switches off
	Drop        map[Event]bool // single faults that are left out
	End         uint64         // ms of virtual time at which the run ends; 0: when everything is at rest
	PongUnasked bool           // planted fault: a pong is sent without asking the leader
}

// Event is one fault, or one client action, of a run: when, what, to whom, and which of several of
// its kind at that time.
type Event struct {
	At    uint64 // ms of virtual time
	Kind  Fault
	Actor uint32
	Nth   uint32
}

func (e Event) String() string { return fmt.Sprintf("%d %s %d", e.At-begin, e.Kind, e.Actor) }

// Result of a run.
type Result struct {
	Violation  string         // what was violated; empty: nothing
	At         uint64         // ms of virtual time until then
	Operations int            // requests of clients that were answered
	Counts     map[string]int // how often each event happened
	Events     []Event        // what happened, in order
	Sum        uint64         // checksum of all actions of leaders: equal seeds have equal sums
}

// violation is the panic of a failed check.
type violation string

func (w *simulation) fail(format string, args ...any) {
	panic(violation(fmt.Sprintf("at %d ms: ", w.now-begin) + fmt.Sprintf(format, args...)))
}

// Times of a run, in virtual ms.
const (
	begin     = 1_000_000
	step      = 25
	faultTime = 30_000 // with faults; then they stop, and everything must come to rest
)

// Run makes one run.
func Run(o Options) (res Result) {
	w := newWorld(o)
	defer func() {
		if x := recover(); x != nil {
			if v, ok := x.(violation); ok {
				res.Violation = string(v)
			} else {
				res.Violation = fmt.Sprintf("at %d ms: panic: %v", w.now-begin, x)
			}
		}
		res.At, res.Operations, res.Counts, res.Events, res.Sum = w.now-begin, w.operations, w.counts, w.eventLog, w.trace.Sum64()
	}()
	w.bootstrap()
	for w.now < begin+faultTime {
		if w.step(); o.End > 0 && w.now > begin+o.End {
			return
		}
	}
	w.faultsOver = true
	w.endFaults()
	steady := w.steadySessions()
	for end := w.now + w.timeout + w.maxGrace + 10_000; w.now < end; {
		w.step()
	}
	w.checkAtRest(steady)
	return
}

func newWorld(o Options) *simulation {
	w := &simulation{
		o: o, now: begin, off: o.Off, counts: map[string]int{}, ended: map[uint64]uint64{},
		sessions: map[uint64]*holder{}, contested: map[uint64]bool{}, conns: map[uint64]*conn{},
		tokens: map[string]uint64{}, trace: fnv.New64a(),
	}
	r := rand.New(rand.NewPCG(o.Seed, 0))
	w.timeout = []uint64{2_000, 3_000, 5_000}[r.IntN(3)]
	w.grace = []uint64{1_500, 3_000}[r.IntN(2)]
	w.minGrace, w.maxGrace = 1_500, 3_000
	w.doubt = []uint64{1_500, 60_000}[r.IntN(2)]
	w.relaxed = r.IntN(2) == 0
	w.maxDelay = []uint64{150, 600, 3_000}[r.IntN(3)]
	w.electionChance = []float64{0.003, 0.015}[r.IntN(2)]
	w.clientCount = 3 + r.IntN(4)
	w.tier = []uint8{0, 1, 15}[r.IntN(3)]
	w.sharing = r.IntN(2) == 0
	w.sessionsEach = 1 + uint32(r.IntN(2))
	w.window = []uint32{2, 8, 64}[r.IntN(3)]
	for f := range faultsCount { // drawn last, so that another fault does not change the draws before
		if r.IntN(3) == 0 && f != Acquire && f != Release {
			w.off |= 1 << f
		}
	}
	w.releaseChance = []float64{0.05, 0.01}[r.IntN(2)]
	return w
}

// fault reports whether a fault, or a client action, happens now. Each decision is drawn from the
// seed, the time, the kind and the actor alone, so that dropping one leaves the others as they are.
func (w *simulation) fault(f Fault, actor uint32, p float64) bool {
	if w.faultsOver || w.off&(1<<f) != 0 {
		return false
	}
	e := Event{w.now, f, actor, w.count(f, actor)}
	if float64(w.draw(uint64(f), uint64(actor), uint64(e.Nth))>>11)/(1<<53) >= p || w.o.Drop[e] {
		return false
	}
	w.eventLog = append(w.eventLog, e)
	w.counts[f.String()]++
	return true
}

// pick draws a number below n.
func (w *simulation) pick(f Fault, actor uint32, n uint64) uint64 {
	return w.draw(uint64(f)|1<<8, uint64(actor), uint64(w.count(f, actor))) % n
}

// count numbers the draws of a kind for an actor in a step, so that one more or less for one actor
// changes nothing for the others.
func (w *simulation) count(f Fault, actor uint32) uint32 {
	n := &w.nth[f][actor%uint32(len(w.nth[f]))]
	*n++
	return *n
}

// chance draws as fault does, without being one.
func (w *simulation) chance(f Fault, actor uint32, p float64) bool {
	return float64(w.pick(f, actor, 1<<53))/(1<<53) < p
}

func (w *simulation) draw(kind, actor, nth uint64) uint64 {
	const a, b, c = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb
	key := ((w.now*a^kind)*b^actor)*c ^ nth*a
	key ^= key >> 31
	w.pcg.Seed(w.o.Seed, key*b)
	return w.pcg.Uint64()
}

type timer struct {
	at, order uint64
	do        func()
}

type timers []*timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].order < t[j].order
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(*timer)) }
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

// after runs f in d ms, in an order of its own.
func (w *simulation) after(d uint64, f func()) {
	w.timersN++
	heap.Push(&w.timers, &timer{w.now + d, w.timersN, f})
}

// afterOrEnd is after, and at the end of faults at the latest.
func (w *simulation) afterOrEnd(d uint64, f func()) {
	done := false
	once := func() {
		if !done {
			done = true
			f()
		}
	}
	w.after(d, once)
	w.atEnd = append(w.atEnd, once)
}

// delay of a message, in ms: short, and sometimes long.
func (w *simulation) delay(actor uint32) uint64 {
	if w.faultsOver {
		return 5
	}
	if w.fault(DelayMessage, actor, 0.05) {
		return w.pick(DelayMessage, actor, w.maxDelay)
	}
	return w.pick(DelayMessage, actor, 40)
}

func (w *simulation) step() {
	w.now += step
	w.nth = [faultsCount][64]uint32{}
	for len(w.timers) > 0 && w.timers[0].at <= w.now {
		heap.Pop(&w.timers).(*timer).do()
	}
	for _, s := range w.shards {
		s.step()
	}
	for _, in := range w.instances {
		in.step()
	}
	w.stepMove()
	w.stepRemoval()
	w.changeGracePeriod()
	for i := range w.clients {
		w.stepClient(i)
	}
	w.check()
}

func sorted[K ~uint64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

package leaderdriver

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stubPart notes what the driver does with it, and when.
type stubPart struct {
	Alarm
	began time.Time

	mu    sync.Mutex
	terms []uint64 // begun; 0: ended
	ticks []stubTick
	ends  int
	every time.Duration // what Next says; 0: nothing is due
}

type stubTick struct {
	at      time.Duration
	timeout bool
}

func newStubPart(every time.Duration) *stubPart {
	return &stubPart{Alarm: newAlarm(), began: time.Now(), every: every}
}

func (p *stubPart) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *stubPart) Start(t Term) { p.do(func() { p.terms = append(p.terms, t.Number()) }) }
func (p *stubPart) Stop()        { p.do(func() { p.terms = append(p.terms, 0) }) }
func (p *stubPart) Close()       { p.do(func() { p.ends++ }) }
func (p *stubPart) Tick(timeout bool) {
	p.do(func() { p.ticks = append(p.ticks, stubTick{time.Since(p.began), timeout}) })
}
func (p *stubPart) Next() (in time.Duration, has bool) {
	p.do(func() { in = p.every })
	return in, in != 0
}

// want checks the ticks since the last call.
func (p *stubPart) want(t *testing.T, want ...stubTick) {
	t.Helper()
	synctest.Wait()
	p.do(func() {
		if !slices.Equal(p.ticks, want) {
			t.Errorf("ticks: %v, want %v", p.ticks, want)
		}
		p.ticks = nil
	})
}

// inBubble runs f with a driver of the parts, on a clock that stands still while anything runs.
func inBubble(t *testing.T, every []time.Duration, f func(d *Driver, parts []*stubPart)) {
	synctest.Test(t, func(*testing.T) {
		var stubs []*stubPart
		var parts []Part
		for _, e := range every {
			p := newStubPart(e)
			stubs, parts = append(stubs, p), append(parts, p)
		}
		d := New(parts...)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, loop := range d.Loops(stop) {
			wg.Go(loop)
		}
		f(d, stubs)
		close(stop)
		wg.Wait()
		// What comes after the end begins nothing.
		before := slices.Clone(stubs[0].terms)
		d.Begin(Term{Epoch: 99 << 16})
		for _, p := range stubs {
			if p.ends != 1 || !slices.Equal(p.terms, before) {
				t.Errorf("a part was closed %d times; its leaderships: %v", p.ends, p.terms)
			}
		}
	})
}

// TestLeadershipsOfParts: each part is told of each leadership, in order, and woken.
func TestLeadershipsOfParts(t *testing.T) {
	inBubble(t, make([]time.Duration, 3), func(d *Driver, parts []*stubPart) {
		d.Begin(Term{Epoch: 5<<16 | 1})
		d.End()
		d.Begin(Term{Epoch: 7<<16 | 3})
		synctest.Wait()
		for i, p := range parts {
			p.do(func() {
				if !slices.Equal(p.terms, []uint64{5, 0, 7}) || len(p.ticks) == 0 {
					t.Errorf("part %d was told of %v, and ticked %d times", i, p.terms, len(p.ticks))
				}
			})
		}
	})
}

// TestTicksAreOnTime: a part ticks when it said that something is due, and wake-ups between put off
// nothing. A shorter time counts from the next wake-up on, and one without anything due ends it.
func TestTicksAreOnTime(t *testing.T) {
	const ms = time.Millisecond
	inBubble(t, []time.Duration{100 * ms}, func(_ *Driver, parts []*stubPart) {
		p := parts[0]
		p.Wake()
		p.want(t, stubTick{0, false})
		time.Sleep(60 * ms)
		p.Wake()
		p.want(t, stubTick{60 * ms, false})
		time.Sleep(150 * ms)
		p.want(t, stubTick{100 * ms, true}, stubTick{200 * ms, true})
		p.do(func() { p.every = 20 * ms })
		p.Wake() // at 210 ms
		time.Sleep(25 * ms)
		p.want(t, stubTick{210 * ms, false}, stubTick{230 * ms, true})
		p.do(func() { p.every = 0 })
		time.Sleep(time.Hour)
		p.want(t, stubTick{250 * ms, true})
	})
}

// TestWakeWithin: a part's goroutine is woken for what is due before its timer fires, and for
// nothing else.
func TestWakeWithin(t *testing.T) {
	const ms = time.Millisecond
	inBubble(t, []time.Duration{100 * ms}, func(_ *Driver, parts []*stubPart) {
		p := parts[0]
		p.WakeWithin(time.Hour) // there is no timer yet
		p.want(t, stubTick{0, false})
		p.WakeWithin(100 * ms)
		p.WakeWithin(time.Hour)
		p.want(t)
		time.Sleep(30 * ms)
		p.WakeWithin(80 * ms)
		p.want(t)
		p.WakeWithin(50 * ms)
		p.want(t, stubTick{30 * ms, false})
		p.do(func() { p.every = 0 })
		time.Sleep(time.Second)
		p.want(t, stubTick{100 * ms, true})
		p.WakeWithin(time.Hour) // the timer has fired
		p.want(t, stubTick{1030 * ms, false})
	})
}

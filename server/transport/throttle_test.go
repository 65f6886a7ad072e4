package transport

import (
	"strings"
	"testing"
	"time"
)

// TestThrottle: how much is served, and for how many sweeps a connection is paused then.
func TestThrottle(t *testing.T) {
	t.Parallel()
	type read struct {
		sweeps                    int // before it
		rejections, pings, frames int
		pause                     uint64 // 0 for none
	}
	const others = 5000
	for name, script := range map[string][]read{
		"few":                {{0, 256, 0, 256, 0}, {1, 200, 56, 256, 0}},
		"many":               {{0, 256, 0, 256, 0}, {0, 0, 1, 1, 1}},
		"at once":            {{0, 257, 0, 257, 1}},
		"one that counts":    {{0, 1000, 0, 1001, 0}, {0, 1, 0, 1, 1}},
		"nothing unwanted":   {{0, 300, 0, 300, 1}, {1, 0, 0, 10, 0}},
		"refused by the log": {{0, 0, 0, 300, 0}, {0, 300, 0, 300, 1}},
		"again and again": {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {2, 300, 0, 300, 4},
			{4, 300, 0, 300, 8}, {8, 300, 0, 300, 8}, {10, 300, 0, 300, 8}},
		"again after a while":       {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {5, 300, 0, 300, 1}},
		"while others ask much":     {{0, -1, 0, 0, 0}, {0, 1, 0, 1, 1}, {3, 256, 0, 256, 0}},
		"pings while others do":     {{0, -1, 0, 0, 0}, {0, 0, 32, 32, 0}, {0, 0, 1, 1, 1}},
		"while others keep alive":   {{0, 0, -1, 0, 0}, {0, 1, 0, 1, 0}, {0, 255, 0, 255, 0}},
		"while others ping much":    {{0, 0, -33, 0, 0}, {0, 0, 32, 32, 0}, {0, 1, 0, 1, 1}},
		"with sessions (alive)":     {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {2, 300, 0, 300, 2}, {2, 300, 0, 300, 2}},
		"with other things (alive)": {{0, 300, 0, 301, 0}, {0, 300, 0, 301, 0}},
	} {
		var all sweepCounter
		all.next()
		var e throttle
		rejections := uint64(0)
		for i, r := range script {
			for range r.sweeps {
				all.next()
			}
			if r.rejections < 0 || r.pings < 0 { // of each of the others
				for range others {
					new(throttle).classify(&all, uint64(-r.rejections), -r.pings, -r.rejections-r.pings, false)
				}
				continue
			}
			rejections += uint64(r.rejections)
			if pause := e.classify(&all, rejections, r.pings, r.frames, strings.HasSuffix(name, "(alive)")); pause != r.pause {
				t.Errorf("%s: after read %d it is paused for %d sweeps, want %d", name, i, pause, r.pause)
			}
		}
	}
}

// TestPausedBufferLimit: what may wait of a paused connection, and one byte more. While much waits
// of all connections it is less.
func TestPausedBufferLimit(t *testing.T) {
	x, _ := start(t, nil)
	for name, c := range map[string]struct {
		others, n int
		stays     bool
	}{
		"little": {0, 100, true}, "as much as may be": {0, pausedBufferLimit - 1, true}, "one more": {0, pausedBufferLimit, false},
		"little, beside others": {64<<20 + 1, pausedLowWater - 1, true}, "more, beside others": {64<<20 + 1, pausedLowWater, false}, "beside fewer others": {64 << 20, pausedLowWater, true},
		"more than all may hold": {256 << 20, pausedLowWater - 1, false},
	} {
		p := pipe(t, x)
		if p.bufferPaused(c.n) {
			t.Errorf("%s: paused before it is told to", name)
		}
		p.pause(1, 0, false)
		x.unfinished.Add(int64(c.others))
		if stays := p.bufferPaused(c.n); stays != c.stays || p.Ending() == stays {
			t.Errorf("%s: stays is %v, ending is %v", name, stays, p.Ending())
		}
		p.Disconnect()
		x.unfinished.Add(int64(-c.others))
		if n := x.unfinished.Load(); n != 0 {
			t.Errorf("%s: %d bytes are counted afterwards", name, n)
		}
	}
	if n := x.Metrics.Throttled.Get(); n != 2 {
		t.Errorf("%d connections were closed for it, want 2", n)
	}
}

// TestPausedConnsResumeInTurn: of those whose pause is over so many resume at a time, and those
// whose keep-alives wait do not wait for the others.
func TestPausedConnsResumeInTurn(t *testing.T) {
	x, clock := start(t, nil)
	r := newPausedConns(x)
	now := clock.Now()
	var plain, alive []*Pipe
	for i := range 10 {
		p := pipe(t, x)
		p.paused.Store(true)
		if i%2 == 0 {
			plain = append(plain, p)
		} else {
			alive = append(alive, p)
		}
		r.add(&p.Conn, now+time.Duration(i)*time.Millisecond, i%2 == 1)
	}
	paused := func(list []*Pipe) (n int) {
		for _, p := range list {
			if p.Paused() {
				n++
			}
		}
		return n
	}
	clock.advance(time.Second)
	for _, want := range [][2]int{{3, 2}, {1, 0}, {0, 0}} {
		left := r.resume(2, 3)
		if paused(plain) != want[0] || paused(alive) != want[1] || left != (want[0]+want[1] > 0) {
			t.Fatalf("%d and %d with keep-alives are paused, want %v; %v", paused(plain), paused(alive), want, left)
		}
	}
}

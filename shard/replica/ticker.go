package replica

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// ticker ticks the replicas of a host: by the system's clock, or with the steps of a [ManualClock].
type ticker struct {
	groups *groupTable
	clock  Clock

	// With a ManualClock.
	idleTicks atomic.Int64  // since the last event
	events    atomic.Uint64 // entries with events, at the last tick
}

func (k *ticker) run(stop <-chan struct{}) {
	t := time.NewTimer(beat.Next(tickPeriod))
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		now := k.clock.Now()
		for _, g := range k.groups.running() {
			g.replica.tick(now)
		}
		t.Reset(beat.Next(tickPeriod))
	}
}

// follow lets the clock's steps tick, until the result is called.
func (k *ticker) follow(m *ManualClock) (stop func()) {
	untick, remove := m.OnTick(k.step), register[skipper](m, m.skipHosts, k)
	return func() { untick(); remove() }
}

// step ticks all replicas, and waits until the consequences are applied, at most five seconds of
// real time each. With thorough false it does not wait for messages between shards unless a shard
// applied something: in most steps nothing is due.
func (k *ticker) step(thorough bool) {
	list := k.groups.running()
	applied := func() (n uint64) {
		for _, g := range list {
			n += g.replica.appliedEntries()
		}
		return n
	}
	before := applied()
	defer func() {
		happened := uint64(0)
		for _, s := range k.groups.shards() {
			happened += s.eventEntries()
		}
		if k.events.Swap(happened) == happened {
			k.idleTicks.Add(1)
		} else {
			k.idleTicks.Store(0)
		}
	}()
	waits := make([]func(thorough bool), 0, len(list))
	for _, g := range list {
		waits = append(waits, g.replica.startTick())
	}
	for _, wait := range waits {
		wait(thorough)
	}
	if !thorough && applied() == before {
		return
	}
	// Shards may have given each other work. All are quiet if each was found quiet after all others
	// were.
	end := time.Now().Add(quietTimeout)
	for quiet := 0; quiet < len(list) && time.Now().Before(end); {
		for _, g := range list {
			if g.replica.quiet() {
				quiet++
				continue
			}
			quiet = 0
			g.replica.awaitQuiet(quietTimeout)
		}
	}
}

// minQuietTicks is the number of ticks without an event before time may be skipped: by then the
// effects of an event on other shards are done.
const minQuietTicks = 4

// due is the time until the next deadline of any shard, for a [ManualClock].
func (k *ticker) due() (in time.Duration, has bool) {
	if k.idleTicks.Load() < minQuietTicks {
		return 0, true
	}
	for _, s := range k.groups.shards() {
		if d, ok := s.due(); ok && (!has || d < in) {
			in, has = d, true
		}
	}
	return in, has
}

func (k *ticker) skipTime(d time.Duration) {
	for _, s := range k.groups.shards() {
		s.skipTime(d)
	}
}

// quietTimeout bounds, in real time, the wait of a tick for a shard.
const quietTimeout = 5 * time.Second

package request

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestAnnouncePace: of maps that follow each other fast, thousands of connections are told at a
// bounded pace, few of each one, and all of them of the last one in the end.
func TestAnnouncePace(t *testing.T) {
	longest := fanout.Pause(1 << 20)
	for _, x := range []struct {
		connections int
		pause       time.Duration
	}{
		{0, 0}, {10, time.Millisecond}, {1000, 100 * time.Millisecond}, {5000, longest}, {100_000, longest},
	} {
		const step, maps = 10 * time.Millisecond, 200
		var p announcePace
		now := time.Unix(1, 0)
		var notified []time.Time
		var due, last time.Time
		notify := func(at time.Time) {
			if n := len(notified); n > 0 && at.Sub(notified[n-1]) < x.pause {
				t.Errorf("%d connections: told after %s", x.connections, at.Sub(notified[n-1]))
			}
			notified = append(notified, at)
		}
		for range maps {
			now = now.Add(step)
			if !due.IsZero() && !now.Before(due) {
				p.announced(due)
				notify(due)
				due = time.Time{}
			}
			last = now
			all, later := p.next(now, x.connections)
			switch {
			case all:
				notify(now)
			case later > 0:
				due = now.Add(later)
			case due.IsZero():
				t.Fatalf("%d connections are not told of a map", x.connections)
			}
		}
		if !due.IsZero() {
			p.announced(due)
			notify(due)
		}
		if notified[len(notified)-1].Before(last) {
			t.Errorf("%d connections are not told of the last map", x.connections)
		}
		if most := int(maps*step/max(x.pause, step)) + 2; len(notified) > most {
			t.Errorf("%d connections were told %d times of %d maps", x.connections, len(notified), maps)
		}
	}
}

// TestAnnouncePaceOfEach: of many announcements in a row all connections are told few times, and of
// the last one in the end. The pace of a shard does not hold up another one.
func TestAnnouncePaceOfEach(t *testing.T) {
	const connections, announcements = 5000, 100
	a := mapAnnouncer{paces: map[uint64]*announcePace{}}
	var toAll atomic.Int64
	began := time.Now()
	for range announcements {
		a.announce(7, connections, func(all bool) {
			if all {
				toAll.Add(1)
			}
		})
	}
	if n := toAll.Load(); n < 1 || n > 2+int64(time.Since(began)/fanout.Pause(connections)) {
		t.Errorf("all are told %d times of %d announcements", n, announcements)
	}
	a.announce(8, connections, func(all bool) {
		if !all {
			t.Error("another shard waits")
		}
	})
	await.True(t, "the last one", func() bool { return toAll.Load() > 1 })
}

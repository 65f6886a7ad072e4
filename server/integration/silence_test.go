package integration

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestTimeOfDay: the same to the second, whatever time of day the machine is told that it is.
func TestTimeOfDay(t *testing.T) {
	form.SkipUntil(t, form.Full, "four runs of silence; servertest.TestTime has one")
	t.Parallel()
	for name, jumps := range map[string][]time.Duration{
		"an hour ahead, and back": {time.Hour, -time.Hour}, "ten seconds to and fro": {10 * time.Second, -10 * time.Second},
		"a century": {100 * 365 * 24 * time.Hour}, "the epoch": {-1_700_000_000 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			silence(t, func(c *replica.ManualClock) {
				c.SetWall(c.Wall().Add(jumps[n%len(jumps)]))
				n++
			})
		})
	}
}

// silence has a client fall silent that holds what another waits for, and something happen to the
// clock each second.
func silence(t *testing.T, happens func(*replica.ManualClock)) {
	var clock *replica.ManualClock
	s := start(t, func(c *server.Config) { clock = manual(c) })
	silent, other := connect(t, s), connect(t, s)
	node := other.node()
	r := silent.session(node, 1)
	if _, err := silent.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	r2 := other.session(node, 2)
	if a, err := other.lock(node, r2.Session, "a", protocol.Forever); err != nil || a.State != protocol.Queued {
		t.Fatalf("%+v, %v", a, err)
	}
	for range 9 {
		happens(clock)
		clock.Advance(time.Second)
		other.ping()
	}
	if d, err := other.describe(node, "a", protocol.Strict); err != nil || len(d.Owners) != 1 || d.Owners[0].Session != r.Session {
		t.Fatalf("after 9 s: %+v, %v", d, err)
	}
	for range 14 { // the connection is cut after 10 s, the session ends in the log, a shard that is not its home hears of it
		happens(clock)
		clock.Advance(time.Second)
		other.ping()
	}
	var result protocol.AcquireResult
	other.event(protocol.KindAcquireResult, &result)
	if result.Session != r2.Session || result.State != protocol.Acquired {
		t.Fatalf("result: %+v", result)
	}
	if g := silent.closed(); g == nil {
		t.Fatal("the silent connection was closed without a reason")
	}
}

package integration

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestBoundsOfTimes: the state machine and the table of metrics have the same bounds of waits, and
// the same outcomes and causes.
func TestBoundsOfTimes(t *testing.T) {
	t.Parallel()
	if got, want := fmt.Sprint(shard.TimeBounds()), fmt.Sprint(metrics.WaitBounds()); got != want {
		t.Errorf("the machine has the bounds %s, the table %s", got, want)
	}
	var times shard.Times
	if len(times.Ended) != len(metrics.WaitOutcomes) { // that causes agree, the compiler sees
		t.Error("the machine has other outcomes than the metrics")
	}
}

// TestWaitMetrics: how long was waited and held, in log time, and how long the first waiter waits.
// A wait beyond the node's slow-wait is logged with who held meanwhile. How often a lock is granted
// is shown also when nobody holds it.
func TestWaitMetrics(t *testing.T) {
	t.Parallel()
	var log logLines
	var clock *replica.ManualClock
	s := start(t, func(c *server.Config) {
		clock = manual(c)
		c.Shards, c.Logger = 1, slog.New(slog.NewJSONHandler(&log, nil))
	})
	c := connect(t, s)
	node := c.node()
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/default",
		Config: protocol.NodeConfig{Fields: protocol.FieldSlowWait, SlowWait: 5_000}}, &protocol.NodeInfo{})
	a, b := c.session(node, 1), c.session(node, 2)
	acquire := func(session uint64, name string) {
		c.must(protocol.KindAcquire, c.bucket(node, name),
			&protocol.Acquire{Head: c.head(session), Name: []byte(name), Count: protocol.Forever,
				Timeout: protocol.Forever, Ephemeral: true}, nil)
	}
	release := func(session uint64, name string) {
		c.must(protocol.KindRelease, c.bucket(node, name), &protocol.Release{Head: c.head(session), Name: []byte(name)}, nil)
	}
	acquire(a.Session, "lock")
	acquire(b.Session, "lock")
	advance(s, clock, 7*time.Second)
	has := func(lines ...string) {
		t.Helper()
		text := scrape(s)
		for _, l := range lines {
			if !strings.Contains(text, l+"\n") {
				t.Errorf("metrics lack %s", l)
			}
		}
	}
	const lock = `{node="/default",semaphore="lock"} `
	has(`signalbox_semaphore_owners`+lock+`1`, `signalbox_semaphore_waiters`+lock+`1`,
		`signalbox_node_slow_wait_seconds{node="/default"} 5`,
		`signalbox_shard_contended_semaphores{shard="2"} 1`, `signalbox_sessions 2`,
		`signalbox_wait_seconds_bucket{node="/default",le="0"} 1`)
	release(a.Session, "lock")
	has(`signalbox_wait_seconds_count{node="/default"} 2`, `signalbox_wait_seconds_bucket{node="/default",le="5"} 1`,
		`signalbox_wait_seconds_bucket{node="/default",le="10"} 2`,
		`signalbox_hold_seconds_count{node="/default"} 1`, `signalbox_waits_ended_total{node="/default",outcome="granted"} 1`,
		`signalbox_semaphore_waiters`+lock+`0`, `signalbox_semaphore_oldest_wait_seconds`+lock+`0`,
		`signalbox_leases_lost_total{cause="expired"} 0`)
	await.True(t, "the line of the slow wait", func() bool {
		return log.has(`"level":"WARN","msg":"slow wait"`, `"node":"/default","semaphore":"lock","shard":2`,
			fmt.Sprintf(`"session":%d`, b.Session),
			`"waited_ms":7`, `"outcome":"granted"`, fmt.Sprintf(`"held":{"owner1":{"session":%d,`, a.Session), `"token":1,"held_ms":7`)
	})
	c.must(protocol.KindCreate, c.bucket(node, "pool"), &protocol.Create{Head: c.head(a.Session), Name: []byte("pool"), Limit: 2,
		Options: &protocol.SemaphoreOptions{Policy: protocol.PolicyPriority, Numbered: true}}, nil)
	c.must(protocol.KindAcquire, c.bucket(node, "pool"), &protocol.Acquire{Head: c.head(a.Session), Name: []byte("pool"), Count: 1}, nil)
	const slots = `signalbox_semaphore_slots{node="/default",semaphore="pool",state=`
	has(slots+`"free"} 1`, slots+`"held"} 1`, slots+`"drained"} 0`, `signalbox_lease_transfers_total 0`,
		`signalbox_priority_wait_seconds_count{node="/default",level="5"} 1`)
	release(a.Session, "pool")
	has(slots+`"free"} 2`, slots+`"held"} 0`)
	acquire(a.Session, "brief")
	release(a.Session, "brief")
	rate := `signalbox_semaphore_grants_per_second{node="/default",semaphore="brief"} 0.`
	if text := scrape(s); !strings.Contains(text, rate) || strings.Contains(text, `_total{node="/default",semaphore="brief"}`) {
		t.Errorf("metrics lack %s, or the lock is there still:\n%s", rate, text)
	}
	c.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/default", Force: true, Reason: "test"}, nil)
	has(`signalbox_leases_lost_total{cause="node_dropped"} 1`)
}

// TestOldestWaitsBeyondTheCap: the series of waits are those of the nodes with the longest, and a
// node with such a wait has the series of its slow-wait however many nodes there are.
func TestOldestWaitsBeyondTheCap(t *testing.T) {
	t.Parallel()
	var clock *replica.ManualClock
	s := start(t, func(c *server.Config) {
		clock = manual(c)
		c.Limits.MaxSeries, c.Shards = 2, 1
	})
	c := connect(t, s)
	client := uint64(0)
	slow := protocol.NodeConfig{Fields: protocol.FieldSlowWait, SlowWait: 5_000}
	for _, quiet := range []string{"/a", "/b"} { // before the others, and nobody waits there
		c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: quiet, Config: slow}, &protocol.NodeInfo{})
	}
	for i, path := range []string{"/first", "/second", "/third", "/fourth"} {
		var info protocol.NodeInfo
		config := protocol.NodeConfig{}
		if i < 2 {
			config = slow
		}
		c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: path, Config: config}, &info)
		for range 2 {
			client++
			x := c.session(info.ID, client)
			if _, err := c.lock(info.ID, x.Session, "lock", protocol.Forever); err != nil {
				t.Fatal(err)
			}
		}
		advance(s, clock, time.Second)
	}
	text := scrape(s)
	for series, want := range map[string]bool{
		`oldest_wait_seconds{node="/first"}`: true, `oldest_wait_seconds{node="/second"}`: true,
		`oldest_wait_seconds{node="/third"}`: false, `oldest_wait_seconds{node="/fourth"}`: false,
		`slow_wait_seconds{node="/first"}`: true, `slow_wait_seconds{node="/second"}`: true,
	} {
		if got := strings.Contains(text, "\nsignalbox_node_"+series+" "); got != want {
			t.Errorf("%s is shown: %t, want %t", series, got, want)
		}
	}
}

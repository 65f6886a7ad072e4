package integration

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// limitPage is what the metrics say of rate limits.
func limitPage(s *instance) map[string]float64 {
	var out strings.Builder
	s.Metrics.WritePrometheus(&out)
	page := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(name, "{") {
			name, value, _ = strings.Cut(name, " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(name, "signalbox_limit_") {
			page[strings.TrimPrefix(name, "signalbox_limit_")] = v
		}
	}
	return page
}

// TestLimitMetrics: each metric of rate limits has the value that it is to have, in the life of two
// sessions that share a limit, and of one of a limit with few units.
func TestLimitMetrics(t *testing.T) {
	t.Parallel()
	s, advance := startLearning(t, func(c *server.Config) { c.Shards = 1 }, func(absent *limitClient) {
		absent.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
		absent.mustCreate("api/a", protocol.LimitConfig{Rate: 800_000})
		absent.mustCreate("few", protocol.LimitConfig{Rate: 100})
		absent.join("api")
	})
	r := connect(t, s)
	a, b, c := newLimitClient(r, r.node(), 1), newLimitClient(r, r.node(), 2), newLimitClient(r, r.node(), 3)
	shard := `{shard="` + strconv.FormatUint(s.shardIDs()[0], 10) + `"`
	of := func(path string) string { return `{node="/default",resource="` + path + `"` }
	want := func(when string, values map[string]float64) {
		t.Helper()
		page := limitPage(s)
		for name, v := range values {
			if got, ok := page[name]; !ok || got != v {
				t.Errorf("%s: %s is %v, want %v (it is there: %t)", when, name, got, v, ok)
			}
		}
	}
	leaf := protocol.LimitLeaf{Path: []byte("api/a"), Waiting: 1}
	refresh := func(c *limitClient, leaf protocol.LimitLeaf) []byte {
		t.Helper()
		advance(60 * time.Millisecond)
		lease, err := c.refresh(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return lease.Statement
	}

	// The leader learns as long as one that joined has not reported, or a lease lasts.
	a.join("api")
	a.describe("api")
	advance(2 * time.Second)
	want("while the leader learns", map[string]float64{"learning_seconds" + shard: 2, "refreshes_total" + shard: 0,
		"rate" + of("api/a"): 800, "leased_rate" + of("api/a"): 0, "counted_rate" + of("api/a"): 0, "allowed_total" + of("api/a"): 0})
	advance(protocol.DefaultLimitLease * time.Millisecond)
	refresh(a, leaf)
	leaf.Statement = refresh(a, leaf)
	want("with one session", map[string]float64{"learning_seconds" + shard: 0, "refreshes_total" + shard: 2, "notifications_total" + shard: 0,
		"unconfirmed_shrinks" + shard: 0, "leased_rate" + of("api/a"): 800, "counted_rate" + of("api/a"): 800,
		"lacking_sessions" + of("api/a"): 1, "lacking_seconds" + of("api/a"): 0.06, "impossible_total" + of("api/a"): 0})

	// Another one comes: the first is asked to shrink once that one has shown that it lives, and is
	// counted with what it had until it says so.
	b.join("api")
	other := protocol.LimitLeaf{Path: leaf.Path, Waiting: 1}
	other.Statement = refresh(b, other)
	advance(800 * time.Millisecond)
	other.Statement = refresh(b, other)
	await.True(t, "the notification of the first", func() bool { return limitPage(s)["notifications_total"+shard] == 1 })
	want("with a second session", map[string]float64{"unconfirmed_shrinks" + shard: 1, "leased_rate" + of("api/a"): 800})
	leaf.Statement = refresh(a, leaf)
	want("while the first has not confirmed", map[string]float64{"unconfirmed_shrinks" + shard: 1,
		"leased_rate" + of("api/a"): 400, "counted_rate" + of("api/a"): 800})
	leaf.Allowed, leaf.Denied, leaf.Waited, leaf.Impossible = 7_500, 3_000, 2_000, 9_000
	leaf.Statement = refresh(a, leaf)
	want("when it has", map[string]float64{"unconfirmed_shrinks" + shard: 0, "leased_rate" + of("api/a"): 400, "counted_rate" + of("api/a"): 400,
		"allowed_total" + of("api/a"): 7.5, "denied_total" + of("api/a"): 3, "waited_total" + of("api/a"): 2,
		"impossible_total" + of("api/a"): 9, "lacking_sessions" + of("api/a"): 2})
	other.Statement = refresh(b, other)
	want("with two sessions", map[string]float64{"leased_rate" + of("api/a"): 800, "counted_rate" + of("api/a"): 800})

	// Few units are given out by the leader.
	few := protocol.LimitLeaf{Path: []byte("few"), Waiting: 1}
	c.join("few")
	few.Statement = refresh(c, few)
	few.Statement = refresh(c, few)
	for range 3 {
		if _, err := c.acquire("few", 1000); err != nil {
			t.Fatal(err)
		}
	}
	want("at the end", map[string]float64{"remote_acquires_total" + shard: 3, "rate" + of("few"): 0.1, "leased_rate" + of("few"): 0,
		"refreshes_total" + shard: float64(a.refreshes + b.refreshes + c.refreshes), "series_truncated": 0})
	if _, ok := limitPage(s)["rate"+of("api")]; ok {
		t.Error("a resource with children has series of its own")
	}

	s.Metrics.SetMaxSeries(9) // of one leaf
	want("over the cap", map[string]float64{"rate" + of("api/a"): 800, "series_truncated": 1})
	if _, ok := limitPage(s)["rate"+of("few")]; ok {
		t.Error("a second leaf is shown over the cap")
	}

	// What does not exist any more has no series.
	if err := a.remove("api/a"); err != nil {
		t.Fatal(err)
	}
	if err := a.remove("api"); err != nil {
		t.Fatal(err)
	}
	want("when the first is deleted", map[string]float64{"series_truncated": 0})
}

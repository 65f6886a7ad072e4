package integration

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// advance moves a server's clock in steps that no leader takes for a pause, with every connection
// heard.
func advance(s *instance, clock *replica.ManualClock, d time.Duration) {
	for ; d > 0; d -= replica.ManualStep {
		now := clock.Now()
		s.Transport.Each(func(c *transport.Conn) { c.Heard(now) })
		clock.Advance(min(d, replica.ManualStep))
	}
	for range 3 {
		clock.Tick()
	}
}

// TestRestart: what a restart does to time. Log time stands still while the server is down, and
// does not fall back: a waiter's timer goes on, also in a shard that was idle while it waited. A
// session that does not come back lives for its timeout and the grace period, one that does has
// plain deadlines again. Order ids go on.
func TestRestart(t *testing.T) {
	t.Parallel()
	disk := replica.NewMemoryDisk()
	clock := replica.NewManualClock(time.Unix(1_700_000_000, 0))
	config := func(c *server.Config) { c.Disk, c.Clock = disk, clock }
	s := start(t, config)
	c := connect(t, s)
	node := c.node()
	holder, waiter := c.session(node, 1), c.session(node, 2) // timeout 10 s, grace 10 s
	tokens := make(map[string]uint64)
	numbers := make(map[string]uint64)
	for _, id := range s.shardIDs() {
		name := c.nameIn(node, id, "")
		a, err := c.lock(node, holder.Session, name, 0)
		if err != nil || a.State != protocol.Acquired {
			t.Fatalf("%+v, %v", a, err)
		}
		tokens[name] = a.OrderID
		if a, err = c.lock(node, waiter.Session, name, 60_000); err != nil || a.State != protocol.Queued {
			t.Fatalf("%+v, %v", a, err)
		}
		numbers[name] = c.seq
	}
	began := uint64(clock.Wall().UnixMilli())
	advance(s, clock, 45*time.Second)
	disk.PowerLoss()
	_ = s.Close()
	disk.PowerBack()
	clock.Jump(time.Hour)

	s = start(t, config)
	c = connect(t, s)
	waiters := func(want uint64) {
		t.Helper()
		for name := range tokens {
			d, err := c.describe(node, name, protocol.Strict)
			if err != nil || d.NumWaiters != want || len(d.Owners) != 1 || d.Owners[0].Since != began || d.CreatedAt != began {
				t.Errorf("%s: want %d waiters: %+v, %v", name, want, d, err)
			}
		}
	}
	describe := func(session uint64) (info protocol.SessionInfo, err error) {
		err = c.call(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(session)),
			&protocol.SessionDescribe{Session: session, Node: node}, &info)
		return info, err
	}
	if _, err := c.attach(node, 2, waiter.Session, 2); err != nil {
		t.Fatal(err)
	}
	advance(s, clock, 14*time.Second)
	waiters(1)
	if info, err := describe(holder.Session); err != nil || info.State != protocol.SessionDetached ||
		info.Remaining < 5_000 || info.Remaining > 6_000 {
		t.Fatalf("the session that did not come back, 14 s on: %+v, %v", info, err)
	}
	if _, err := c.attach(node, 1, holder.Session, 2); err != nil {
		t.Fatal(err)
	}
	advance(s, clock, 12*time.Second)
	waiters(0)
	// The acquire that was accepted is sent again: its time is over.
	for name, seq := range numbers {
		var a protocol.AcquireReply
		m := &protocol.Acquire{
			Head: protocol.Head{Session: waiter.Session, Seq: seq, Low: seq + 1}, Name: []byte(name),
			Count: protocol.Forever, Timeout: 60_000, Ephemeral: true,
		}
		c.must(protocol.KindAcquire, c.bucket(node, name), m, &a)
		if a.State != protocol.NotAcquired {
			t.Errorf("%s: %+v", name, a)
		}
	}
	// Grace was for the restart only: lost again, the holder has its own timeout, to the
	// millisecond.
	gone := connect(t, s)
	if _, err := gone.attach(node, 1, holder.Session, 3); err != nil {
		t.Fatal(err)
	}
	_ = gone.nc.Close()
	await.True(t, "the detach", func() bool {
		clock.Tick()
		info, err := describe(holder.Session)
		return err == nil && info.State == protocol.SessionDetached && info.Remaining == 10_000
	})
	advance(s, clock, 10*time.Second)
	if info, err := describe(holder.Session); err != nil {
		t.Fatalf("at 10,000 ms: %+v, %v", info, err)
	}
	advance(s, clock, time.Millisecond)
	await.True(t, "the end", func() bool {
		clock.Tick()
		_, err := describe(holder.Session)
		return errors.Is(err, protocol.StatusSessionExpired)
	})
	c.seq = 100
	for name, token := range tokens {
		await.True(t, name+" to be free", func() bool {
			clock.Tick()
			a, err := c.lock(node, waiter.Session, name, 0)
			if err == nil && a.State == protocol.Acquired && a.OrderID <= token {
				t.Errorf("order id %d after %d", a.OrderID, token)
			}
			return err == nil && a.State == protocol.Acquired
		})
	}
}

// TestLoweredGrace: a grace period that was lowered a moment ago is not the one that a restart
// gives; a raised one is at once.
func TestLoweredGrace(t *testing.T) {
	t.Parallel()
	disk := replica.NewMemoryDisk()
	clock := replica.NewManualClock(time.Unix(1_700_000_000, 0))
	config := func(c *server.Config) { c.Disk, c.Clock = disk, clock }
	s := start(t, config)
	c := connect(t, s)
	grace := func(ms uint64) protocol.NodeConfig {
		return protocol.NodeConfig{Fields: protocol.FieldGracePeriod, GracePeriod: ms}
	}
	var info protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/g", Config: grace(20_000)}, &info)
	node := info.ID
	r := c.session(node, 1)
	remaining := func() uint64 {
		t.Helper()
		disk.PowerLoss() // a stop would log that the session is detached, and it would keep that deadline
		_ = s.Close()
		disk.PowerBack()
		s = start(t, config)
		c = connect(t, s)
		var session protocol.SessionInfo
		c.must(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(r.Session)),
			&protocol.SessionDescribe{Session: r.Session, Node: node}, &session)
		return session.Remaining
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/g", Config: grace(2_000)}, &info)
	if described := c.nodeInfo("/g").Config.GracePeriod; described != 2_000 || info.Config.GracePeriod != 2_000 {
		t.Errorf("altered to %d, described as %d", info.Config.GracePeriod, described)
	}
	if left := remaining(); left != 10_000+20_000 {
		t.Errorf("%d ms are left after the restart, want the timeout and the grace period of before", left)
	}
	if _, err := c.attach(node, 1, r.Session, 2); err != nil { // else it would keep the deadline that it has
		t.Fatal(err)
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/g", Config: grace(30_000)}, &info)
	if left := remaining(); left != 10_000+30_000 {
		t.Errorf("%d ms are left after the restart, want the timeout and the raised grace period", left)
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/g", Config: grace(0)}, &info)
	if info.Config.GracePeriod != protocol.DefaultGracePeriod {
		t.Errorf("set back to the default: %d", info.Config.GracePeriod)
	}
}

// TestPartOfTheFolderIsGone: the logs of shards are in stores in the folder. Without one the server
// refuses to start, instead of serving a shard that has forgotten everything; with all of them back
// it starts, whatever was tried meanwhile.
func TestPartOfTheFolderIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := server.Config{
		DataDir: dir, Listen: "127.0.0.1:0", Raft: port.ForTest(t), Admin: server.Off, Shards: 4, Buckets: 16,
		RTT: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	s, err := startServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	names := make(map[uint64]string)
	for _, id := range s.shardIDs() {
		names[id] = c.nameIn(node, id, "")
		c.must(protocol.KindCreate, c.bucket(node, names[id]),
			&protocol.Create{Head: c.head(r.Session), Name: []byte(names[id]), Limit: 1}, nil)
	}
	_ = s.Close()
	stores, err := filepath.Glob(filepath.Join(dir, "raft", "*", "*", "logdb-*"))
	if err != nil || len(stores) == 0 {
		t.Fatalf("stores of logs: %q, %v", stores, err)
	}
	away := filepath.Join(t.TempDir(), "away")
	for _, store := range stores {
		if err := os.Rename(store, away); err != nil {
			t.Fatal(err)
		}
		if s, err := startServer(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "log is missing from data folder") {
			t.Errorf("without %s: %v", filepath.Base(store), err)
			if err == nil {
				_ = s.Close()
			}
		}
		if err := os.RemoveAll(store); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, store); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = startServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c = connect(t, s)
	for id, name := range names {
		await.True(t, fmt.Sprintf("shard %d to be led, and to have what it had", id), func() bool {
			_, err := c.describe(node, name, protocol.Strict)
			if err != nil && !errors.Is(err, protocol.StatusUnavailable) {
				t.Fatalf("shard %d: %v", id, err)
			}
			return err == nil
		})
	}
}

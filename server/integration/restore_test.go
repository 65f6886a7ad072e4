package integration

import (
	"bytes"
	"context"
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
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// restoreConfig is a first instance on a folder of its own.
func restoreConfig(t *testing.T, shards int) server.Config {
	t.Helper()
	raft := port.ForTest(t) // the folder keeps it
	return server.Config{
		DataDir: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Raft: raft, Admin: server.Off, Shards: shards,
		RTT: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

func serveRestored(t *testing.T, cfg server.Config) *instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := startServer(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func load(t *testing.T, file []byte) *backup.Source {
	t.Helper()
	from, err := backup.Load(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// TestRestore: what was held, awaited, written and remembered is there in a cluster that was made
// from a backup, with other shards; order ids go on, sessions are attached again with their keys,
// and a waiter gets its grant.
func TestRestore(t *testing.T) {
	t.Parallel()
	old := start(t, func(c *server.Config) { c.Shards = 3 })
	c := connect(t, old)
	def := c.node()
	var second, gone protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/gone"}, &gone)
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/second",
		Config: protocol.NodeConfig{Fields: protocol.FieldGracePeriod, GracePeriod: 7_000}}, &second)
	c.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/gone", Force: true, Reason: "test"}, nil)
	type lockOf struct {
		node, session, seq, order uint64
		name                      string
	}
	var locks, waits []lockOf
	holders := map[uint64]protocol.SessionReply{}
	for n, node := range []uint64{def, second.ID, def, second.ID} {
		holders[uint64(n)] = c.session(node, uint64(n+1))
		for i := range 12 {
			name := fmt.Sprintf("%d-lock-%d", n, i)
			a, err := c.lock(node, holders[uint64(n)].Session, name, 0)
			if err != nil || a.State != protocol.Acquired {
				t.Fatalf("%+v, %v", a, err)
			}
			locks = append(locks, lockOf{node, holders[uint64(n)].Session, c.seq, a.OrderID, name})
		}
	}
	waiter := c.session(def, 9)
	for _, l := range locks {
		if l.node != def {
			continue
		}
		a, err := c.lock(def, waiter.Session, l.name, 3_600_000)
		if err != nil || a.State != protocol.Queued {
			t.Fatalf("%+v, %v", a, err)
		}
		waits = append(waits, lockOf{def, waiter.Session, c.seq, a.OrderID, l.name})
	}
	for i := range 10 {
		name := fmt.Sprint("flag-", i)
		c.must(protocol.KindCreate, c.bucket(second.ID, name), &protocol.Create{
			Head: c.head(holders[1].Session), Name: []byte(name), Limit: 5, Data: []byte(strings.Repeat(name, 2000)),
		}, nil)
	}
	file := fetchBackup(t, old)
	cluster := old.Meta.State().Cluster()
	revision := old.Meta.State().Revision()
	// not in the backup
	c.must(protocol.KindRelease, c.bucket(def, locks[0].name),
		&protocol.Release{Head: c.head(locks[0].session), Name: []byte(locks[0].name)}, nil)

	update := func(c *raw, expected uint64) (version uint64, err error) {
		var r protocol.UpdateReply
		err = c.call(protocol.KindUpdate, c.bucket(second.ID, "flag-0"), &protocol.Update{
			Head: c.head(holders[1].Session), Name: []byte("flag-0"), Data: fmt.Append(nil, "after ", expected), Expected: expected}, &r)
		return r.Version, err
	}
	lost, err := update(c, 1)
	if err != nil {
		t.Fatal(err)
	}

	cfg := restoreConfig(t, 2)
	if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second restore to the same folder: %v", err)
	}
	for round := range 2 { // as restored, and once more
		s := serveRestored(t, cfg)
		state := s.Meta.State()
		if state.Cluster() == cluster || state.Revision() <= revision || len(state.Shards()) != 2 {
			t.Errorf("cluster %s, revision %d, %d shards; was %s, %d", state.Cluster(), state.Revision(),
				len(state.Shards()), cluster, revision)
		}
		d := connect(t, s)
		d.s.Config.Buckets = old.Config.Buckets // where the kit looks it up
		if info := d.nodeInfo("/second"); info.ID != second.ID || info.Config.GracePeriod != 7_000 {
			t.Errorf("node %+v, was %+v", info, second)
		}
		if err := d.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/gone"},
			&protocol.NodeInfo{}); !errors.Is(err, protocol.StatusNotFound) {
			t.Errorf("the dropped node: %v", err)
		}
		epoch := uint64(2 + round)
		for n, node := range []uint64{def, second.ID, def, second.ID} {
			if _, err := d.attach(node, uint64(n+1), holders[uint64(n)].Session, epoch); err != nil {
				t.Fatalf("session %d: %v", n, err)
			}
		}
		if _, err := d.attach(def, 9, waiter.Session, epoch); err != nil {
			t.Fatal(err)
		}
		for i, l := range locks {
			if round == 1 && l.node == def {
				continue // released in the first round
			}
			r, err := d.describe(l.node, l.name, protocol.Strict)
			if err != nil || len(r.Owners) != 1 || r.Owners[0].Session != l.session || r.Owners[0].OrderID != l.order {
				t.Fatalf("lock %d, %s: %+v, %v", i, l.name, r, err)
			}
			// The request sent again has the answer that it had.
			m := &protocol.Acquire{Head: protocol.Head{Session: l.session, Seq: l.seq, Low: 1}, Name: []byte(l.name),
				Count: protocol.Forever, Ephemeral: true}
			var again protocol.AcquireReply
			if err := d.call(protocol.KindAcquire, d.bucket(l.node, l.name), m, &again); err != nil ||
				again.State != protocol.Acquired || again.OrderID != l.order {
				t.Fatalf("lock %s asked for again: %+v, %v", l.name, again, err)
			}
		}
		for i := range 10 {
			name := fmt.Sprint("flag-", i)
			m := &protocol.Describe{Node: second.ID, Name: []byte(name)}
			var r protocol.DescribeReply
			if err := d.call(protocol.KindDescribe, d.bucket(second.ID, name), m, &r); err != nil ||
				string(r.Data) != strings.Repeat(name, 2000) || r.Limit != 5 {
				t.Fatalf("%s: %d bytes, %v", name, len(r.Data), err)
			}
		}
		d.seq = 1000
		if round == 1 { // a version that was given after the backup names no other data
			if _, err := update(d, lost); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
				t.Errorf("an update of version %d, which was lost: %v", lost, err)
			}
			if version, err := update(d, 1); err != nil || version <= lost {
				t.Errorf("version %d follows after a restore, and %d was given before it: %v", version, lost, err)
			}
			break
		}
		for i, w := range waits {
			holder := uint64(0)
			for _, l := range locks {
				if l.name == w.name {
					holder = l.session
				}
			}
			if err := d.unlock(def, holder, w.name); err != nil {
				t.Fatal(err)
			}
			var granted protocol.AcquireResult
			d.event(protocol.KindAcquireResult, &granted)
			if granted.Status != protocol.StatusOK || granted.State != protocol.Acquired || granted.Seq != w.seq ||
				granted.OrderID != w.order {
				t.Fatalf("waiter %d: %+v, want order %d of request %d", i, granted, w.order, w.seq)
			}
			if err := d.unlock(def, waiter.Session, w.name); err != nil {
				t.Fatal(err)
			}
			a, err := d.lock(def, holder, w.name, 0)
			if err != nil || a.OrderID <= w.order {
				t.Fatalf("order id %d after %d: %v", a.OrderID, w.order, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// tiersOf parses a list of tiers.
func tiersOf(t *testing.T, list ...string) (tiers []meta.TierSpec) {
	t.Helper()
	for _, text := range list {
		spec, err := server.ParseTier(text)
		if err != nil {
			t.Fatal(err)
		}
		tiers = append(tiers, spec)
	}
	return tiers
}

// TestRestoreTiers: the restored cluster has the tiers that it is given. The instance's has the
// backup's buckets and the id that the tier with the data had, so that sessions are found.
func TestRestoreTiers(t *testing.T) {
	t.Parallel()
	for id, list := range [][]string{{server.DefaultTier, "arbiter:buckets=0"}, {"arbiter:buckets=0", server.DefaultTier}} {
		t.Run(fmt.Sprintf("tier %d", id), func(t *testing.T) {
			old := start(t, func(c *server.Config) { c.Tiers = tiersOf(t, list...) })
			c := connect(t, old)
			node := c.node()
			held := c.session(node, 1)
			lock, err := c.lock(node, held.Session, "lock", 0)
			if err != nil || lock.State != protocol.Acquired || protocol.SessionTier(held.Session) != uint8(id) {
				t.Fatalf("%+v of session %d, %v", lock, held.Session, err)
			}
			file := fetchBackup(t, old)
			cfg := restoreConfig(t, 0)
			if id > 0 {
				if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err == nil ||
					!strings.Contains(err.Error(), "the last of the tiers arbiter, default; give the new cluster at least 2 tiers") {
					t.Errorf("a restore to one tier: %v", err)
				}
				cfg = restoreConfig(t, 0)
			}
			cfg.Tiers = tiersOf(t, "a:buckets=0", server.DefaultTier, "b:buckets=0:vote=false")
			cfg.ReplicationFactor = 3 - id // as for the instances of the old cluster; one copy is what there can be
			done, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{})
			if err != nil || len(done.OneCopy) != 1 || done.OneCopy[0].Name != server.DefaultTier ||
				done.OneCopy[0].ReplicationFactor != uint32(3-id) {
				t.Fatalf("%+v, %v", done, err)
			}
			s := serveRestored(t, cfg)
			data, _ := s.Meta.State().TierByName(server.DefaultTier)
			if len(s.Meta.State().Tiers()) != 3 || data.Buckets != 16 || data.ID != uint8(id) || data.ReplicationFactor != 1 {
				t.Errorf("the tiers are %+v", s.Meta.State().Tiers())
			}
			d := connect(t, s)
			d.s.Config.Buckets = old.Config.Buckets // where the kit looks it up
			if _, err := d.attach(node, 1, held.Session, 2); err != nil {
				t.Fatal(err)
			}
			if again, err := d.lock(node, held.Session, "lock", 0); err != nil || again.OrderID != lock.OrderID {
				t.Errorf("the lock is %+v, %v; it was %+v", again, err, lock)
			}
		})
	}
}

// TestRestoreRefuses: what cannot be the first instance of a restored cluster is told so, and a
// folder with half of a restore is served by nobody.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	file := fetchBackup(t, start(t, nil))
	for want, change := range map[string]func(*server.Config){
		"peers are given and no join token": func(c *server.Config) { c.Peers = []string{"127.0.0.1:1"} },
		"an instance of tier default makes no cluster; restore the backup to one of tier voter first": func(c *server.Config) {
			c.Tiers = tiersOf(t, server.DefaultTier+":vote=false", "voter:buckets=0")
		},
		"the backup has data in tier default, and the new cluster has the tiers voter, more": func(c *server.Config) {
			c.Tier, c.Tiers = "voter", tiersOf(t, "voter:buckets=0", "more")
		},
		"tier default has 16 buckets in the backup, and not 64": func(c *server.Config) { c.Tiers = tiersOf(t, server.DefaultTier+":buckets=64") },
		"in memory is lost": func(c *server.Config) { c.Memory = true },
		"is not empty": func(c *server.Config) {
			c.DataDir = t.TempDir()
			_ = os.WriteFile(filepath.Join(c.DataDir, "x"), nil, 0o600)
		},
		"cannot be assigned to 40": func(c *server.Config) { c.Shards = 40 },
	} {
		cfg := restoreConfig(t, 0)
		change(&cfg)
		if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	cfg := restoreConfig(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := server.Restore(ctx, cfg, load(t, file), server.RestoreOptions{}); err == nil {
		t.Fatal("a restore that was cut has no error")
	}
	if _, err := startServer(t.Context(), cfg); err == nil ||
		!strings.Contains(err.Error(), "restore in it that did not end; remove the folder") {
		t.Errorf("served what a cut restore left: %v", err)
	}
	if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err == nil || !strings.Contains(err.Error(), "did not end; remove the folder") {
		t.Errorf("restored onto what a cut restore left: %v", err)
	}
	if err := os.RemoveAll(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{}); err != nil {
		t.Errorf("after the folder was removed: %v", err)
	}
}

// TestRestoreKeepsClients: a cluster that is restored for the clients that run is known to them by
// the former id, and to instances by its own. No session of the backup goes on, whichever shards
// have its holds, and tokens rise.
func TestRestoreKeepsClients(t *testing.T) {
	t.Parallel()
	old := start(t, func(c *server.Config) { c.Shards = 3 })
	c := connect(t, old)
	def := c.node()
	var sessions []protocol.SessionReply
	tokens := map[string]uint64{}
	for n := range uint64(40) {
		sessions = append(sessions, c.session(def, n+1))
		name := fmt.Sprint("lock-", n)
		a, err := c.lock(def, sessions[n].Session, name, 0)
		if err != nil || a.State != protocol.Acquired {
			t.Fatalf("%+v, %v", a, err)
		}
		tokens[name] = a.OrderID
	}
	file := fetchBackup(t, old)
	former := old.Meta.State().Cluster()

	cfg := restoreConfig(t, 2)
	if _, err := server.Restore(t.Context(), cfg, load(t, file), server.RestoreOptions{KeepClients: true}); err != nil {
		t.Fatal(err)
	}
	s := serveRestored(t, cfg)
	if state := s.Meta.State(); state.ClientCluster() != former || state.Cluster() == former {
		t.Errorf("clients know it as %s, instances as %s; it was %s", state.ClientCluster(), state.Cluster(), former)
	}
	d := connect(t, s)
	d.s.Config.Buckets = old.Config.Buckets // where the kit looks it up
	for n, x := range sessions {
		if _, err := d.attach(def, uint64(n+1), x.Session, 2); !errors.Is(err, protocol.StatusSessionExpired) {
			t.Errorf("session %d is attached: %v", n, err)
		}
	}
	next := d.session(def, 99)
	for name, before := range tokens {
		await.True(t, "the lock "+name, func() bool {
			a, err := d.lock(def, next.Session, name, 0)
			return err == nil && a.State == protocol.Acquired && a.OrderID > before
		})
	}
}

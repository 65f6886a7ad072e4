package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// instanceOf is the configuration of an instance of a tier on a folder of its own.
func instanceOf(t *testing.T, tier string, peers ...string) server.Config {
	t.Helper()
	cfg := restoreConfig(t, 0)
	cfg.Tier, cfg.Name, cfg.Peers, cfg.JoinToken = tier, tier+"1", peers, "the join token of a test"
	return cfg
}

// cutAt is a log whose record with this message ends something.
type cutAt struct {
	message string
	end     func()
}

func (c cutAt) Enabled(context.Context, slog.Level) bool { return true }
func (c cutAt) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c cutAt) WithGroup(string) slog.Handler            { return c }

func (c cutAt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.message {
		c.end()
	}
	return nil
}

func dialClient(t *testing.T, s *instance) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	return c
}

// closeAll ends a cluster and its client.
func closeAll(t *testing.T, c *client.Client, servers ...*instance) {
	t.Helper()
	c.CloseWithoutRelease()
	for _, s := range servers {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoreSeveralTiers: a cluster with data in two tiers is restored tier by tier, to other
// numbers of shards. A tier serves nothing before all of it is there, however its restore ends and
// its instance is started again, and everything afterwards.
func TestRestoreSeveralTiers(t *testing.T) {
	form.SkipUntil(t, form.Full, "two tiers, restored step by step; TestRestore has one")
	t.Parallel()
	ctx := t.Context()
	const names = 24
	data := []byte(strings.Repeat("data", 25_000))
	name := func(i int) string { return fmt.Sprint("seat", i) }

	hot := instanceOf(t, "hot")
	hot.Shards, hot.Tiers = 2, tiersOf(t, "hot:buckets=16", "arbiter:buckets=0", "cold:buckets=8:vote=false")
	old := serveRestored(t, hot)
	oldCold := serveRestored(t, instanceOf(t, "cold", hot.Raft))
	c := dialClient(t, old)
	if _, err := admin.Nodes(c).Create(ctx, "/archive", admin.NodeConfig{}, admin.InTier("cold")); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"/default", "/archive"}
	var saved []client.Saved
	tokens := map[string]uint64{}
	for _, node := range nodes {
		s, err := c.Session(ctx, node, client.Timeout(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			if err := s.Create(ctx, name(i), 2, data); err != nil {
				t.Fatal(err)
			}
			l, err := s.Acquire(ctx, name(i))
			if err != nil {
				t.Fatal(err)
			}
			tokens[node+name(i)] = l.Token()
		}
		saved = append(saved, s.Save())
	}
	file := fetchBackup(t, old)
	if _, err := admin.Nodes(c).Create(ctx, "/later", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	later := fetchBackup(t, old)
	closeAll(t, c, oldCold, old)

	// What the first instance is refused.
	for want, change := range map[string]func(*server.Config){
		`this instance's tier is "default", and the tiers are hot, arbiter, cold`: func(c *server.Config) { c.Tier = "" },
		"tier cold makes no cluster; restore the backup to one of tier hot first": func(c *server.Config) { c.Tier = "cold" },
		"the backup has data in tier cold, and the new cluster has the tiers hot; give it a tier cold with data too": func(c *server.Config) {
			c.Tiers = tiersOf(t, "hot")
		},
		"has the tiers hot, arbiter, warm": func(c *server.Config) { c.Tiers = tiersOf(t, "hot", "arbiter:buckets=0", "warm") },
		"the last of the tiers hot, arbiter, cold; give the new cluster at least 3 tiers": func(c *server.Config) {
			c.Tiers = tiersOf(t, "hot", "cold")
		},
		"tier cold has 8 buckets in the backup, and not 0":  func(c *server.Config) { c.Tiers = tiersOf(t, "hot", "x", "cold:buckets=0") },
		"tier hot has 16 buckets in the backup, and not 64": func(c *server.Config) { c.Tiers = tiersOf(t, "hot:buckets=64", "x", "cold") },
	} {
		cfg := instanceOf(t, "hot")
		change(&cfg)
		if _, err := server.Restore(ctx, cfg, load(t, file), server.RestoreOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}

	hot = instanceOf(t, "hot")
	hot.Shards, hot.ReplicationFactor = 3, 2 // one copy of each tier is what there can be
	done, err := server.Restore(ctx, hot, load(t, file), server.RestoreOptions{})
	if err != nil || len(done.OneCopy) != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	if done.Tier != "hot" || done.Sessions != 1 || done.Semaphores != names || !slices.Equal(done.Left, []string{"cold"}) {
		t.Errorf("the restore of the first tier is %+v", done)
	}
	s := serveRestored(t, hot)
	c = dialClient(t, s)
	checkRestored(t, c, saved[0], nodes[0], tokens, data)

	// Nothing touches what is still to come, and no backup lacks it.
	mark := func() meta.RestoreMark {
		x, _ := s.Meta.State().TierByName("cold")
		return x.Restore
	}
	whole := load(t, file)
	if m := mark(); m.Backup != whole.Digest() || m.Epoch != whole.Epoch() {
		t.Errorf("the mark is %+v", m)
	}
	if _, err := admin.Nodes(c).Delete(ctx, "/archive", admin.DeleteOptions{Force: true, Reason: "test"}); !errors.Is(err, client.ErrPreconditionFailed) ||
		!strings.Contains(err.Error(), "tier cold is to be restored") {
		t.Errorf("its node is dropped: %v", err)
	}
	lacking := fmt.Sprintf("tier cold of the cluster is still to be restored from the backup with digest %016x", whole.Digest())
	if _, err := backup.Verify(bytes.NewReader(fetchBackup(t, s))); err == nil || !strings.Contains(err.Error(), lacking) {
		t.Errorf("a backup of half a cluster: %v", err)
	}

	cold := instanceOf(t, "cold", hot.Raft)
	if _, err := server.Restore(ctx, cold, load(t, later), server.RestoreOptions{}); err == nil || !strings.Contains(err.Error(), "take that one") {
		t.Errorf("restored from another backup: %v", err)
	}
	if _, err := server.Restore(ctx, instanceOf(t, "hot", hot.Raft), load(t, file), server.RestoreOptions{}); err == nil ||
		!strings.Contains(err.Error(), "nothing of tier hot is to be restored in this cluster") {
		t.Errorf("the first tier is restored again: %v", err)
	}
	if n := len(s.Meta.State().Instances()); n != 1 {
		t.Errorf("what restores nothing was let in: the cluster has %d instances", n)
	}
	for range 2 {
		cutting, cut := context.WithCancel(ctx)
		cfg := cold
		cfg.Logger = slog.New(cutAt{"buckets restored", cut})
		if _, err := server.Restore(cutting, cfg, load(t, file), server.RestoreOptions{}); err == nil {
			t.Fatal("a restore that was cut has no error")
		}
	}
	half := serveRestored(t, cold)
	if err := half.Ready(); err == nil || !strings.Contains(err.Error(), "the data of tier cold is to be restored from the backup") {
		t.Errorf("an instance with half of its tier is ready: %v", err)
	}
	if m := mark(); m.Epoch == 0 {
		t.Error("the tier counts as restored")
	}
	if err := half.Close(); err != nil {
		t.Fatal(err)
	}
	if done, err = server.Restore(ctx, cold, load(t, file), server.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if done.Tier != "cold" || done.Sessions != 1 || done.Semaphores != names || len(done.Left) > 0 {
		t.Errorf("the restore of the second tier is %+v", done)
	}
	if _, err := server.Restore(ctx, cold, load(t, file), server.RestoreOptions{}); err == nil ||
		!strings.Contains(err.Error(), "nothing of tier cold is to be restored in this cluster") {
		t.Errorf("restored again: %v", err)
	}
	serveRestored(t, cold)
	await.True(t, "the second tier in the map", func() bool { return mark() == (meta.RestoreMark{}) })
	checkRestored(t, c, saved[1], nodes[1], tokens, data)
	for _, x := range s.Meta.State().Tiers() {
		for _, run := range x.Runs {
			if x.Buckets > 0 && run.Epoch < whole.Epoch() {
				t.Errorf("tier %s has buckets under epoch %d", x.Name, run.Epoch)
			}
		}
	}
}

// TestRestoreByVoter: where the tier with the data has no vote, an instance of one that votes makes
// the restored cluster too.
func TestRestoreByVoter(t *testing.T) {
	form.SkipUntil(t, form.Full, "two tiers; TestRestore has one")
	t.Parallel()
	ctx := t.Context()
	voter := instanceOf(t, "voter")
	voter.Tiers = tiersOf(t, "voter:buckets=0", "data:buckets=16:vote=false")
	old := serveRestored(t, voter)
	data := serveRestored(t, instanceOf(t, "data", voter.Raft))
	c := dialClient(t, old)
	s, err := c.Session(ctx, "/default", client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "seat", 2, nil); err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(ctx, "seat")
	if err != nil {
		t.Fatal(err)
	}
	saved := s.Save()
	file := fetchBackup(t, old)
	closeAll(t, c, data, old)

	tiers := voter.Tiers
	voter = instanceOf(t, "voter")
	voter.Tiers = tiers
	done, err := server.Restore(ctx, voter, load(t, file), server.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if done.Tier != "voter" || done.Sessions+done.Semaphores != 0 || !slices.Equal(done.Left, []string{"data"}) {
		t.Errorf("the restore to an instance without data is %+v", done)
	}
	c = dialClient(t, serveRestored(t, voter))
	cfg := instanceOf(t, "data", voter.Raft)
	if done, err = server.Restore(ctx, cfg, load(t, file), server.RestoreOptions{}); err != nil || done.Tier != "data" || done.Sessions != 1 || len(done.Left) > 0 {
		t.Fatalf("the restore of the data is %+v, %v", done, err)
	}
	serveRestored(t, cfg)
	checkRestored(t, c, saved, "/default", map[string]uint64{"/defaultseat": l.Token()}, nil)
}

// TestRestoreOvertaken: of two instances that restore a tier, one is first. The other is notified,
// and keeps nothing of what it has imported: its shards are removed, and it gets new ones.
func TestRestoreOvertaken(t *testing.T) {
	form.SkipUntil(t, form.Full, "a tier is restored twice; TestRestore has one")
	t.Parallel()
	ctx := t.Context()
	const names = 24
	voter := instanceOf(t, "voter")
	voter.Shards, voter.Tiers = 2, tiersOf(t, "voter:buckets=0", "data:buckets=16:vote=false")
	tiers := voter.Tiers
	old := serveRestored(t, voter)
	data := serveRestored(t, instanceOf(t, "data", voter.Raft))
	c := dialClient(t, old)
	s, err := c.Session(ctx, "/default", client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		if err := s.Create(ctx, fmt.Sprint("seat", i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	file := fetchBackup(t, old)
	closeAll(t, c, data, old)

	voter = instanceOf(t, "voter")
	voter.Shards, voter.Tiers = 1, tiers // so each restore has one part after the other
	if _, err := server.Restore(ctx, voter, load(t, file), server.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	restored := serveRestored(t, voter)
	slow, fast := instanceOf(t, "data", voter.Raft), instanceOf(t, "data", voter.Raft)
	fast.Name = "fast"
	begun, overtaken, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	slow.Logger = slog.New(cutAt{"buckets restored", sync.OnceFunc(func() {
		close(begun)
		<-overtaken
	})})
	go func() {
		_, err := server.Restore(ctx, slow, load(t, file), server.RestoreOptions{})
		ended <- err
	}()
	<-begun
	former := restored.Meta.State().Shards()
	if _, err := server.Restore(ctx, fast, load(t, file), server.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	close(overtaken)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "nothing of tier data is to be restored in this cluster") {
		t.Errorf("the restore that was overtaken: %v", err)
	}
	serveRestored(t, fast)
	serveRestored(t, slow)
	await.True(t, "buckets on both instances", func() bool {
		state := restored.Meta.State()
		x, _ := state.TierByName("data")
		counts := map[uint64]uint32{}
		for _, run := range x.Runs {
			counts[run.Shard] += run.Count
		}
		return len(state.Moves()) == 0 && len(counts) == 2 && counts[x.Runs[0].Shard] == 8
	})
	if _, ok := restored.Meta.State().Shard(former[0].ID); len(former) != 1 || ok {
		t.Errorf("the first shards %+v are there yet", former)
	}
	whole, err := backup.Verify(bytes.NewReader(fetchBackup(t, restored)))
	if err != nil {
		t.Fatal(err)
	}
	if sessions, semaphores := whole.Sizes(); sessions != 1 || semaphores != names {
		t.Errorf("%d sessions and %d semaphores", sessions, semaphores)
	}
}

// checkRestored: a session has what it had, under the same tokens, and others get far higher ones.
func checkRestored(t *testing.T, c *client.Client, saved client.Saved, node string, tokens map[string]uint64, data []byte) {
	t.Helper()
	ctx := t.Context()
	s, err := c.Restore(ctx, saved)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Session(ctx, node, client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for key, token := range tokens {
		name, ok := strings.CutPrefix(key, node)
		if !ok {
			continue
		}
		found++
		l, err := s.Acquire(ctx, name)
		if err != nil || l.Token() != token {
			t.Fatalf("%s is not held under token %d: %v, %v", key, token, l, err)
		}
		d, err := s.Node().Describe(ctx, name)
		if err != nil || !bytes.Equal(d.Data, data) {
			t.Fatalf("%s: %v", key, err)
		}
		l, err = other.Acquire(ctx, name)
		if err != nil || l.Token() < token+1<<32 {
			t.Fatalf("%s gave no token far above %d: %v, %v", key, token, l, err)
		}
	}
	if found == 0 {
		t.Errorf("nothing was looked at in %s", node)
	}
}

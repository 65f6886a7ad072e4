package integration

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// logWatcher is a log that calls when a message contains text.
type logWatcher struct {
	slog.Handler
	text string
	call func()
}

func (w logWatcher) Enabled(context.Context, slog.Level) bool { return true }
func (w logWatcher) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w logWatcher) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, w.text) {
		w.call()
	}
	return nil
}

// TestRefusedJoins: who does not fit is told why, and what to do; and who fits is taken in
// afterwards all the same.
func TestRefusedJoins(t *testing.T) {
	form.SkipUntil(t, form.Full, "many instances that do not fit")
	t.Parallel()
	k := newClusterKit(t, 3)
	first := k.config("a")
	first.Cluster, first.FailureDomain = "works", map[string]string{"dc": "1"}
	if err := k.startWith(t.Context(), "a", first); err != nil {
		t.Fatal(err)
	}
	good := func() server.Config {
		c := k.config("b", "a")
		c.FailureDomain = map[string]string{"DC": "2"}
		return c
	}
	for _, x := range []struct {
		what   string
		change func(c *server.Config)
		parts  []string
	}{
		{"cluster name", func(c *server.Config) { c.Cluster = "other" }, []string{"cluster mismatch", `"works"`, "check its peers"}},
		{"used name", func(c *server.Config) { c.Name = "a" }, []string{"`a` is already joined", "another name"}},
		{"tier", func(c *server.Config) { c.Tier = "fast" }, []string{`no tier "fast"; the cluster was made with the tiers default: choose`}},
		{"failure domain", func(c *server.Config) { c.FailureDomain = map[string]string{"rack": "7"} }, []string{"missing failure domain names: DC"}},
		{"older version", func(c *server.Config) { c.Version = "0.0.1" }, []string{"version 0.0.1 is older than the cluster"}},
		{"newer version", func(c *server.Config) { c.Version = "9.9.0" }, []string{"version 9.9.0 does not go with"}},
	} {
		cfg := good()
		x.change(&cfg)
		k.refused(k.startWith(t.Context(), "b", cfg), x.parts...)
	}

	// A wrong token is no answer: it may be the other side that is mended.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := good()
	cfg.JoinToken = "fedcba9876543210"
	cfg.Logger = slog.New(logWatcher{text: "refuses this instance", call: cancel})
	err := k.startWith(ctx, "b", cfg)
	k.refused(err, "join tokens differ", k.address("a"))

	if err := k.startWith(t.Context(), "b", good()); err != nil {
		t.Fatal(err)
	}
	k.awaitOn("a", "two instances", func(s *meta.State) bool { return len(membersOf(s)) == 2 && metaVoters(s) == 2 })
	k.kill("b")

	// What cannot be changed at a restart.
	for _, x := range []struct {
		long   bool
		change func(c *server.Config)
		parts  []string
	}{
		{false, func(c *server.Config) { c.Cluster = "other" }, []string{`cluster is called "works", not "other"`}},
		{true, func(c *server.Config) { c.Name = "q" }, []string{`instance is called "b", not "q"`}},
		{true, func(c *server.Config) { c.Tier = "fast" }, []string{`of tier "default", not "fast"`}},
		{true, func(c *server.Config) { c.FailureDomain = nil }, []string{"missing failure domain names: DC"}},
		{true, func(c *server.Config) { c.Version = "9.9.0" }, []string{"version 9.9.0 does not go with"}},
		{false, func(c *server.Config) { c.Raft = "q:7071"; c.Network = k.net.Endpoint("q:7071") }, []string{"known to the others as b:7071, not q:7071"}},
	} {
		if x.long && !form.Is(form.Long) {
			continue
		}
		cfg := good()
		x.change(&cfg)
		k.refused(k.startWith(t.Context(), "b", cfg), x.parts...)
	}
	cfg = good()
	cfg.FailureDomain = map[string]string{"DC": "3", "RACK": "1"} // keys may come, values may change
	if err := k.startWith(t.Context(), "b", cfg); err != nil {
		t.Fatal(err)
	}

	// The next major version follows the last one before it, which it has to name.
	next := cluster.JoinRequest{UUID: "11111111-1111-4111-8111-111111111111", Name: "c", Tier: server.DefaultTier,
		RaftAddress: k.address("c"), Domain: []meta.Label{{Key: "DC", Value: "3"}, {Key: "RACK", Value: "1"}}, Version: meta.Version{Major: 1}}
	end := k.answer("c")
	defer end()
	admit := func() (err error) {
		k.eventually("an answer that is not for want of a leader", func() bool {
			_, err = k.server("a").Membership.Admit(t.Context(), &next)
			return !errors.Is(err, protocol.StatusUnavailable)
		})
		return err
	}
	k.refused(admit(), "version 1.0.0 does not go with")
	next.LastOfPreviousMajor = k.server("a").Meta.State().ClusterVersion()
	if err := admit(); err != nil {
		t.Error(err)
	}
}

// TestCopiedFolder: two processes with copies of one folder are not two instances.
func TestCopiedFolder(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances, and one twice")
	t.Parallel()
	k := newClusterKit(t, 1)
	k.must("a")
	k.must("b", "a")
	k.awaitOn("a", "two instances", balanced(2, 2, 1))
	cfg := k.config("b", "a")
	k.refused(k.startWith(t.Context(), "b", cfg), "") // the address is taken
	k.disk("copy").SetMetadata(k.disk("b").Metadata())
	cfg = k.config("copy", "a")
	cfg.Name = "b"
	k.refused(k.startWith(t.Context(), "copy", cfg), "known to the others as b:7071, not copy:7071", "new folder")
	// A copy of the identity alone, at the right address: its log is missing.
	k.kill("b")
	cfg = k.config("copy", "a")
	cfg.Name, cfg.Raft, cfg.Network = "b", k.address("b"), k.net.Endpoint(k.address("b"))
	k.refused(k.startWith(t.Context(), "copy", cfg), "the meta shard's log is missing")
	k.must("b")
	k.awaitOn("a", "two instances", balanced(2, 2, 1))
}

// crash starts an instance and takes its power away once what it knows about itself is so.
func (k *clusterKit) crash(name string, when func(id cluster.Identity) bool, peers ...string) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	var ended sync.WaitGroup
	var err error
	ended.Go(func() { err = k.startWith(ctx, name, k.config(name, peers...)) })
	k.eventually("the step to crash after", func() bool { return when(k.identity(name)) })
	k.partition(name)
	k.disk(name).PowerLoss()
	cancel()
	ended.Wait()
	if err == nil { // it was faster
		k.kill(name)
		return
	}
	k.disk(name).PowerBack()
	k.forget(name)
}

// answer has a process answer at an instance's address that others reach, and does nothing else.
func (k *clusterKit) answer(name string) (end func()) {
	k.t.Helper()
	cfg := k.config(name)
	m, err := peer.New(peer.Config{Advertise: k.address(name), Network: k.net.Endpoint(k.address(name)),
		Tokens: [][]byte{[]byte(cfg.JoinToken)}, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = m.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return func() { _ = m.Close() }
}

// TestCrashWhileJoining: after a crash at any step the process becomes the same one instance.
func TestCrashWhileJoining(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance joins many times")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.must("a")
	for _, x := range []struct {
		what string
		when func(id cluster.Identity) bool
	}{
		{"it has an identity", func(id cluster.Identity) bool { return id.UUID != "" }},
		{"it was taken in", func(id cluster.Identity) bool { return id.Instance != 0 }},
		{"its replica runs", func(id cluster.Identity) bool { return id.MetaLogged != 0 }},
	} {
		k.crash("b", x.when, "a")
	}
	k.must("b", "a")
	k.awaitOn("b", "two instances", func(s *meta.State) bool { return len(s.Instances()) == 2 && metaVoters(s) == 2 })

	// Taken in, and the answer never arrived.
	end := k.answer("c")
	if _, err := k.server("a").Membership.Admit(t.Context(), &cluster.JoinRequest{
		UUID: "11111111-1111-4111-8111-111111111111", Name: "c", Tier: server.DefaultTier, Address: "127.0.0.1:1",
		RaftAddress: k.address("c"), Version: k.server("a").Meta.State().ClusterVersion(),
	}); err != nil {
		t.Fatal(err)
	}
	end()
	if err := cluster.SaveIdentity(diskStore{k.disk("c")},
		cluster.Identity{UUID: "11111111-1111-4111-8111-111111111111", RaftAddress: k.address("c")}); err != nil {
		t.Fatal(err)
	}
	k.must("c", "b")
	k.awaitOn("c", "three instances", balanced(3, 3, 3))
}

// TestFounderCrashes: the instance that is to make the cluster dies between the decision and the
// deed, or right after; there is one cluster in the end.
func TestFounderCrashes(t *testing.T) {
	form.SkipUntil(t, form.Full, "many clusters begin")
	t.Parallel()
	for _, x := range []struct {
		what string
		when func(id cluster.Identity) bool
	}{
		{"decided", func(id cluster.Identity) bool { return id.Founder }},
		{"logged", func(id cluster.Identity) bool { return id.MetaLogged != 0 }},
		{"founded", func(id cluster.Identity) bool { return id.Cluster != "" }},
	} {
		t.Run(x.what, func(t *testing.T) {
			k := newClusterKit(t, 3)
			errs := make(chan error, 2)
			for _, n := range []string{"b", "c"} {
				go func() { errs <- k.start(n, "a", "b", "c") }()
			}
			k.crash("a", x.when, "a", "b", "c") // the least address
			k.must("a", "c")
			for range 2 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range k.names() {
				k.awaitOn(n, "one cluster of three", balanced(3, 3, 3))
			}
		})
	}
}

// TestPeerLists: lists that name oneself, or only some; and, once there is a cluster, nobody.
func TestPeerLists(t *testing.T) {
	form.SkipUntil(t, form.Full, "many lists, each with a cluster of its own")
	t.Parallel()
	k := newClusterKit(t, 3)
	errs := make(chan error, 3)
	for n, peers := range map[string][]string{"a": {"b"}, "b": {"b", "c"}, "c": {"c", "b"}} {
		go func() { errs <- k.start(n, peers...) }()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range k.names() {
		k.awaitOn(n, "one cluster of three", balanced(3, 3, 3))
	}
	for _, n := range k.names() {
		k.eventually(n+" to know the two others, and to keep no peers", func() bool {
			id := k.identity(n)
			return len(id.Peers) == 0 && len(id.Known) == 2
		})
	}
	k.must("d", "nobody", "d", "b")
	k.awaitOn("d", "one cluster of four", func(s *meta.State) bool { return len(s.Instances()) == 4 })
	if err := k.start("z", "z"); err == nil || !strings.Contains(err.Error(), "names nobody but this instance") {
		t.Errorf("an instance whose only peer is itself: %v", err)
	}
}

// diskStore keeps an instance's identity on a disk in memory.
type diskStore struct{ disk *replica.MemoryDisk }

func (d diskStore) Load() ([]byte, error) { return d.disk.Metadata(), nil }
func (d diskStore) Save(b []byte) error   { d.disk.SetMetadata(b); return nil }

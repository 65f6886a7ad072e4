package integration

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// clusterKit is instances in one process, on a network and disks in memory, in real time.
type clusterKit struct {
	t     *testing.T
	net   *memorynet.Network
	disks map[string]*replica.MemoryDisk
	mu    sync.Mutex
	run   map[string]*instance
	rf    int

	change func(name string, c *server.Config) // may be nil
}

// kits bounds how many clusters there are at a time. The race detector makes each ten times slower: of more of them on
// two processors, none gets enough to hear its own heartbeats.
var kits = make(chan struct{}, map[bool]int{false: 8, true: 2}[form.Race])

func newClusterKit(t *testing.T, rf int) *clusterKit {
	kits <- struct{}{}
	t.Cleanup(func() { <-kits })
	k := &clusterKit{t: t, net: memorynet.New(), disks: map[string]*replica.MemoryDisk{}, run: map[string]*instance{}, rf: rf}
	t.Cleanup(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		var all sync.WaitGroup
		for _, s := range k.run {
			all.Go(func() { _ = s.Close() })
		}
		all.Wait()
	})
	return k
}

func (k *clusterKit) address(name string) string { return name + ":7071" }

// config is an instance's on its disk.
func (k *clusterKit) config(name string, peers ...string) server.Config {
	cfg := server.Config{
		Listen: port.ForTest(k.t), Admin: server.Off, Raft: k.address(name), Name: name, Disk: k.disk(name),
		Network: k.net.Endpoint(k.address(name)), JoinToken: "0123456789abcdef", Shards: 2, Buckets: 64,
		RTT: 25 * time.Millisecond, ReplicationFactor: k.rf, Logger: clusterLog().With("instance", name), OfflineAfter: 2 * time.Second,
	}
	for _, p := range peers {
		cfg.Peers = append(cfg.Peers, k.address(p))
	}
	if k.change != nil {
		k.change(name, &cfg)
	}
	return cfg
}

// start starts an instance, or starts it again on its disk.
func (k *clusterKit) start(name string, peers ...string) error {
	return k.startWith(k.t.Context(), name, k.config(name, peers...))
}

// startLimit bounds a start, which may take seconds on a busy machine. Without it, one that waits for an instance that
// it cannot reach would end with the package's time, and say nothing.
const startLimit = 2 * time.Minute

// startWith starts an instance with a configuration. The error says which one it is, and what its start waited for.
func (k *clusterKit) startWith(ctx context.Context, name string, cfg server.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, err := startServer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("instance %s: %w", name, err)
	}
	k.mu.Lock()
	k.run[name] = s
	k.mu.Unlock()
	return nil
}

// startAll starts several at once, all with the same peers.
func (k *clusterKit) startAll(names ...string) {
	k.t.Helper()
	errs := make(chan error, len(names))
	for _, n := range names {
		go func() { errs <- k.start(n, names...) }()
	}
	for range names {
		if err := <-errs; err != nil {
			k.t.Fatal(err)
		}
	}
}

// await waits until every instance that runs sees what in the map.
func (k *clusterKit) await(what string, f func(s *meta.State) bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), eventLimit)
	defer cancel()
	for name, s := range k.run {
		if err := s.Governor.Await(ctx, f); err != nil {
			k.t.Fatalf("%s does not see %s: %v\n%s", name, what, err, describeState(s.Meta.State()))
		}
	}
}

// logFlag is for somebody who looks for a fault.
var logFlag = flag.Bool("log", false, "print the logs of the instances of clusters")

// clusterLog is silent without -log.
func clusterLog() *slog.Logger {
	if !*logFlag {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func describeState(s *meta.State) (text string) {
	for _, i := range s.Instances() {
		text += fmt.Sprintf("instance %d %s current %v target %v (%s) replicaset %d\n", i.ID, i.Name, i.Current,
			i.Target, i.Reason, i.Replicaset)
	}
	for _, x := range append([]meta.Shard{s.MetaShard()}, s.Shards()...) {
		text += fmt.Sprintf("shard %d replicaset %d ready %v master %d want %d replicas %+v\n", x.ID, x.Replicaset,
			x.Ready, x.Master, x.TargetMaster, x.Replicas)
	}
	for _, r := range s.Replicasets() {
		text += fmt.Sprintf("replicaset %+v\n", r)
	}
	for _, t := range s.Tiers() {
		text += fmt.Sprintf("tier %+v\n", t)
	}
	return text
}

// stable reports whether every shard has rf voters, all there, with a master, and that buckets are
// assigned.
func stable(rf, instances int) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		if len(s.Instances()) != instances || len(s.Shards()) == 0 || len(s.Tiers()) == 0 ||
			!s.Tiers()[0].Bootstrapped || len(s.Moves()) > 0 {
			return false
		}
		for _, i := range s.Instances() {
			if i.Current != i.Target || i.Current.Variant != meta.Online {
				return false
			}
		}
		for _, x := range s.Shards() {
			voters := 0
			for _, r := range x.Replicas {
				if r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter {
					voters++
				}
			}
			if voters != rf || !x.Ready || x.Master == 0 || x.Master != x.TargetMaster {
				return false
			}
		}
		return true
	}
}

package servertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Cluster is instances under test that form one cluster, in one process: real servers on disks in
// memory, over a network in memory between them. Clients connect over real sockets.
//
// It runs in real time: elections and failure detection do. Instances are numbered from 0, in the
// order of Addrs.
//
// Its methods are safe for concurrent use. Those that stop or start something may fail the test, so
// only the test's own goroutine may call them.
type Cluster struct {
	t         testing.TB // nil for NewCluster
	net       *memorynet.Network
	instances []*Server

	mu      sync.Mutex
	cuts    map[[2]int]bool // from, to: cut by the test
	killing map[int]bool    // instances that are being killed
}

// clusterRoundTrip is the raft engine's unit of time in a cluster: an election takes 10 to 20 of
// them. It lets a busy machine send its heartbeats in time.
const clusterRoundTrip = 10 * time.Millisecond

// offlineAfter is how soon the cluster moves on without an instance.
const offlineAfter = time.Second

// readyTimeout bounds the wait until a cluster works, on machines that are busy with many tests.
const readyTimeout = 2 * time.Minute

// StartCluster runs n instances until the test ends, each shard on up to three of them. It returns
// when all are Online and every shard has its replicas and a master. The options apply to each
// instance. Config may tell the instances apart by the name that it finds: "i0", "i1" and so on.
func StartCluster(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	c := newCluster(t, n, opts)
	t.Cleanup(c.Close)
	c.open()
	return c
}

// NewCluster runs a cluster outside a test, for examples and programs. It panics if the cluster
// does not start. The caller closes it.
func NewCluster(n int, opts ...Option) *Cluster {
	c := newCluster(nil, n, opts)
	c.open()
	return c
}

func newCluster(t testing.TB, n int, opts []Option) *Cluster {
	c := &Cluster{t: t, net: memorynet.New(), cuts: make(map[[2]int]bool), killing: make(map[int]bool)}
	var peers []string // one instance is a cluster of its own
	for i := range n {
		if n > 1 {
			peers = append(peers, raftAddress(i))
		}
	}
	for i := range n {
		own := []Option{RealTime(), func(o *options) { o.rtt = clusterRoundTrip }, Config(func(cfg *server.Config) {
			cfg.Name, cfg.Raft, cfg.Peers, cfg.JoinToken = fmt.Sprintf("i%d", i), raftAddress(i), peers,
				"servertest-join-token"
			cfg.Network = c.net.Endpoint(raftAddress(i))
			cfg.ReplicationFactor, cfg.OfflineAfter = min(3, n), offlineAfter
		})}
		s := newServer(t, append(own, opts...))
		s.setPlugged = func(in bool) { c.setPlugged(i, in) }
		c.instances = append(c.instances, s)
	}
	return c
}

func raftAddress(i int) string { return fmt.Sprintf("i%d:7071", i) }

// open starts all instances at once: none is ready before the others are.
func (c *Cluster) open() {
	for _, s := range c.instances {
		var err error
		if s.proxy, err = newProxy(); err != nil {
			c.fail("take an address: %v", err)
			return
		}
	}
	if err := c.each(func(s *Server) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.launch()
	}); err != nil {
		c.fail("start: %v", err)
		return
	}
	c.WaitReady()
}

// each calls f for all instances at once.
func (c *Cluster) each(f func(*Server) error) (first error) {
	errs := make(chan error, len(c.instances))
	for _, s := range c.instances {
		go func() { errs <- f(s) }()
	}
	for range c.instances {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Size is the number of instances, running or not.
func (c *Cluster) Size() int { return len(c.instances) }

// Instance is one instance, for faults of it alone: its clients' connections can be dropped, and it
// can be made unreachable for clients. It cannot be advanced.
func (c *Cluster) Instance(i int) *Server { return c.instances[i] }

// Addrs are the addresses for clients, which stay the same for the life of c.
func (c *Cluster) Addrs() []string {
	list := make([]string, len(c.instances))
	for i, s := range c.instances {
		list[i] = s.Addr()
	}
	return list
}

// Kill ends an instance abruptly. What it had not synced to its disk is lost.
func (c *Cluster) Kill(i int) { c.instances[i].Kill() }

// Stop stops an instance as an operator would: it transfers its leaderships, answers requests in
// progress, and sends clients a goodbye.
func (c *Cluster) Stop(i int) { c.instances[i].Stop() }

// Restart starts an instance again on its data and addresses. It returns when the instance is
// Online, which needs most of the others.
func (c *Cluster) Restart(i int) { c.instances[i].Restart() }

// Cut stops all traffic between two instances. Clients are not affected. Traffic waits, as on a
// real network, until the cut is healed or its sender gives up.
func (c *Cluster) Cut(i, j int) { c.set(i, j, true); c.set(j, i, true) }

// CutOneWay stops traffic from one instance to another.
func (c *Cluster) CutOneWay(from, to int) { c.set(from, to, true) }

// Isolate cuts an instance off from all others.
func (c *Cluster) Isolate(i int) {
	for j := range c.instances {
		if j != i {
			c.Cut(i, j)
		}
	}
}

// Heal ends what cuts two instances off from each other.
func (c *Cluster) Heal(i, j int) { c.set(i, j, false); c.set(j, i, false) }

// HealAll ends all cuts between instances.
func (c *Cluster) HealAll() {
	for i := range c.instances {
		for j := range i {
			c.Heal(i, j)
		}
	}
}

func (c *Cluster) set(from, to int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[[2]int{from, to}] = cut
	c.apply(from, to)
}

// apply sets the network between two instances. mu is held.
func (c *Cluster) apply(from, to int) {
	if c.cuts[[2]int{from, to}] || c.killing[from] || c.killing[to] {
		c.net.Cut(raftAddress(from), raftAddress(to))
	} else {
		c.net.Heal(raftAddress(from), raftAddress(to))
	}
}

// setPlugged connects an instance with the others, or cuts it off and loses what is in flight.
func (c *Cluster) setPlugged(i int, in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for j := range c.instances {
		if j != i && in {
			c.net.Reset(raftAddress(i), raftAddress(j))
		}
	}
	c.killing[i] = !in
	for j := range c.instances {
		if j != i {
			c.apply(i, j)
			c.apply(j, i)
		}
	}
}

// Shards are the ids of the data shards, in order.
func (c *Cluster) Shards() []uint64 {
	var ids []uint64
	if s := c.anyRunning(); s != nil {
		for _, x := range s.Parts().Meta.State().Shards() {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

// Leader is the instance that serves a data shard as its master. It waits for one while an election
// is under way, and fails the test after two minutes. An instance that is cut off may take itself
// for the master for a while; Leader then returns the first of several.
func (c *Cluster) Leader(shard uint64) int {
	return c.first(fmt.Sprintf("shard %d", shard), func(p server.Parts) bool {
		d := p.Hosting.Shards.Get(shard)
		return d != nil && d.Replica().Leading()
	})
}

// Governor is the instance that leads the meta shard. It waits for one as Leader does.
func (c *Cluster) Governor() int {
	return c.first("the meta shard", func(p server.Parts) bool { return p.Meta.Leading() })
}

func (c *Cluster) first(what string, leads func(server.Parts) bool) int {
	for end := time.Now().Add(readyTimeout); ; time.Sleep(pollInterval) {
		for i, s := range c.instances {
			if run := s.running(); run != nil && leads(run.Parts()) {
				return i
			}
		}
		if time.Now().After(end) {
			c.fail("nobody leads %s", what)
			return -1
		}
	}
}

func (c *Cluster) anyRunning() *server.Server {
	for _, s := range c.instances {
		if run := s.running(); run != nil {
			return run
		}
	}
	return nil
}

// Await waits until f is true of the cluster map as every running instance has it; what describes
// it for the failure. It fails the test after two minutes.
func (c *Cluster) Await(what string, f func(*meta.State) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for i, s := range c.instances {
		run := s.running()
		if run == nil {
			continue
		}
		if err := run.Parts().Governor.Await(ctx, f); err != nil {
			c.fail("instance %d does not see %s: %v", i, what, err)
			return
		}
	}
}

// WaitReady waits until exactly the running instances are Online, one of them governs, and every
// shard has all its voting replicas on them and a leading master. A cluster of three that lost one
// is ready with two.
func (c *Cluster) WaitReady() {
	runs := make(map[string]bool)
	for i, s := range c.instances {
		if s.Running() {
			runs[fmt.Sprintf("i%d", i)] = true
		}
	}
	c.Await("a cluster that works", func(s *meta.State) bool { return isReady(s, runs) })
	c.Governor()
	for _, x := range c.Shards() {
		c.Leader(x)
	}
}

// isReady reports whether the map is as it should be with the named instances.
func isReady(s *meta.State, runs map[string]bool) bool {
	if len(s.Shards()) == 0 || len(s.Moves()) > 0 {
		return false
	}
	for _, t := range s.Tiers() {
		if t.Buckets > 0 && !t.Bootstrapped && slices.ContainsFunc(s.Instances(),
			func(i meta.Instance) bool { return i.Tier == t.ID }) {
			return false
		}
	}
	online := make(map[uint64]bool)
	there := 0
	for _, i := range s.Instances() {
		if i.Expelled() {
			continue
		}
		on := i.Current.Variant == meta.Online
		if i.Current != i.Target || on != runs[i.Name] {
			return false
		}
		online[i.ID] = on
		if on {
			there++
		}
	}
	if there != len(runs) {
		return false // not admitted yet
	}
	for _, x := range s.Shards() {
		if !x.Ready || x.Master == 0 || x.Master != x.TargetMaster || !online[x.Master] {
			return false
		}
		for _, r := range x.Replicas {
			if r.Role != r.TargetRole {
				return false
			}
		}
	}
	return true
}

// Close ends all instances for good. StartCluster registers it as a cleanup of the test.
func (c *Cluster) Close() {
	_ = c.each(func(s *Server) error {
		if s.proxy != nil {
			s.Close()
		}
		return nil
	})
}

func (c *Cluster) fail(format string, args ...any) { fail(c.t, format, args...) }

// running is the server as it runs now, nil if it does not.
func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

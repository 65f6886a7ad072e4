package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// eventLimit bounds waits for what must happen, on a machine however slow.
const eventLimit = 3 * time.Minute

// must starts an instance, or starts it again.
func (k *clusterKit) must(name string, peers ...string) *instance {
	k.t.Helper()
	if err := k.start(name, peers...); err != nil {
		k.t.Fatal(err)
	}
	return k.server(name)
}

// mustAll starts several at once, each with the same peers.
func (k *clusterKit) mustAll(names []string, peers ...string) {
	k.t.Helper()
	errs := make(chan error, len(names))
	for _, n := range names {
		go func() { errs <- k.start(n, peers...) }()
	}
	for range names {
		if err := <-errs; err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *clusterKit) server(name string) *instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.run[name]
}

func (k *clusterKit) names() (list []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n := range k.run {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

func (k *clusterKit) disk(name string) *replica.MemoryDisk {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disks[name] == nil {
		k.disks[name] = replica.NewMemoryDisk()
	}
	return k.disks[name]
}

// kill stops instances as a power loss does: nothing is drained, and what was not synced is
// gone.
func (k *clusterKit) kill(names ...string) {
	k.t.Helper()
	var all sync.WaitGroup
	for _, n := range names {
		k.partition(n)
	}
	for _, n := range names {
		s, disk := k.server(n), k.disk(n)
		k.mu.Lock()
		delete(k.run, n)
		k.mu.Unlock()
		all.Go(func() {
			disk.PowerLoss()
			_ = s.Close()
			disk.PowerBack()
		})
	}
	all.Wait()
	for _, n := range names {
		k.forget(n)
	}
}

// partition keeps what an instance says from now on from arriving anywhere: a process on a disk
// without power would acknowledge what is lost. Forget loses it for good.
func (k *clusterKit) partition(name string) { k.eachOther(name, k.net.CutBoth) }

func (k *clusterKit) forget(name string) {
	k.eachOther(name, k.net.Reset)
	k.eachOther(name, k.net.HealBoth)
}

func (k *clusterKit) eachOther(name string, f func(a, b string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for o := range k.disks {
		if o != name {
			f(k.address(name), k.address(o))
		}
	}
}

// isolate cuts an instance off from others, in both directions; k.net heals.
func (k *clusterKit) isolate(name string, others ...string) {
	for _, o := range others {
		k.net.CutBoth(k.address(name), k.address(o))
	}
}

// awaitOn waits until one instance sees what in the map.
func (k *clusterKit) awaitOn(name, what string, f func(s *meta.State) bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), eventLimit)
	defer cancel()
	s := k.server(name)
	if err := s.Governor.Await(ctx, f); err != nil {
		plan, _ := s.Member.FetchPlan(context.Background())
		k.t.Fatalf("%s does not see %s: %v\n%s\n%s\n%s", name, what, err, describeState(s.Meta.State()), plan, k.reports())
	}
}

// reports is what each instance that runs says of its replicas.
func (k *clusterKit) reports() (text string) {
	for _, name := range k.names() {
		s := k.server(name)
		for _, r := range s.Host.Report() {
			text += fmt.Sprintf("%s (instance %d) %+v\n", name, s.Instance(), r)
		}
		for _, d := range s.Serving.Shards.All() {
			text += fmt.Sprintf("%s shard %d %+v\n", name, d.ID(), d.Replica().Stats())
		}
	}
	return text
}

// eventually waits for something that no map shows.
func (k *clusterKit) eventually(what string, f func() bool) {
	k.t.Helper()
	await.True(k.t, what, f)
}

// identity is what an instance has on its disk about itself.
func (k *clusterKit) identity(name string) (id cluster.Identity) {
	_ = json.Unmarshal(k.disk(name).Metadata(), &id)
	return id
}

// instanceNamed finds the record of an instance in a map, an expelled one's too.
func instanceNamed(s *meta.State, name string) (found meta.Instance) {
	for _, i := range s.Instances() {
		if i.Name == name {
			found = i
		}
	}
	return found
}

// membersOf lists the members that are not expelled.
func membersOf(s *meta.State) (list []meta.Instance) {
	for _, i := range s.Instances() {
		if !i.Expelled() {
			list = append(list, i)
		}
	}
	return list
}

// metaVoters counts those that vote in the meta shard for good.
func metaVoters(s *meta.State) (n int) {
	for _, r := range s.MetaShard().Replicas {
		if r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter {
			n++
		}
	}
	return n
}

// balanced reports whether n instances are Online, that the meta shard has the votes that it should
// and a copy on every instance, that every replicaset has its shards with full votes and masters,
// and that nothing moves.
func balanced(n, votes, rf int) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		list := membersOf(s)
		if len(list) != n || metaVoters(s) != votes || len(s.MetaShard().Replicas) != n || len(s.Moves()) > 0 {
			return false
		}
		for _, i := range list {
			if i.Current != i.Target || i.Current.Variant != meta.Online {
				return false
			}
		}
		return served(s, rf)
	}
}

// twoHalves is a cluster of two instances, a and b, each with half of the buckets, alone.
func twoHalves(t *testing.T) *clusterKit {
	t.Helper()
	k := newClusterKit(t, 1)
	k.must("a")
	k.must("b", "a")
	evenly := divided(32, 32)
	for _, name := range k.names() {
		k.awaitOn(name, "the buckets divided", func(s *meta.State) bool { return balanced(2, 2, 1)(s) && evenly(s) })
	}
	k.mapFollowed()
	return k
}

// mapFollowed waits until every instance has the newest map and routes by it.
func (k *clusterKit) mapFollowed() {
	k.t.Helper()
	k.eventually("the map on all instances", func() bool {
		newest := uint64(0)
		for _, name := range k.names() {
			newest = max(newest, k.server(name).Meta.State().MapVersion())
		}
		for _, name := range k.names() {
			if k.server(name).Requests.Routes().State.MapVersion() != newest {
				return false
			}
		}
		return true
	})
}

// served reports whether every shard has a master and the votes that its replicaset's size allows.
func served(s *meta.State, rf int) bool {
	if len(s.Shards()) == 0 || !s.Tiers()[0].Bootstrapped {
		return false
	}
	size := map[uint64]int{}
	for _, i := range membersOf(s) {
		size[i.Replicaset]++
	}
	for _, r := range s.Replicasets() {
		if r.Phase == meta.NotReady && size[r.ID] >= rf {
			return false
		}
	}
	for _, x := range s.Shards() {
		votes := 0
		for _, r := range x.Replicas {
			if r.Role != r.TargetRole {
				return false
			}
			if r.Role == meta.RoleVoter {
				votes++
			}
		}
		full := min(size[x.Replicaset], 5)
		if full == 4 {
			full = 3
		}
		if votes != full || len(x.Replicas) != size[x.Replicaset] || !x.Ready || x.Master == 0 || x.Master != x.TargetMaster {
			return false
		}
	}
	return true
}

// refused checks that a start ends with a clear error.
func (k *clusterKit) refused(err error, parts ...string) {
	k.t.Helper()
	if err == nil {
		k.t.Fatalf("started; expected an error with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			k.t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// node makes a coordination node, which every shard must take part in.
func (k *clusterKit) node(on, path string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), eventLimit)
	defer cancel()
	config := protocol.DefaultNodeConfig()
	if _, err := k.server(on).Governor.CreateNode(ctx, &protocol.NodeCreate{Path: path, Config: config}); err != nil {
		k.t.Fatal(fmt.Errorf("make node %s: %w", path, err))
	}
}

// instanceNames are names for n instances.
func instanceNames(n int) (list []string) {
	for i := range n {
		list = append(list, string(rune('a'+i)))
	}
	return list
}

// shares counts the buckets of each shard.
func shares(s *meta.State) map[uint64]int {
	n := map[uint64]int{}
	for _, x := range s.Shards() {
		n[x.ID] = 0
	}
	for _, r := range s.Tiers()[0].Runs {
		n[r.Shard] += int(r.Count)
	}
	return n
}

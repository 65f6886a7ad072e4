package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// watched opens a stream over a semaphore at this instance, and gives the data of its snapshot;
// empty: the instance cannot serve it now, or does not have the semaphore yet.
func (c *raw) watched(shard, node uint64, name string) (data string) {
	c.t.Helper()
	b := c.bucket(node, name)
	id := c.send(protocol.KindWatch, b, &protocol.Watch{Shard: shard, Node: node, Name: []byte(name)})
	if err := c.reply(protocol.KindWatch, id, nil); err != nil {
		if !errors.Is(err, protocol.StatusUnavailable) {
			c.t.Fatalf("a watch of %s in shard %d: %v", name, shard, err)
		}
		return ""
	}
	var s protocol.Snapshot
	h := c.find("a snapshot", func(h protocol.Header) bool { return h.Kind == protocol.KindSnapshot && h.ID == id })
	if err := protocol.DecodeBody(&s, h.Body); err != nil {
		c.t.Fatal(err)
	}
	c.must(protocol.KindUnwatch, b, &protocol.Unwatch{WatchID: id}, nil)
	for i := range s.Semaphores {
		data = string(s.Semaphores[i].Data)
	}
	return data
}

// TestRestartedReplica: a replica that was started again, and hears the cluster map but not its
// shard's leader, neither shows what was before, nor denies a node that it has not heard of, nor
// keeps back that another is gone. When all are started again, all serve watches soon.
func TestRestartedReplica(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances, cut off and started again; servertest.TestCutOffReplica has one cut")
	// Alone: beside others an instance may be started so late that it waits for those it is cut off from.
	k := newClusterKit(t, 3)
	// One that the others have marked offline could not come back without them.
	k.change = func(_ string, c *server.Config) { c.Shards, c.OfflineAfter = 3, 5*time.Minute }
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	ctx, cancel := context.WithTimeout(t.Context(), 3*eventLimit)
	defer cancel()
	others, behind := []string{"a", "b"}, "c"
	if k.server(behind).Meta.Leading() {
		others, behind = []string{"a", "c"}, "b"
	}
	cl, err := client.Dial(ctx, k.server(others[0]).Addr(), k.server(others[1]).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseWithoutRelease)
	grace := 30 * time.Second // far longer than the restart takes
	makeNode := func(path string) *admin.NodeInfo {
		info, err := admin.Nodes(cl).Create(ctx, path, admin.NodeConfig{GracePeriod: &grace})
		if errors.Is(err, client.ErrAlreadyExists) { // the answer was lost: nobody else makes nodes
			info, err = admin.Nodes(cl).Describe(ctx, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	node := makeNode("/watched").ID
	s, err := cl.Session(ctx, "/watched", client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	at := connect(t, k.server(behind))
	names := make(map[uint64]string) // a semaphore of each shard
	for _, id := range at.s.shardIDs() {
		names[id] = at.nameIn(node, id, "")
		if err := s.Create(ctx, names[id], 1, []byte("data 0")); err != nil {
			t.Fatal(err)
		}
	}
	fresh := "data 0"
	// round restarts the replica, and looks at what it says while it hears nothing of its shard.
	round := func(n int) (silent bool) {
		stale := fresh
		fresh = fmt.Sprint("data ", n)
		gone := makeNode(fmt.Sprint("/gone-", n)).ID
		at.nodeInfo(fmt.Sprint("/gone-", n))
		for id, name := range names {
			k.eventually("the data at all replicas", func() bool { return at.watched(id, node, name) == stale })
		}

		k.kill(behind)
		for _, name := range names {
			if _, err := s.Update(ctx, name, []byte(fresh)); err != nil {
				t.Fatal(err)
			}
		}
		made := makeNode(fmt.Sprint("/new-", n)).ID
		if _, err := admin.Nodes(cl).Delete(ctx, fmt.Sprint("/gone-", n), admin.DeleteOptions{Force: true, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		shard, leader := uint64(0), "" // not the instance that leads the meta shard
		leads := func() bool { x := k.server(leader); return x.leads(shard) && !x.Meta.Leading() }
		epoch := func() uint64 { return k.server(leader).Serving.Shards.Get(shard).Replica().Stats().Epoch }
		led := uint64(0)
		k.eventually("a shard whose leader does not govern", func() bool {
			for shard = range names {
				for _, leader = range others {
					if leads() {
						k.isolate(behind, leader)
						led = epoch()
						return true
					}
				}
			}
			return false
		})
		started := make(chan error, 1)
		go func() { started <- k.start(behind) }()
		// It comes online by the instance that governs: if that is now the one it is cut off from, never.
		k.eventually("the start, or another governor", func() bool { return len(started) > 0 || k.server(leader).Meta.Leading() })
		cut := len(started) > 0
		if !cut {
			k.net.HealAll()
		}
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		at = connect(t, k.server(behind))
		if !cut {
			return false
		}
		name := names[shard]
		process := func(node uint64) error {
			name, b := "", uint64(0)
			for i := 0; name == "" || at.s.shardAt(0, b).ID() != shard; i++ {
				name = fmt.Sprint("process-", i)
				b = uint64(protocol.ProcessBucket(node, []byte(name), at.s.Config.Buckets))
			}
			return at.call(protocol.KindProcessWatch, b, &protocol.ProcessWatch{Node: node, Name: []byte(name)}, nil)
		}
		if data := at.watched(shard, node, name); data == stale {
			t.Error("a watch begins with what was there before the restart")
		}
		if r, err := at.describe(node, name, protocol.Relaxed); err == nil && string(r.Data) == stale {
			t.Error("a describe shows what was there before the restart")
		}
		known, unknown := process(node), process(made)
		if silent = leads() && epoch() == led; silent { // no other one has led meanwhile
			if !errors.Is(known, protocol.StatusUnavailable) {
				t.Errorf("a watch of a process: %v", known)
			}
			if !errors.Is(unknown, protocol.StatusUnavailable) {
				t.Errorf("a watch of a process in a new node: %v", unknown)
			}
		}
		k.eventually("the answer that a node was dropped", func() bool {
			return errors.Is(process(gone), protocol.StatusNotFound)
		})
		at.fails(protocol.StatusNotFound, protocol.KindWatch, at.bucket(gone, "x"),
			&protocol.Watch{Shard: shard, Node: gone, Name: []byte("x")})
		k.net.HealAll()
		k.eventually("the watch to begin with the fresh data", func() bool {
			data := at.watched(shard, node, name)
			if data == stale {
				t.Fatal("a watch begins with old data")
			}
			return data == fresh
		})
		k.eventually("the watch of a process in the new node", func() bool { return process(made) == nil })
		return silent
	}
	for n := 1; !round(n); n++ { // an election that nothing here caused gave the shard, or the map, another leader
		t.Log("another leader after round ", n)
	}

	all := k.names()
	k.kill(all...)
	k.mustAll(all)
	for _, instance := range all {
		at := connect(t, k.server(instance))
		for id, name := range names {
			k.eventually("watches everywhere", func() bool { return at.watched(id, node, name) == fresh })
		}
	}
}

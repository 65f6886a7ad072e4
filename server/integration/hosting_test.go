package integration

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestVoteOfShardMoves: a vote in every shard goes to an instance that is farther from the others.
// The replica that had it is taken off an instance that lives on, its data are removed, another one
// takes its place there, and clients notice nothing.
func TestVoteOfShardMoves(t *testing.T) {
	form.SkipUntil(t, form.Full, "four instances; governor.TestScripts has the plan")
	t.Parallel()
	k := newClusterKit(t, 4)
	k.change = func(name string, c *server.Config) {
		c.FailureDomain = map[string]string{"DC": name}
		if name == "d" {
			c.FailureDomain["RACK"] = "1"
		}
	}
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances with three votes in every shard", func(s *meta.State) bool {
		for _, x := range s.Shards() {
			votes := 0
			for _, r := range x.Replicas {
				if r.Role == meta.RoleVoter {
					votes++
				}
			}
			if votes != 3 {
				return false
			}
		}
		return len(s.Shards()) > 0 && len(s.Instances()) == 3 && metaVoters(s) == 3
	})
	k.must("d", "a") // now it can have a vote only if it takes one
	d := k.server("d").Instance()
	k.awaitOn("a", "a vote of the one that is farther", func(s *meta.State) bool {
		for _, x := range s.Shards() {
			if r, ok := x.On(d); !ok || r.Role != meta.RoleVoter {
				return false
			}
		}
		return balanced(4, 3, 4)(s)
	})
	replaced := 0
	for _, n := range k.names() {
		s := k.server(n)
		for _, x := range s.Meta.State().Shards() {
			var r meta.Replica
			k.eventually(n+" to run its replica", func() bool {
				now, _ := s.Meta.State().Shard(x.ID)
				r, _ = now.On(s.Instance())
				e := s.Serving.Shards.Get(x.ID)
				return e != nil && e.ReplicaID == r.Replica
			})
			if r.Replica > 4 {
				replaced++
			}
		}
		k.eventually(n+" to remove the data of what it has not any more", func() bool {
			return !slices.ContainsFunc(s.Host.Report(), func(g replica.GroupReport) bool { return g.Removed }) &&
				len(s.Host.StoredReplicas()) == 3
		})
	}
	if replaced == 0 {
		t.Error("no replica was replaced: the test has seen nothing")
	}
	k.kill("b")
	k.must("b")
	k.awaitOn("b", "four instances", balanced(4, 3, 4))
}

// TestReadsAfterAReplacedReplica: the loop that reads a connection asks the replica that is hosted
// now, and not one that it asked before.
func TestReadsAfterAReplacedReplica(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	home := s.shardAt(0, c.homeBucket(id16(1)))
	var id uint64
	for _, d := range s.Serving.Shards.All() {
		if d.ID() != home.ID() {
			id = d.ID()
		}
	}
	session := c.session(node, 1)
	name := c.nameIn(node, id, "svc")
	b := c.bucket(node, name)
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(session.Session), Name: []byte(name), Limit: 1}, nil)
	look := func() {
		t.Helper()
		for _, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed} {
			if _, err := c.describe(node, name, consistency); err != nil {
				t.Fatalf("%v: %v", consistency, err)
			}
		}
	}
	look()
	if err := s.Hosting.CloseShard(s.Serving.Shards.Get(id)); err != nil {
		t.Fatal(err)
	}
	if err := s.Governor.SetReplicationFactor(t.Context(), 0, 2); err != nil { // any change of the map
		t.Fatal(err)
	}
	await.True(t, "the replica to be started again and to lead", func() bool {
		d := s.Serving.Shards.Get(id)
		return d != nil && d.Replica().Leading() && s.shardAt(0, b) == d
	})
	look()
	c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(session.Session), Name: []byte(name), Data: []byte("new")}, nil)
	if r, err := c.describe(node, name, protocol.Relaxed); err != nil || string(r.Data) != "new" {
		t.Errorf("a relaxed read after a change gives %q, %v", r.Data, err)
	}
}

// TestStreamsEndWithReplica: who watches on an instance that loses its replica is told, with no
// session there that would have its connection closed.
func TestStreamsEndWithReplica(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	b := c.bucket(node, "svc")
	d := s.shardAt(0, b)
	for _, prefix := range []bool{false, true} {
		c.must(protocol.KindWatch, b, &protocol.Watch{Shard: d.ID(), Node: node, Name: []byte("svc"), Prefix: prefix}, nil)
		c.event(protocol.KindSnapshot, nil)
	}
	_ = s.Hosting.CloseShard(d)
	for range 2 {
		var cut protocol.StreamCut
		if c.event(protocol.KindStreamCut, &cut); cut.Status != protocol.StatusWrongShard {
			t.Errorf("a stream is cut with %+v", cut)
		}
	}
	// A request may have found the shard before.
	hub, name := d.Hubs(), []byte("svc")
	for what, err := range map[string]error{
		"a stream":           hub.Semaphores.Open(1, 1, &protocol.Watch{Shard: d.ID(), Node: node, Name: name}, 10),
		"a one-shot watch":   hub.Semaphores.OneShot(1, 0, node, name, protocol.WatchData, 2, 10),
		"one over a process": hub.Processes.Open(1, 3, node, name, struct{}{}, 10),
		"one over a track":   hub.Tracks.Open(1, 4, node, name, delivery.TrackFilter{}, 10),
	} {
		if !errors.Is(err, protocol.StatusWrongShard) {
			t.Errorf("%s of a closed shard: %v", what, err)
		}
	}
}

// TestExpelUnderLoad: clients of an instance that is expelled go on elsewhere, without an error.
func TestExpelUnderLoad(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances under load")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	var addresses []string
	for _, n := range k.names() {
		addresses = append(addresses, k.server(n).Addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := client.Dial(ctx, addresses...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.Session(ctx, "/default", client.Timeout(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	errs := make(chan error, 8)
	for n := range 8 {
		running.Go(func() {
			for calls := 0; ; calls++ {
				lease, err := session.Acquire(ctx, fmt.Sprintf("job-%d", n), client.Exclusive())
				if err == nil {
					err = lease.Release(ctx)
				}
				if err != nil {
					errs <- fmt.Errorf("call %d of job-%d: %w", calls, n, err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	a := k.server("a")
	if _, err := a.Governor.Expel(ctx, a.Instance(), true); err != nil { // the founder, and the governor
		t.Fatal(err)
	}
	k.awaitOn("b", "two instances that work", balanced(2, 2, 2))
	k.stopped("a")
	close(stop)
	running.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// TestAskedWhileItStarts: an instance that waits for a majority of the meta shard answers what the
// governor asks about its replicas.
func TestAskedWhileItStarts(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance waits for a majority")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	state := k.server("a").Meta.State()
	x := state.Shards()[0]
	i, _ := state.Instance(x.Master)
	k.kill("a", "b", "c")

	other, err := peer.New(peer.Config{
		Advertise: "governor:7071", Listen: "governor:7071", Network: k.net.Endpoint("governor:7071"), Tokens: [][]byte{[]byte("0123456789abcdef")},
		Cluster: func() string { return state.Cluster() }, Logger: clusterLog(),
	})
	if err != nil {
		t.Fatal(err)
	}
	service := cluster.New(cluster.Config{
		Transport: other, Local: noReplicas{}, State: func() *meta.State { return state },
		Now: replica.SystemClock().Now, Refusals: func() []string { return nil }, Logger: clusterLog(),
	})
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })

	started := make(chan error, 1)
	go func() { started <- k.start(i.Name) }()
	k.eventually("an answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := service.Groups().Members(ctx, x.ID)
		return err != nil && strings.Contains(err.Error(), "no replica of this shard runs here") // data shards follow the meta shard
	})
	for _, name := range []string{"a", "b", "c"} {
		if name != i.Name {
			go func() { started <- k.start(name) }()
		}
	}
	for range 3 {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	if n := k.server(i.Name).Peers.Stats().Panics.Load(); n != 0 {
		t.Errorf("%d calls met a defect", n)
	}
}

// noReplicas is an instance that runs none.
type noReplicas struct{ cluster.Local }

func (noReplicas) Report() map[uint64]governor.ShardReport { return nil }

// TestMissingShardLog: a replica that votes and whose log is gone does not start: it would vote
// twice.
func TestMissingShardLog(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	b := k.server("b")
	d := b.Serving.Shards.All()[0]
	if err := b.Host.StopShard(d.ID()); err != nil {
		t.Fatal(err)
	}
	if err := b.Host.RemoveData(t.Context(), d.ID(), d.ReplicaID); err != nil {
		t.Fatal(err)
	}
	k.kill("b")
	k.refused(k.start("b"), fmt.Sprintf("shard %d's log is missing", d.ID()), "expel this instance")
}

// TestReplicaIsTriedAgain: a replica that cannot be started is started when it can, with no further
// change of the map.
func TestReplicaIsTriedAgain(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance tries again")
	t.Parallel()
	k := newClusterKit(t, 1)
	s := k.must("a")
	k.awaitOn("a", "an instance that works", balanced(1, 1, 1))
	id, number := s.Serving.Shards.All()[0].ID(), s.Serving.Shards.All()[0].ReplicaID
	counters := func() int { return reflect.ValueOf(s.Metrics).Elem().FieldByName("replies").Len() }
	before := counters()
	// The engine runs it, so that it cannot be started. Who follows the map may be faster.
	k.eventually("the replica to run unknown to who follows the map", func() bool {
		if d := s.Serving.Shards.Get(id); d != nil {
			if err := s.Hosting.CloseShard(d); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Host.StartShard(replica.ShardConfig{ID: id, Replica: number, Sink: noSink{}})
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), eventLimit)
	defer cancel()
	if err := s.Governor.SetReplicationFactor(ctx, 0, 2); err != nil { // any change of the map
		t.Fatal(err)
	}
	k.eventually("the map to be followed", func() bool { return s.Requests.Routes().State.Revision() == s.Meta.State().Revision() })
	if s.Serving.Shards.Get(id) != nil {
		t.Fatal("a replica was started twice")
	}
	if err := s.Host.StopShard(id); err != nil {
		t.Fatal(err)
	}
	k.eventually("the replica to be started again", func() bool { return s.Serving.Shards.Get(id) != nil })
	if n := counters(); n != before {
		t.Errorf("%d counters of replies are kept, %d were: those of a shard end with it, or with its failed start", n, before)
	}
}

// noSink is for a replica that serves nobody.
type noSink struct{ replica.Sink }

func (noSink) Applied(*replica.Shard, uint64, []replica.Origin, *shard.Events) {}
func (noSink) LeaderChanged(*replica.Shard, uint64, bool)                      {}

// TestLeaderMessagesAreQueuedWhenSent: a message between leaders of this instance is in its
// receiver's queue, or dropped, when the call returns. There is no place between, which a clock
// that a test moves would not wait for.
func TestLeaderMessagesAreQueuedWhenSent(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	d := s.Serving.Shards.All()[0]
	for n := range uint64(20) {
		shardhost.Local{Hosting: s.Hosting}.LeaderMessage(d.ID(), d.ID()+1, make([]byte, leader.MaxMessage+1))
		if got := d.Replica().Stats().MessagesDropped; got != n+1 {
			t.Fatalf("%d messages above the size limit were dropped when %d had been sent", got, n+1)
		}
	}
	if got := s.Hosting.DroppedMessages(); got != 20 {
		t.Errorf("%d are counted", got)
	}
}

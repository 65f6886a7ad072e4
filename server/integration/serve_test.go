package integration

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestServes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	c.ping()
	node := c.node()
	r := c.session(node, 1)
	if r.Session == 0 || r.Epoch != 1 || r.Shard == 0 || r.Timeout != c.timeout() ||
		r.Grace != protocol.DefaultGracePeriod || len(r.Ticket) == 0 {
		t.Fatalf("session start was answered %+v", r)
	}
	a, err := c.lock(node, r.Session, "a", 0)
	if err != nil || a.State != protocol.Acquired || a.OrderID == 0 {
		t.Fatalf("acquire: %+v, %v", a, err)
	}
	for _, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed, protocol.ConsistencyDefault} {
		d, err := c.describe(node, "a", consistency)
		if err != nil || len(d.Owners) != 1 || d.Owners[0].Session != r.Session || d.Owners[0].OrderID != a.OrderID || !d.Ephemeral {
			t.Fatalf("describe: %+v, %v", d, err)
		}
	}

	other := connect(t, s)
	r2 := other.session(node, 2)
	a2, err := other.lock(node, r2.Session, "a", 60_000)
	if err != nil || a2.State != protocol.Queued {
		t.Fatalf("second acquire: %+v, %v", a2, err)
	}
	if err := c.unlock(node, r.Session, "a"); err != nil {
		t.Fatal(err)
	}
	var result protocol.AcquireResult
	other.event(protocol.KindAcquireResult, &result)
	if result.Session != r2.Session || result.Seq != 1 || result.State != protocol.Acquired || result.OrderID != a2.OrderID {
		t.Fatalf("hand-off came as %+v", result)
	}
	other.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(r2.Session)),
		&protocol.SessionStop{Session: r2.Session, Epoch: 1}, nil)
	var ended protocol.SessionEnded
	other.event(protocol.KindSessionEnded, &ended)
	if ended.Session != r2.Session || ended.Reason != protocol.EndStopped {
		t.Fatalf("end came as %+v", ended)
	}
	if _, err := other.lock(node, r2.Session, "a", 0); !errors.Is(err, protocol.StatusSessionExpired) {
		t.Fatalf("acquire after the stop: %v", err)
	}
	if _, err := other.lock(node, 12345, "a", 0); !errors.Is(err, protocol.StatusSessionExpired) {
		t.Fatalf("acquire on a session that never was: %v", err)
	}
	await.True(t, "the ephemeral semaphore to go", func() bool {
		_, err := c.describe(node, "a", protocol.Strict)
		return errors.Is(err, protocol.StatusNotFound)
	})
}

func TestSemaphoreRequests(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	name := []byte("config")
	b := c.bucket(node, "config")
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: name, Limit: 3, Data: []byte("one")}, nil)
	c.fails(protocol.StatusAlreadyExists, protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: name, Limit: 3})
	var u protocol.UpdateReply
	c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: name, Data: []byte("two"), Expected: 1}, &u)
	if u.Version != 2 {
		t.Fatalf("version after the update is %d", u.Version)
	}
	c.must(protocol.KindResize, b, &protocol.Resize{Head: c.head(r.Session), Name: name, Limit: 5}, nil)
	d, err := c.describe(node, "config", protocol.Strict)
	if err != nil || d.Limit != 5 || string(d.Data) != "two" || d.Version != 2 {
		t.Fatalf("describe: %+v, %v", d, err)
	}
	var list protocol.ListReply
	shard := s.shardAt(0, b).ID()
	c.must(protocol.KindList, b, &protocol.List{Shard: shard, Node: node}, &list)
	if len(list.Semaphores) != 1 || string(list.Semaphores[0].Name) != "config" {
		t.Fatalf("list: %+v", list)
	}
	c.fails(protocol.StatusWrongShard, protocol.KindList, b, &protocol.List{Shard: shard + 100, Node: node})
	c.fails(protocol.StatusWrongShard, protocol.KindDescribe, 1<<40, &protocol.Describe{Node: node, Name: name})
	var info protocol.SessionInfo
	c.must(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionDescribe{Session: r.Session, Node: node}, &info)
	if info.State != protocol.SessionAttached || info.Description != "raw" || info.Client != c.nc.LocalAddr().String() {
		t.Fatalf("session: %+v", info)
	}
	var sessions protocol.SessionListReply
	c.must(protocol.KindSessionList, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionList{Shard: r.Shard, Node: node}, &sessions)
	if len(sessions.Sessions) != 1 {
		t.Fatalf("sessions: %+v", sessions)
	}
	c.must(protocol.KindDelete, b, &protocol.Delete{Head: c.head(r.Session), Name: name}, nil)
	c.fails(protocol.StatusNotFound, protocol.KindDelete, b, &protocol.Delete{Head: c.head(r.Session), Name: name})
}

func TestNodesAndMap(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	var m protocol.MapReply
	c.must(protocol.KindMap, 0, &protocol.MapRequest{}, &m)
	if len(m.Shards) != 2 || len(m.Tiers) != 1 || m.Tiers[0].Buckets != 16 || len(m.Instances) != 1 || m.Instances[0].Address != s.Addr() {
		t.Fatalf("map: %+v", m)
	}
	for _, sh := range m.Shards {
		if sh.Master != 1 {
			t.Fatalf("shard without master: %+v", sh)
		}
	}
	var same protocol.MapReply
	c.must(protocol.KindMap, 0, &protocol.MapRequest{Known: m.Version}, &same)
	if same.Version != m.Version || len(same.Shards) != 0 {
		t.Fatalf("map with a known version: %+v", same)
	}
	var info protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/a/b"}, &info)
	c.fails(protocol.StatusAlreadyExists, protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/a/b"})
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/a/b", Config: protocol.NodeConfig{
		Fields: protocol.FieldReadConsistency, ReadConsistency: protocol.Strict,
	}}, &info)
	if info.Config.ReadConsistency != protocol.Strict {
		t.Fatalf("altered: %+v", info)
	}
	var list protocol.NodeListReply
	c.must(protocol.KindNodeList, 0, &protocol.NodeList{Prefix: "/a"}, &list)
	if len(list.Nodes) != 2 {
		t.Fatalf("nodes: %+v", list)
	}
	r := c.session(info.ID, 9)
	c.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/a/b", Force: true, Reason: "test"}, nil)
	var ended protocol.SessionEnded
	c.event(protocol.KindSessionEnded, &ended)
	if ended.Session != r.Session || ended.Reason != protocol.EndNodeDropped {
		t.Fatalf("end: %+v", ended)
	}
	c.fails(protocol.StatusNotFound, protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/a/b"})
}

func TestStream(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	b := c.bucket(node, "svc")
	w := &protocol.Watch{Shard: s.shardAt(0, b).ID(), Node: node, Name: []byte("svc")}
	id := c.send(protocol.KindWatch, b, w)
	if h, err := c.next(); err != nil || h.Kind != protocol.KindWatch|protocol.KindReply {
		t.Fatalf("the reply does not come first: %v, %v", h.Kind, err)
	}
	var snap protocol.Snapshot
	if h := c.event(protocol.KindSnapshot, &snap); h.ID != id || !snap.First || !snap.Last || len(snap.Semaphores) != 0 {
		t.Fatalf("snapshot: %+v", snap)
	}
	if _, err := c.lock(node, r.Session, "svc", 0); err != nil {
		t.Fatal(err)
	}
	var delta protocol.Delta
	c.event(protocol.KindDelta, &delta)
	if string(delta.Name) != "svc" || delta.Index <= snap.Index || len(delta.Changes) == 0 {
		t.Fatalf("delta: %+v", delta)
	}
	c.must(protocol.KindUnwatch, b, &protocol.Unwatch{WatchID: id}, nil)
}

func TestOneShotWatch(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	b := c.bucket(node, "cfg")
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: []byte("cfg"), Limit: 1}, nil)
	for i, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed} {
		m := &protocol.Describe{Session: r.Session, Node: node, Name: []byte("cfg"), Flags: protocol.WatchData,
			WatchID: uint64(70 + i), Consistency: consistency}
		c.must(protocol.KindDescribe, b, m, &protocol.DescribeReply{})
		c.must(protocol.KindUpdate, b, &protocol.Update{Head: c.head(r.Session), Name: []byte("cfg"), Data: []byte{byte(i)}}, nil)
		var f protocol.WatchFired
		c.event(protocol.KindWatchFired, &f)
		if f.WatchID != uint64(70+i) || f.Session != r.Session || !f.DataChanged || f.OwnersChanged {
			t.Fatalf("fired: %+v", f)
		}
	}
	c.fails(protocol.StatusSessionExpired, protocol.KindDescribe, b,
		&protocol.Describe{Session: 99, Node: node, Name: []byte("cfg"), Flags: protocol.WatchData})
}

package integration

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// startAt starts a session on a path.
func (c *raw) startAt(path string, n uint64) (r protocol.SessionReply, err error) {
	c.t.Helper()
	m := &protocol.SessionStart{Path: path, CreateID: id16(n), Key: id16(n), Timeout: c.timeout(), Description: "raw", Nonce: n + 1}
	err = c.call(protocol.KindSessionStart, c.homeBucket(m.CreateID), m, &r)
	return r, err
}

// TestStartByPath: a start may name the node by its path. The log has the node's id, so the same
// start by the id is a repeat.
func TestStartByPath(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := dial(t, s)
	var hello protocol.HelloReply
	c.must(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version}, &hello)
	r, err := c.startAt(client.DefaultNode, 1)
	if err != nil {
		t.Fatal(err)
	}
	node := c.node()
	if r.Node != node || r.ReadConsistency != protocol.Relaxed || r.Grace != protocol.DefaultGracePeriod {
		t.Errorf("reply is %+v; the node is %d", r, node)
	}
	if again := c.session(node, 1); again.Session != r.Session || again.Node != node {
		t.Errorf("sent again by the id it is %+v, want session %d", again, r.Session)
	}
	if again, err := c.startAt(client.DefaultNode, 1); err != nil || again.Session != r.Session {
		t.Errorf("sent again by the path it is %+v, %v, want session %d", again, err, r.Session)
	}
	if _, err := c.lock(node, r.Session, "x", 0); err != nil {
		t.Error(err)
	}
	a, err := connect(t, s).attach(node, 1, r.Session, 2)
	if err != nil || a.Node != node || a.ReadConsistency != protocol.Relaxed {
		t.Errorf("attach is answered %+v, %v", a, err)
	}
	if _, err := c.startAt("/missing", 2); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("on a node that is not there: %v", err)
	}
	if _, err := c.startAt("default", 2); !errors.Is(err, protocol.StatusBadRequest) {
		t.Errorf("on what is no path: %v", err)
	}
	c.fails(protocol.StatusBadRequest, protocol.KindSessionStart, c.homeBucket(id16(2)), &protocol.SessionStart{
		Path: client.DefaultNode, Node: node, CreateID: id16(2), Key: id16(2), Timeout: 10_000, Nonce: 1})
}

// TestStartByPathNeedsTheRight: a client that may not read a node learns nothing from a start on
// its path.
func TestStartByPathNeedsTheRight(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	boss := as(t, s, rootSecret)
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/a"}, &protocol.NodeInfo{})
	alice := as(t, s, issue(t, root, "alice"))
	for _, path := range []string{"/a", "/missing", client.DefaultNode} {
		if _, err := alice.startAt(path, 1); !errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s without a right was answered %v", path, err)
		}
	}
	grant(t, root, "alice", "/a", "read")
	await.True(t, "the right", func() bool { _, err := alice.startAt("/a", 1); return err == nil })
	if _, err := alice.startAt(client.DefaultNode, 2); !errors.Is(err, protocol.StatusForbidden) {
		t.Errorf("another node was answered %v", err)
	}
}

// TestMapComesAfterCredentials: the request for the map may come with the hello, and is answered
// only if that is.
func TestMapComesAfterCredentials(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	send := func(secret string) (kinds []protocol.Kind) {
		c := dial(t, s)
		b := protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
			&protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Token: []byte(secret)})
		c.write(protocol.AppendFrame(b, protocol.KindMap, 2, 0, &protocol.MapRequest{}))
		for len(kinds) < 2 {
			h, err := c.next()
			if err != nil {
				return kinds
			}
			if kinds = append(kinds, h.Kind); h.Kind == protocol.KindHello|protocol.KindReply && h.Arg != 0 {
				kinds[len(kinds)-1] = protocol.KindHello // refused
			}
		}
		return kinds
	}
	if got := send(rootSecret); got[0] != protocol.KindHello|protocol.KindReply || got[1] != protocol.KindMap|protocol.KindReply {
		t.Errorf("good credentials were answered %v", got)
	}
	if got := send("wrong"); len(got) != 2 || got[0] != protocol.KindHello || got[1] != protocol.KindGoodbye {
		t.Errorf("wrong credentials were answered %v", got)
	}
}

// helloStart is a hello, a request for the map, and a start on a path, as a client sends them that
// opens a session. The requests have the ids 1, 2 and 3.
func helloStart(path string, n uint64) []byte {
	b := protocol.AppendFrame(nil, protocol.KindHello, 1, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version})
	b = protocol.AppendFrame(b, protocol.KindMap, 2, 0, &protocol.MapRequest{})
	return protocol.AppendFrame(b, protocol.KindSessionStart, 3, protocol.HomeOfCreateID, &protocol.SessionStart{
		Path: path, CreateID: id16(n), Key: id16(n), Timeout: 10_000, Nonce: 1})
}

// TestStartWithHello: the start of a session may come with the hello. The server finds its home.
func TestStartWithHello(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	writes := s.Transport.Metrics.Writes.Get
	together := 0                     // all three answers were one write
	for n := uint64(1); n <= 8; n++ { // at home in either shard
		before := writes()
		c := dial(t, s)
		c.write(helloStart(client.DefaultNode, n))
		var r protocol.SessionReply
		for id, m := range []protocol.Message{&protocol.HelloReply{}, &protocol.MapReply{}, &r} {
			kind := []protocol.Kind{protocol.KindHello, protocol.KindMap, protocol.KindSessionStart}[id]
			h, err := c.next()
			if err != nil || h.Kind != kind|protocol.KindReply || h.ID != uint64(id+1) || h.Arg != 0 || protocol.DecodeBody(m, h.Body) != nil {
				t.Fatalf("answer %d is %+v, %v", id, h, err)
			}
		}
		if writes() == before+1 {
			together++
		}
		bucket := c.homeBucket(id16(n))
		if got := uint64(protocol.SessionBucket(r.Session)); got != bucket || r.Shard != s.shardAt(0, bucket).ID() {
			t.Errorf("the session is at home in bucket %d of shard %d, want bucket %d", got, r.Shard, bucket)
		}
		if _, err := c.lock(r.Node, r.Session, "x", protocol.Forever); err != nil {
			t.Error(err)
		}
	}
	if together == 0 && !isOverTLS(t) { // a busy machine may take longer than the answers wait
		t.Error("no two answers came together")
	}
	c := dial(t, s)
	c.write(helloStart("/missing", 9))
	c.nextID = 3
	if err := c.reply(protocol.KindSessionStart, 3, nil); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("on a node that is not there: %v", err)
	}
	c.must(protocol.KindMap, 0, &protocol.MapRequest{}, &protocol.MapReply{})
}

// TestStartWithHelloInCluster: the start is refused where another instance serves its home, and the
// client starts the session there. While the log cannot answer, the hello and the map are answered.
func TestStartWithHelloInCluster(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances; TestStartWithHello has one")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	answered := map[protocol.Status]int{}
	var leader string
	var led uint64 // a start at home there
	for n := uint64(1); n <= 8; n++ {
		for _, name := range k.names() {
			c := dial(t, k.server(name))
			c.write(helloStart(client.DefaultNode, n))
			err := c.reply(protocol.KindSessionStart, 3, &protocol.SessionReply{})
			if err == nil {
				answered[protocol.StatusOK]++
				leader, led = name, n
			} else {
				answered[protocol.StatusOf(err)]++
			}
		}
	}
	if ok, wrong := answered[protocol.StatusOK], answered[protocol.StatusWrongShard]; ok < 4 || wrong < 8 ||
		ok+wrong+answered[protocol.StatusUnavailable] != 24 { // leaders may still move
		t.Fatalf("starts were answered %v", answered)
	}
	for _, name := range k.names() {
		s, err := client.OpenSession(t.Context(), client.Config{Endpoints: []string{k.server(name).Addr()}}, client.DefaultNode)
		if err != nil {
			t.Fatalf("through %s: %v", name, err)
		}
		if l, err := s.Acquire(t.Context(), "lock", client.Exclusive()); err != nil {
			t.Error(err)
		} else if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Client().Close(); err != nil {
			t.Error(err)
		}
	}
	// Who could not know where the home is, is not charged for it.
	var slow protocol.NodeInfo
	c := connect(t, k.server("a"))
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/slow",
		Config: protocol.NodeConfig{Fields: protocol.FieldMaxRequests, MaxRequests: 1}}, &slow)
	for _, name := range k.names() {
		s := k.server(name)
		await.True(t, "the quota", func() bool { return s.Requests.Routes().Rates[slow.ID] != nil })
		for n := uint64(1); n <= 8; n++ {
			if s.shardAt(0, c.homeBucket(id16(n))).LedElsewhere() {
				for range 50 {
					x := dial(t, s)
					x.write(helloStart("/slow", n))
					if err := x.reply(protocol.KindSessionStart, 3, nil); !errors.Is(err, protocol.StatusWrongShard) {
						t.Fatalf("a start on a node with a quota: %v", err)
					}
				}
				break
			}
		}
	}
	k.partition(leader)
	c = dial(t, k.server(leader))
	c.write(helloStart(client.DefaultNode, led))
	c.find("the answer to the hello", func(h protocol.Header) bool { return h.ID == 1 })
	c.find("the map", func(h protocol.Header) bool { return h.ID == 2 })
}

// TestStartLooksUpWithoutACopy: the node of a start is looked up in the cluster's state, which is
// copied when it has changed and not for each look. What was seen before stays as it was.
func TestStartLooksUpWithoutACopy(t *testing.T) {
	s := start(t, nil)
	before := s.Meta.State()
	revision := before.Revision()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := s.Governor.DescribeNode(client.DefaultNode); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a look allocates %v times", n)
	}
	if _, err := s.Governor.CreateNode(t.Context(), &protocol.NodeCreate{Path: "/new"}); err != nil {
		t.Fatal(err)
	}
	if _, there := s.Meta.State().NodeAt("/new"); !there {
		t.Error("the new node is not seen")
	}
	if _, there := before.NodeAt("/new"); there || before.Revision() != revision {
		t.Errorf("what was seen at revision %d has changed to revision %d", revision, before.Revision())
	}
}

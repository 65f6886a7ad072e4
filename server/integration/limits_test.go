package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestConfiguredLimits: each limit is answered with its status and named.
func TestConfiguredLimits(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) {
		c.Limits.MaxData, c.Limits.MaxSessionsPerConnection = 100, 2
		c.Limits.MaxWatchers, c.Limits.MaxStreams, c.Limits.MaxWatches = 2, 3, 1
	})
	c := connect(t, s)
	node := c.node()
	a, b := c.session(node, 1), c.session(node, 2)
	limited := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, protocol.StatusOverloaded) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want one that names %q", err, name)
		}
	}

	// Data is judged before the session.
	big := make([]byte, 101)
	for _, session := range []uint64{a.Session, 77} {
		head := protocol.Head{Session: session, Seq: 1, Low: 1}
		c.fails(protocol.StatusBadRequest, protocol.KindAcquire, c.bucket(node, "a"),
			&protocol.Acquire{Head: head, Name: []byte("a"), Count: 1, Data: big, Ephemeral: true})
		c.fails(protocol.StatusBadRequest, protocol.KindCreate, c.bucket(node, "a"),
			&protocol.Create{Head: head, Name: []byte("a"), Limit: 1, Data: big})
		c.fails(protocol.StatusBadRequest, protocol.KindUpdate, c.bucket(node, "a"),
			&protocol.Update{Head: head, Name: []byte("a"), Data: big})
	}

	c.must(protocol.KindCreate, c.bucket(node, "full"),
		&protocol.Create{Head: c.head(a.Session), Name: []byte("full"), Limit: 1, Data: big[:100]}, nil)

	start := &protocol.SessionStart{Node: node, CreateID: id16(3), Key: id16(3), Nonce: 3}
	limited("the limit of sessions per connection", c.call(protocol.KindSessionStart, c.homeBucket(start.CreateID), start, nil))
	if _, err := c.attach(node, 1, a.Session, 2); err != nil {
		t.Errorf("attach of a session that is among those of a full connection: %v", err)
	}

	seq := uint64(0)
	for _, name := range []string{"a", "b"} {
		seq++
		m := &protocol.Create{Head: protocol.Head{Session: b.Session, Seq: seq, Low: seq}, Name: []byte(name), Limit: 1}
		c.must(protocol.KindCreate, c.bucket(node, name), m, nil)
	}
	id := s.shardAt(0, c.bucket(node, "a")).ID()
	watch := &protocol.Watch{Shard: id, Node: node, Name: []byte("a")}
	c.must(protocol.KindWatch, c.bucket(node, "a"), watch, nil)
	once := func(c *raw, session uint64, name string, id uint64) error {
		m := &protocol.Describe{Session: session, Node: node, Name: []byte(name), Flags: protocol.WatchData, WatchID: id}
		return c.call(protocol.KindDescribe, c.bucket(node, name), m, &protocol.DescribeReply{})
	}
	if err := once(c, a.Session, "a", 1); err != nil {
		t.Fatal(err)
	}
	limited("one-shot watches per connection are limited to 1", once(c, b.Session, "a", 2))
	limited("watchers per semaphore are limited to 2", c.call(protocol.KindWatch, c.bucket(node, "a"), watch, nil))
	for _, prefix := range []string{"x", "y"} {
		c.must(protocol.KindWatch, c.bucket(node, "a"), &protocol.Watch{Shard: id, Node: node, Name: []byte(prefix), Prefix: true}, nil)
	}
	limited("streams per connection are limited to 3", c.call(protocol.KindWatch, c.bucket(node, "a"),
		&protocol.Watch{Shard: id, Node: node, Name: []byte("z"), Prefix: true}, nil))
}

// TestNodeChangesUnderWay: as many changes of nodes at a time as the limit says, and not one more.
func TestNodeChangesUnderWay(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.NodeOps = 2 })
	c := connect(t, s)
	create := func(path string) error {
		return c.call(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: path}, &protocol.NodeInfo{})
	}
	s.Requests.NodeOps <- struct{}{} // one that takes its time
	if err := create("/a"); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	await.True(t, "its end", func() bool { return len(s.Requests.NodeOps) == 1 })
	s.Requests.NodeOps <- struct{}{}
	if err := create("/b"); !errors.Is(err, protocol.StatusOverloaded) ||
		!strings.Contains(err.Error(), "requests of this kind are under way, the limit on each instance") {
		t.Errorf("one past the limit: %v", err)
	}
	c.nodeInfo("/a") // reading is no change
	list := func() error { return c.call(protocol.KindNodeList, 0, &protocol.NodeList{}, &protocol.NodeListReply{}) }
	if err := list(); err != nil {
		t.Errorf("a list beside changes: %v", err)
	}
	for range cap(s.Requests.NodeLists) {
		s.Requests.NodeLists <- struct{}{}
	}
	if err := list(); !errors.Is(err, protocol.StatusOverloaded) {
		t.Errorf("one list past the limit: %v", err)
	}
	c.must(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodStatus, Body: []byte("{}")}, &protocol.ClusterReply{})
	for range cap(s.Requests.NodeLists) {
		<-s.Requests.NodeLists
	}
	<-s.Requests.NodeOps
	if err := create("/b"); err != nil {
		t.Errorf("when one is done: %v", err)
	}
}

// TestSemaphoreSeries: what the metrics leave out, they say; no series comes twice.
func TestSemaphoreSeries(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.MaxSeries = 8; c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/default", Config: protocol.NodeConfig{
		Fields: protocol.FieldCountersMode, CountersMode: protocol.CountersDetailed,
	}}, &protocol.NodeInfo{})
	long := strings.Repeat("long", 100)
	read := func() (series map[string]string) {
		t.Helper()
		var out bytes.Buffer
		s.Metrics.WritePrometheus(&out)
		series = make(map[string]string)
		for line := range strings.Lines(out.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if !strings.HasPrefix(name, "signalbox_semaphore_") {
				continue
			}
			if _, twice := series[name]; twice {
				t.Errorf("%s comes twice", name)
			}
			series[name] = value
		}
		return series
	}
	r := c.session(node, 1)
	for i := range 2 { // names that differ behind what a label shows
		if _, err := c.lock(node, r.Session, fmt.Sprint(long, i), 0); err != nil {
			t.Fatal(err)
		}
	}
	series := read()
	if _, cut := series["signalbox_semaphore_series_truncated 1"]; cut || len(series) != 2*7+2*3+1 {
		t.Fatalf("%d series, %v", len(series), series)
	}
	detail := 0
	for name, value := range series {
		if strings.Contains(name, fmt.Sprintf("session=\"%d\"", r.Session)) && strings.Contains(name, "acquires") && value == "1" {
			detail++
		}
	}
	if detail != 2 {
		t.Errorf("%d counters of the owner session, want 2", detail)
	}
	for i := range 5 {
		if _, err := c.lock(node, r.Session, fmt.Sprint("more", i), 0); err != nil {
			t.Fatal(err)
		}
	}
	series = read()
	if _, cut := series["signalbox_semaphore_series_truncated 1"]; !cut || len(series) != 7*7+1*3+1 {
		t.Fatalf("%d series", len(series))
	}
}

// TestManyOwnersInMetrics: a semaphore with more owner sessions than are counted apart says so.
func TestManyOwnersInMetrics(t *testing.T) {
	form.SkipUntil(t, form.Full, "thousands of owners")
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.MaxSeries = 3 * 2 * shard.MaxSessionCounters; c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/default", Config: protocol.NodeConfig{
		Fields: protocol.FieldCountersMode, CountersMode: protocol.CountersDetailed,
	}}, &protocol.NodeInfo{})
	said := func() bool {
		var out bytes.Buffer
		s.Metrics.WritePrometheus(&out)
		return strings.Contains(out.String(), "signalbox_semaphore_series_truncated 1\n")
	}
	for i := range uint64(shard.MaxSessionCounters) {
		r := c.session(node, i+1)
		m := &protocol.Acquire{Head: protocol.Head{Session: r.Session, Seq: 1, Low: 1}, Name: []byte("crowd"), Count: 1, Ephemeral: true}
		c.must(protocol.KindAcquire, c.bucket(node, "crowd"), m, &protocol.AcquireReply{})
		if i == 2 && said() {
			t.Fatal("nothing is left out")
		}
	}
	if !said() {
		t.Error("the metrics do not say that they are cut")
	}
}

// TestQuotas: a node's quotas are refused with the quota's name, ephemeral semaphores count, and a
// raised quota holds at once.
func TestQuotas(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Shards = 1 }) // with more shards a small quota is not exact
	c := connect(t, s)
	quota := func(sessions, semaphores uint64) protocol.NodeConfig {
		return protocol.NodeConfig{
			Fields: protocol.FieldMaxSessions | protocol.FieldMaxSemaphores, MaxSessions: sessions, MaxSemaphores: semaphores,
		}
	}
	var info protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/small", Config: quota(2, 2)}, &info)
	node := info.ID
	r := c.session(node, 1)
	c.session(node, 2)
	third := &protocol.SessionStart{Node: node, CreateID: id16(3), Key: id16(3), Timeout: 10_000, Nonce: 3}
	begin := func() error {
		return c.call(protocol.KindSessionStart, c.homeBucket(third.CreateID), third, &protocol.SessionReply{})
	}
	refused := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, protocol.StatusPreconditionFailed) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want one that names %s", err, name)
		}
	}
	refused("max_sessions", begin())
	create := func(name string) error {
		return c.call(protocol.KindCreate, c.bucket(node, name),
			&protocol.Create{Head: c.head(r.Session), Name: []byte(name), Limit: 1}, nil)
	}
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	if err := create("b"); err != nil {
		t.Fatal(err)
	}
	refused("max_semaphores", create("c"))
	_, err := c.lock(node, r.Session, "d", 0)
	refused("max_semaphores", err)
	if err := c.unlock(node, r.Session, "a"); err != nil {
		t.Fatal(err)
	}
	if err := create("c"); err != nil {
		t.Errorf("after a release that deleted an ephemeral semaphore: %v", err)
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/small", Config: quota(3, 3)}, &info)
	if err := begin(); err != nil {
		t.Errorf("with a raised quota: %v", err)
	}
	if err := create("e"); err != nil {
		t.Errorf("with a raised quota: %v", err)
	}
}

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// tenants is a server with one shard, so that quotas are exact, and two nodes: /small, whose quotas
// are tried, and /default, whose clients must not notice.
type tenants struct {
	*testing.T
	s     *instance
	c     *raw // a client of the one
	other *raw // of the other
	small uint64
	node  uint64
	mine  protocol.SessionReply // in small
	yours protocol.SessionReply // in node
}

func newTenants(t *testing.T, change func(*server.Config)) *tenants {
	t.Helper()
	x := &tenants{T: t}
	x.s = start(t, func(c *server.Config) {
		c.Shards = 1
		if change != nil {
			change(c)
		}
	})
	x.c, x.other = connect(t, x.s), connect(t, x.s)
	var info protocol.NodeInfo
	x.c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/small"}, &info)
	x.small, x.node = info.ID, x.c.node()
	x.mine, x.yours = x.c.session(x.small, 1), x.other.session(x.node, 2)
	return x
}

// alter gives /small other quotas.
func (x *tenants) alter(c protocol.NodeConfig) {
	x.Helper()
	x.c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/small", Config: c}, &protocol.NodeInfo{})
}

// refused wants a refusal with this status and sentence, and the other node to go on as ever.
func (x *tenants) refused(want protocol.Status, sentence string, err error) {
	x.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), sentence) {
		x.Errorf("got %v, want %v: %s", err, want, sentence)
	}
	x.works(x.other, x.node, x.yours.Session)
}

// works has a client do a bit of everything that quotas are for.
func (x *tenants) works(c *raw, node, session uint64) {
	x.Helper()
	if r, err := c.lock(node, session, "work", 0); err != nil || r.State != protocol.Acquired {
		x.Errorf("a lock: %+v, %v", r, err)
	}
	if _, err := c.describe(node, "work", protocol.Strict); err != nil {
		x.Errorf("a read: %v", err)
	}
	if err := c.unlock(node, session, "work"); err != nil {
		x.Errorf("a release: %v", err)
	}
	m := &protocol.Watch{Shard: x.s.shardAt(0, c.bucket(node, "work")).ID(), Node: node, Name: []byte("work")}
	id := c.send(protocol.KindWatch, c.bucket(node, "work"), m)
	if err := c.reply(protocol.KindWatch, id, nil); err != nil {
		x.Errorf("a stream: %v", err)
	}
	if err := c.call(protocol.KindUnwatch, c.bucket(node, "work"), &protocol.Unwatch{WatchID: id}, nil); err != nil {
		x.Errorf("the end of a stream: %v", err)
	}
}

// metric is the value of a series of /small, or empty.
func (x *tenants) metric(name, quota string) string {
	var out bytes.Buffer
	x.s.Metrics.WritePrometheus(&out)
	for line := range strings.Lines(out.String()) {
		if v, ok := strings.CutPrefix(line, fmt.Sprintf("%s{node=%q,quota=%q} ", name, "/small", quota)); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (x *tenants) metrics(quota, used, limit, refused string) {
	x.Helper()
	for name, want := range map[string]string{"signalbox_node_used": used, "signalbox_node_quota": limit,
		"signalbox_node_refused_total": refused} {
		if got := x.metric(name, quota); got != want {
			x.Errorf("%s of %s is %q, want %q", name, quota, got, want)
		}
	}
}

// TestQuotasBeyondTheCap: of more nodes than have series, those are shown that alerts look at: one
// that a quota has refused something, and one with waiters, however many others come before them.
func TestQuotasBeyondTheCap(t *testing.T) {
	t.Parallel()
	x := newTenants(t, func(c *server.Config) { c.Limits.MaxSeries = 2 * 6 }) // two nodes, with six quotas each
	var waits, refused protocol.NodeInfo
	x.c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/waits"}, &waits)
	config := protocol.NodeConfig{Fields: protocol.FieldMaxSemaphores, MaxSemaphores: 1}
	x.c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/refused", Config: config}, &refused)
	holder, waiter := x.c.session(waits.ID, 3), x.c.session(waits.ID, 4)
	for _, session := range []uint64{holder.Session, waiter.Session} {
		if _, err := x.c.lock(waits.ID, session, "lock", protocol.Forever); err != nil {
			t.Fatal(err)
		}
	}
	mine := x.c.session(refused.ID, 5)
	if _, err := x.c.lock(refused.ID, mine.Session, "one", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := x.c.lock(refused.ID, mine.Session, "two", 0); !errors.Is(err, protocol.StatusPreconditionFailed) {
		t.Fatal(err)
	}
	text := scrape(x.s)
	for _, series := range []string{
		`signalbox_node_refused_total{node="/refused",quota="semaphores"} 1`,
		`signalbox_node_used{node="/waits",quota="waiters"} 1`,
		"signalbox_node_series_truncated 1",
	} {
		if !strings.Contains(text, "\n"+series+"\n") {
			t.Errorf("%s is not shown", series)
		}
	}
	if n := strings.Count(text, "\nsignalbox_node_refused_total{"); n != 2*6 {
		t.Errorf("%d series are shown", n)
	}
}

// TestQuotaOfBytes: at the quota, and one byte past it.
func TestQuotaOfBytes(t *testing.T) {
	t.Parallel()
	x := newTenants(t, nil)
	create := func(size int) error {
		m := &protocol.Create{Head: x.c.head(x.mine.Session), Name: []byte("a"), Limit: 1, Data: make([]byte, size)}
		return x.c.call(protocol.KindCreate, x.c.bucket(x.small, "a"), m, nil)
	}
	// A session with a description of 3 bytes, and a semaphore with a name of 1.
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxBytes, MaxBytes: 512 + 3 + 512 + 1 + 100})
	x.refused(protocol.StatusPreconditionFailed, "as its quota max_bytes of ", create(101))
	if err := create(100); err != nil {
		t.Errorf("at the quota: %v", err)
	}
	x.metrics("bytes", "1128", "1128", "1")
	_, err := x.c.lock(x.small, x.mine.Session, "b", 0)
	x.refused(protocol.StatusPreconditionFailed, "as its quota max_bytes of ", err)
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxBytes})
	x.works(x.c, x.small, x.mine.Session)
}

// TestQuotaOfWaiters: at the quota, and one more.
func TestQuotaOfWaiters(t *testing.T) {
	t.Parallel()
	x := newTenants(t, nil)
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxWaiters, MaxWaiters: 2})
	if _, err := x.c.lock(x.small, x.mine.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	var sessions []uint64
	for i := range uint64(3) {
		sessions = append(sessions, x.c.session(x.small, 10+i).Session)
	}
	wait := func(i int) error {
		r, err := x.c.lock(x.small, sessions[i], "a", protocol.Forever)
		if err == nil && r.State != protocol.Queued {
			return fmt.Errorf("%+v", r)
		}
		return err
	}
	for i := range 2 {
		if err := wait(i); err != nil {
			t.Fatal(err)
		}
	}
	x.refused(protocol.StatusOverloaded, "as its quota max_waiters of ", wait(2))
	x.metrics("waiters", "2", "2", "1")
	if err := x.c.unlock(x.small, sessions[0], "a"); err != nil {
		t.Fatal(err)
	}
	if err := wait(2); err != nil {
		t.Errorf("when another waiter has left: %v", err)
	}
}

// TestQuotaOfWatchers: streams over names, prefixes, processes and tracks, and one-shot watches,
// count together; with the connection they go.
func TestQuotaOfWatchers(t *testing.T) {
	t.Parallel()
	x := newTenants(t, nil)
	x.c.must(protocol.KindTrackCreate, x.c.bucket(x.small, "t"),
		&protocol.TrackCreate{Head: x.c.head(x.mine.Session), Name: []byte("t"), Config: protocol.TrackConfig{
			Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
		}}, nil)
	d := x.s.shardAt(0, x.c.bucket(x.small, "a"))
	process := uint64(protocol.ProcessBucket(x.small, []byte("p"), x.s.Config.Buckets))
	watches := []func(c *raw) error{
		func(c *raw) error {
			return c.call(protocol.KindWatch, c.bucket(x.small, "a"), &protocol.Watch{Shard: d.ID(), Node: x.small, Name: []byte("a")}, nil)
		},
		func(c *raw) error {
			return c.call(protocol.KindWatch, c.bucket(x.small, "a"),
				&protocol.Watch{Shard: d.ID(), Node: x.small, Name: []byte("a"), Prefix: true}, nil)
		},
		func(c *raw) error {
			return c.call(protocol.KindProcessWatch, process, &protocol.ProcessWatch{Node: x.small, Name: []byte("p")}, nil)
		},
		func(c *raw) error {
			return c.call(protocol.KindTrackWatch, c.bucket(x.small, "t"), &protocol.TrackWatch{Node: x.small, Name: []byte("t")}, nil)
		},
		func(*raw) error { // its session is on this connection
			m := &protocol.Describe{Session: x.mine.Session, Node: x.small, Name: []byte("t"), Flags: protocol.WatchData, WatchID: 7}
			return x.c.call(protocol.KindDescribe, x.c.bucket(x.small, "t"), m, &protocol.DescribeReply{})
		},
	}
	if err := watches[4](nil); !errors.Is(err, protocol.StatusNotFound) {
		t.Fatalf("%v: a track is no semaphore", err)
	}
	x.c.must(protocol.KindCreate, x.c.bucket(x.small, "t"),
		&protocol.Create{Head: x.c.head(x.mine.Session), Name: []byte("t"), Limit: 1}, nil)
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxWatchers, MaxWatchers: 5})
	for i, open := range watches {
		if err := open(x.c); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	x.metrics("watchers", "5", "5", "0")
	friend := connect(t, x.s)
	for _, open := range watches[:4] {
		x.refused(protocol.StatusOverloaded, "as its quota max_watchers allows, 5 in this shard", open(friend))
	}
	x.metrics("watchers", "5", "5", "4")
	if err := watches[4](nil); err != nil {
		t.Errorf("a one-shot watch in place of the session's older one: %v", err)
	}
	if _, err := x.c.lock(x.small, x.mine.Session, "free", 0); err != nil {
		t.Errorf("watchers keep nobody from locking: %v", err)
	}
	_ = x.c.nc.Close()
	await.True(t, "the end of the watchers", func() bool { return d.Hubs().Quota.Open(x.small) == 0 })
	for i, open := range watches[:4] {
		if err := open(friend); err != nil {
			t.Errorf("watch %d, when the others are gone: %v", i, err)
		}
	}
}

// TestQuotaOfRequests: a second's requests and not one more, by the server's clock, while pings,
// releases, attaches and ends of sessions are never refused.
func TestQuotaOfRequests(t *testing.T) {
	t.Parallel()
	var clock *replica.ManualClock
	x := newTenants(t, func(c *server.Config) { clock = manual(c) })
	c, session := x.c, x.mine.Session
	second := c.session(x.small, 3)
	held := func(name string) error {
		_, err := c.lock(x.small, session, name, 0)
		return err
	}
	const sentence = "node has made as many requests as its quota max_requests allows, 4 a second on each instance; " +
		"retry later, or raise the quota"
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxRequests, MaxRequests: 4})
	rated := func(want uint64) {
		t.Helper()
		await.True(t, "the quota at the listener", func() bool {
			r := x.s.Requests.Routes().Rates[x.small]
			return want == 0 && r == nil || r != nil && r.Quota == want
		})
	}
	rated(4)
	for i := range 4 {
		if err := held(fmt.Sprint(i)); err != nil {
			t.Fatalf("request %d of 4: %v", i+1, err)
		}
	}
	x.refused(protocol.StatusOverloaded, sentence, held("4"))
	d := x.s.shardAt(0, c.bucket(x.small, "0"))
	commands := d.Replica().Stats().Commands
	_, err := c.describe(x.small, "0", protocol.Strict)
	x.refused(protocol.StatusOverloaded, sentence, err)
	m := &protocol.SessionStart{Node: x.small, CreateID: id16(4), Key: id16(4), Timeout: 10_000, Nonce: 4}
	x.refused(protocol.StatusOverloaded, sentence, c.call(protocol.KindSessionStart, c.homeBucket(m.CreateID), m, &protocol.SessionReply{}))
	x.refused(protocol.StatusOverloaded, sentence, c.call(protocol.KindWatch, c.bucket(x.small, "0"),
		&protocol.Watch{Shard: d.ID(), Node: x.small, Name: []byte("0")}, nil))
	x.refused(protocol.StatusOverloaded, sentence, c.call(protocol.KindTrackPoll, c.bucket(x.small, "t"),
		&protocol.TrackPoll{Session: session, Name: []byte("t"), ID: "i", Incarnation: 1}, nil))
	if got, want := d.Replica().Stats().Commands-commands, uint64(4*2); got != want {
		t.Errorf("%d commands were proposed meanwhile, want %d: the other node's", got, want)
	}
	x.metrics("requests", "", "4", "5")

	// What keeps a session, and what gives back.
	c.ping()
	for i := range 20 {
		if err := c.unlock(x.small, session, fmt.Sprint(i%4)); err != nil {
			t.Errorf("release %d: %v", i, err)
		}
	}
	if _, err := c.attach(x.small, 1, session, 2); err != nil {
		t.Errorf("attach: %v", err)
	}
	if err := c.call(protocol.KindSessionStop, uint64(protocol.SessionBucket(second.Session)),
		&protocol.SessionStop{Session: second.Session, Epoch: 1}, nil); err != nil {
		t.Errorf("stop: %v", err)
	}

	// It was counted, for a second more.
	advance(x.s, clock, time.Second)
	x.refused(protocol.StatusOverloaded, sentence, held("5"))
	advance(x.s, clock, 250*time.Millisecond)
	if err := held("6"); err != nil {
		t.Errorf("a quarter of a second later: %v", err)
	}
	x.refused(protocol.StatusOverloaded, sentence, held("7"))
	advance(x.s, clock, 2*time.Second)
	for i := range 5 {
		if err := held(fmt.Sprint("late", i)); (err == nil) != (i < 4) {
			t.Errorf("request %d after two seconds: %v", i+1, err)
		}
	}
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxRequests, MaxRequests: 40})
	rated(40)
	if err := held("raised"); err != nil {
		t.Errorf("with a raised quota: %v", err)
	}
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxRequests})
	rated(0)
	for range 100 {
		if err := held("free"); err != nil {
			t.Fatalf("without a quota: %v", err)
		}
	}
	x.metrics("requests", "", "", "8")
	x.alter(protocol.NodeConfig{Fields: protocol.FieldMaxRequests, MaxRequests: 4})
	rated(4)
	for i := range 4 {
		if err := held(fmt.Sprint("again", i)); err != nil {
			t.Fatalf("request %d of 4, with a quota again: %v", i+1, err)
		}
	}
	x.refused(protocol.StatusOverloaded, sentence, held("again"))
	x.metrics("requests", "", "4", "9")
}

package integration

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// limitClient is a session that speaks of rate limits in frames.
type limitClient struct {
	*raw
	node, id, refreshes, acquires uint64
	at                            ratelimit.Leadership // that it names
}

func newLimitClient(c *raw, node, n uint64) *limitClient {
	return &limitClient{raw: c, node: node, id: c.session(node, n).Session}
}

func (c *limitClient) tree(path string) uint64 {
	return c.bucket(c.node, protocol.LimitRoot(path))
}

func (c *limitClient) create(path string, config protocol.LimitConfig) error {
	m := &protocol.LimitCreate{Head: c.head(c.id), Path: []byte(path), Config: config}
	return c.call(protocol.KindLimitCreate, c.tree(path), m, nil)
}

func (c *limitClient) mustCreate(path string, config protocol.LimitConfig) {
	c.t.Helper()
	if err := c.create(path, config); err != nil {
		c.t.Fatal(err)
	}
}

func (c *limitClient) alter(path string, revision uint64, config protocol.LimitConfig) error {
	m := &protocol.LimitAlter{Head: c.head(c.id), Path: []byte(path), Revision: revision, Config: config}
	return c.call(protocol.KindLimitAlter, c.tree(path), m, nil)
}

func (c *limitClient) remove(path string) error {
	m := &protocol.LimitDelete{Head: c.head(c.id), Path: []byte(path), Force: true}
	return c.call(protocol.KindLimitDelete, c.tree(path), m, nil)
}

func (c *limitClient) join(path string) {
	c.t.Helper()
	c.must(protocol.KindLimitJoin, c.tree(path), &protocol.LimitJoin{Head: c.head(c.id), Path: []byte(path)}, nil)
}

// refresh asks for the lease of one leaf.
func (c *limitClient) refresh(leaf protocol.LimitLeaf) (lease protocol.LimitLease, err error) {
	c.refreshes++
	m := &protocol.LimitRefresh{Session: c.id, Path: leaf.Path, Seq: c.refreshes, BucketEpoch: c.at.Bucket, LeaderEpoch: c.at.Epoch,
		Leaves: []protocol.LimitLeaf{leaf}}
	var r protocol.LimitRefreshReply
	if err := c.call(protocol.KindLimitRefresh, c.tree(string(leaf.Path)), m, &r); err != nil {
		return lease, err
	}
	c.at = ratelimit.Leadership{Bucket: r.BucketEpoch, Epoch: r.LeaderEpoch}
	return r.Leaves[0], nil
}

func (c *limitClient) acquire(path string, amount uint64) (retry uint64, err error) {
	var r protocol.LimitAcquireReply
	c.acquires++
	err = c.call(protocol.KindLimitAcquire, c.tree(path), &protocol.LimitAcquire{Session: c.id, Path: []byte(path), Seq: c.acquires, Amount: amount,
		Leaves: []protocol.LimitNeed{{Path: []byte(path)}}}, &r)
	return r.Retry, err
}

func (c *limitClient) describe(path string) (s protocol.LimitStatus) {
	c.t.Helper()
	c.must(protocol.KindLimitDescribe, c.tree(path), &protocol.LimitDescribe{Node: c.node, Path: []byte(path), Sessions: 10}, &s)
	return s
}

// TestLimitBarriers: what grants rates waits for a barrier, though the node is read RELAXED. A leader
// that was deposed and does not know it would grant what another one grants as well.
func TestLimitBarriers(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c); c.Shards = 1 })
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	c.join("api")
	var d *shardhost.Shard
	for _, d = range s.Serving.Shards.All() {
	}
	for what, ask := range map[string]func() error{
		"refresh":  func() error { _, err := c.refresh(protocol.LimitLeaf{Path: []byte("api")}); return err },
		"acquire":  func() error { _, err := c.acquire("api", 1000); return err },
		"describe": func() error { c.describe("api"); return nil },
	} {
		before := d.Replica().Stats().Barriers
		if err := ask(); err != nil && !errors.Is(err, protocol.StatusAborted) {
			t.Errorf("%s: %v", what, err)
		}
		if n := d.Replica().Stats().Barriers - before; n != 1 {
			t.Errorf("%s made %d barriers", what, n)
		}
	}
}

// TestLimitBadConfigurations: what a resource cannot be is refused with a sentence, and nothing stays
// of it.
func TestLimitBadConfigurations(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) })
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	c.mustCreate("api/a", protocol.LimitConfig{Unlimited: true, Min: 600_000})
	good := protocol.LimitConfig{Rate: 1}
	for what, x := range map[string]struct {
		err  error
		want protocol.Status
	}{
		"a root without a rate":       {c.create("x", protocol.LimitConfig{Unlimited: true}), protocol.StatusBadRequest},
		"too high a rate":             {c.create("x", protocol.LimitConfig{Rate: protocol.MaxLimitRate + 1}), protocol.StatusBadRequest},
		"a burst of too many units":   {c.create("x", protocol.LimitConfig{Rate: protocol.MaxLimitRate, Burst: 1001}), protocol.StatusBadRequest},
		"a burst over an hour":        {c.create("x", protocol.LimitConfig{Rate: 1, Burst: protocol.MaxLimitBurst + 1}), protocol.StatusBadRequest},
		"too high a weight":           {c.create("api/x", protocol.LimitConfig{Unlimited: true, Weight: protocol.MaxLimitWeight + 1}), protocol.StatusBadRequest},
		"a guarantee above the rate":  {c.create("api/x", protocol.LimitConfig{Rate: 1, Min: 2}), protocol.StatusBadRequest},
		"guarantees above the parent": {c.create("api/x", protocol.LimitConfig{Unlimited: true, Min: 400_001}), protocol.StatusBadRequest},
		"a parent below guarantees":   {c.alter("api", 0, protocol.LimitConfig{Rate: 599_999}), protocol.StatusBadRequest},
		"too short a lease":           {c.create("x", protocol.LimitConfig{Rate: 1, Lease: protocol.MinLimitLease - 1}), protocol.StatusBadRequest},
		"too long a lease":            {c.create("x", protocol.LimitConfig{Rate: 1, Lease: protocol.MaxLimitLease + 1}), protocol.StatusBadRequest},
		"a lease below a root":        {c.create("api/x", protocol.LimitConfig{Unlimited: true, Lease: 1000}), protocol.StatusBadRequest},
		"too long a foreign setting":  {c.create("x", protocol.LimitConfig{Rate: 1, Foreign: strings.Repeat("x", 257)}), protocol.StatusBadRequest},
		"no path":                     {c.create("", good), protocol.StatusBadRequest},
		"too long a path":             {c.create(strings.Repeat("x", protocol.MaxLimitPath+1), good), protocol.StatusBadRequest},
		"too deep a path":             {c.create("a/b/c/d/e/f/g/h/i", good), protocol.StatusBadRequest},
		"an empty segment":            {c.create("api//x", good), protocol.StatusBadRequest},
		"a slash at the end":          {c.create("api/", good), protocol.StatusBadRequest},
		"a relative path":             {c.create("api/../x", good), protocol.StatusBadRequest},
		"another character":           {c.create("api/ä", good), protocol.StatusBadRequest},
		"no parent":                   {c.create("api/x/y", good), protocol.StatusNotFound},
		"one that is there":           {c.create("api/a", good), protocol.StatusAlreadyExists},
		"an alter of none":            {c.alter("api/x", 0, good), protocol.StatusNotFound},
		"an alter of another tree":    {c.alter("x", 0, good), protocol.StatusNotFound},
		"an alter at another revision": {c.alter("api/a", 9, protocol.LimitConfig{Unlimited: true, Weight: 2}),
			protocol.StatusPreconditionFailed},
		"a delete with children": {c.remove("api"), protocol.StatusPreconditionFailed},
		"a delete of none":       {c.remove("api/x"), protocol.StatusNotFound},
	} {
		if !errors.Is(x.err, x.want) || statusMessage(x.err) == "" {
			t.Errorf("%s: %v, want %v", what, x.err, x.want)
		}
	}
	status := c.describe("api")
	if len(status.Resources) != 2 || status.Resources[1].Revision != 2 {
		t.Errorf("%+v", status.Resources)
	}
}

// TestLimitBadRequests: so is what a client cannot ask for.
func TestLimitBadRequests(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) })
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	stranger := newLimitClient(r, r.node(), 2)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	c.mustCreate("api/a", protocol.LimitConfig{Unlimited: true})
	c.join("api")
	leaf := func(path string) protocol.LimitLeaf { return protocol.LimitLeaf{Path: []byte(path), Waiting: 1} }
	raw := func(kind protocol.Kind, m protocol.Message) error { return c.call(kind, c.tree("api"), m, nil) }
	for range 2 {
		if _, err := c.refresh(leaf("api/a")); err != nil {
			t.Fatal(err)
		}
	}
	_, notJoined := stranger.refresh(leaf("api/a"))
	_, noTree := stranger.refresh(leaf("x"))
	if retry, err := c.acquire("api/a", 1000); err != nil || retry > 0 {
		t.Errorf("units of a new limit: again in %d ms, %v", retry, err)
	}
	_, inner := c.acquire("api", 1000)
	_, missing := c.acquire("api/x", 1000)
	_, most := c.acquire("api/a", 1_000_001)
	_, overflow := c.acquire("api/a", 1<<63)
	_, notJoinedRemote := stranger.acquire("api/a", 1000)
	many := make([]protocol.LimitLeaf, protocol.MaxLimitLeaves+1)
	for i := range many {
		many[i] = leaf("api/a")
	}
	for what, x := range map[string]struct {
		err  error
		want protocol.Status
	}{
		"a session that did not join":      {notJoined, protocol.StatusPreconditionFailed},
		"no such tree":                     {noTree, protocol.StatusNotFound},
		"units of an inner resource":       {inner, protocol.StatusPreconditionFailed},
		"units of no resource":             {missing, protocol.StatusNotFound},
		"more than the burst":              {most, protocol.StatusBadRequest},
		"an amount that overflows":         {overflow, protocol.StatusBadRequest},
		"units for one that did not join":  {notJoinedRemote, protocol.StatusPreconditionFailed},
		"an acquire without a number":      {raw(protocol.KindLimitAcquire, &protocol.LimitAcquire{Session: c.id, Path: []byte("api"), Amount: 1000, Leaves: []protocol.LimitNeed{{Path: []byte("api/a")}}}), protocol.StatusBadRequest},
		"a refresh without a number":       {raw(protocol.KindLimitRefresh, &protocol.LimitRefresh{Session: c.id, Path: []byte("api")}), protocol.StatusBadRequest},
		"a refresh again":                  {raw(protocol.KindLimitRefresh, &protocol.LimitRefresh{Session: c.id, Path: []byte("api"), Seq: 1}), protocol.StatusAborted},
		"a refresh of too many leaves":     {raw(protocol.KindLimitRefresh, &protocol.LimitRefresh{Session: c.id, Path: []byte("api"), Seq: 9, Leaves: many}), protocol.StatusBadRequest},
		"a refresh of another's session":   {raw(protocol.KindLimitRefresh, &protocol.LimitRefresh{Session: c.id + 99, Path: []byte("api"), Seq: 1}), protocol.StatusSessionExpired},
		"a statement that is too long":     {raw(protocol.KindLimitRefresh, &protocol.LimitRefresh{Session: c.id, Path: []byte("api"), Seq: 9, Leaves: []protocol.LimitLeaf{{Path: []byte("api/a"), Statement: make([]byte, protocol.MaxLimitStatement+1)}}}), protocol.StatusBadRequest},
		"a join of no tree":                {c.call(protocol.KindLimitJoin, c.tree("x"), &protocol.LimitJoin{Head: c.head(c.id), Path: []byte("x")}, nil), protocol.StatusNotFound},
		"a watch of no tree":               {c.call(protocol.KindLimitWatch, c.tree("x"), &protocol.LimitWatch{Node: c.node, Session: c.id, Path: []byte("x")}, nil), protocol.StatusNotFound},
		"a description of no tree":         {c.call(protocol.KindLimitDescribe, c.tree("x"), &protocol.LimitDescribe{Node: c.node, Path: []byte("x")}, nil), protocol.StatusNotFound},
		"a description of many sessions":   {raw(protocol.KindLimitDescribe, &protocol.LimitDescribe{Node: c.node, Path: []byte("api"), Sessions: protocol.MaxLimitSessions + 1}), protocol.StatusBadRequest},
		"a description with a long cursor": {raw(protocol.KindLimitDescribe, &protocol.LimitDescribe{Node: c.node, Path: []byte("api"), Cursor: make([]byte, protocol.MaxLimitPath+1)}), protocol.StatusBadRequest},
	} {
		if !errors.Is(x.err, x.want) || statusMessage(x.err) == "" {
			t.Errorf("%s: %v, want %v", what, x.err, x.want)
		}
	}
	// A flood meets the least time between two refreshes of a session.
	for n := 0; ; n++ {
		if _, err := c.refresh(leaf("api/a")); errors.Is(err, protocol.StatusOverloaded) {
			break
		} else if err != nil || n > 10 {
			t.Fatalf("refresh %d in the same moment: %v", n, err)
		}
	}
	c.ping()
}

// startLearning starts a server whose leaders do not know who uses what until the time of a lease is over: a session
// took part before them, and does not come back.
func startLearning(t *testing.T, change func(*server.Config), prepare func(absent *limitClient)) (s *instance, advance func(time.Duration)) {
	disk, clock := replica.NewMemoryDisk(), replica.NewManualClock(time.Unix(1_700_000_000, 0))
	config := func(c *server.Config) {
		if c.Disk, c.Clock = disk, clock; change != nil {
			change(c)
		}
	}
	s = start(t, config)
	r := connect(t, s)
	clock.Advance(time.Second) // log time begins at 0
	prepare(newLimitClient(r, r.node(), 999))
	disk.PowerLoss()
	_ = s.Close()
	disk.PowerBack()
	return start(t, config), clock.Advance
}

// TestLimitStatements: a leader that learns believes statements that an earlier one signed for this
// session and resource, and no others. If those that it believes add up to more than the limit, all
// get less at once.
func TestLimitStatements(t *testing.T) {
	t.Parallel()
	s, _ := startLearning(t, nil, func(absent *limitClient) {
		absent.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000, Lease: protocol.MaxLimitLease})
		absent.mustCreate("api/a", protocol.LimitConfig{Unlimited: true})
		absent.mustCreate("api/b", protocol.LimitConfig{Unlimited: true})
		absent.join("api")
	})
	r := connect(t, s)
	node := r.node()
	var signer session.Signer
	key, _ := s.Requests.Routes().Keys()
	now := newLimitClient(r, node, 1000).describe("api").Clock
	count := uint64(0)
	lease := func(rate uint64) *ratelimit.Lease {
		count++
		return &ratelimit.Lease{Number: ratelimit.Number{Leadership: ratelimit.Leadership{Bucket: 1, Epoch: 1}, Count: count},
			Rate: rate, Burst: rate, End: now + protocol.MaxLimitLease}
	}
	sign := func(node, session, epoch uint64, path string, g *ratelimit.Lease) []byte {
		return signer.AppendLease(nil, key, node, session, epoch, []byte(path), g)
	}
	n := uint64(1)
	present := func(statement func(c *limitClient) []byte) uint64 {
		t.Helper()
		n++
		c := newLimitClient(r, node, n)
		c.join("api")
		got, err := c.refresh(protocol.LimitLeaf{Path: []byte("api/a"), Waiting: 1, Statement: statement(c)})
		if err != nil {
			t.Fatal(err)
		}
		return got.Rate
	}
	ended, late := lease(1000), lease(1000)
	ended.End, late.Number.Epoch = now, 1<<60
	for what, statement := range map[string]func(c *limitClient) []byte{
		"no statement":       func(*limitClient) []byte { return nil },
		"anything":           func(*limitClient) []byte { return bytes.Repeat([]byte{2}, 113) },
		"another's":          func(c *limitClient) []byte { return sign(node, c.id+1, 1, "api/a", lease(1000)) },
		"another resource's": func(c *limitClient) []byte { return sign(node, c.id, 1, "api/b", lease(1000)) },
		"another node's":     func(c *limitClient) []byte { return sign(node+1, c.id, 1, "api/a", lease(1000)) },
		"of a later attach":  func(c *limitClient) []byte { return sign(node, c.id, 1<<40, "api/a", lease(1000)) },
		"ended":              func(c *limitClient) []byte { return sign(node, c.id, 1, "api/a", ended) },
		"of a later leader":  func(c *limitClient) []byte { return sign(node, c.id, 1, "api/a", late) },
		"changed": func(c *limitClient) []byte {
			b := sign(node, c.id, 1, "api/a", lease(1000))
			b[66]++ // the rate
			return b
		},
	} {
		if rate := present(statement); rate != 0 {
			t.Errorf("%s: a rate of %d", what, rate)
		}
	}
	of := func(rate uint64) func(c *limitClient) []byte {
		return func(c *limitClient) []byte { return sign(node, c.id, 1, "api/a", lease(rate)) }
	}
	if rate := present(of(800_000)); rate != 800_000 {
		t.Errorf("a good statement of 800,000: a rate of %d", rate)
	}
	if rate := present(of(800_000)); rate == 0 || rate > 500_000 {
		t.Errorf("two of 800,000, of 1,000,000: the second has a rate of %d", rate)
	}
}

// TestLimitSilentClient: a session that never confirms delays another one until its lease ends, and
// no longer. Two sessions of one connection are two participants.
func TestLimitSilentClient(t *testing.T) {
	t.Parallel()
	var advance func(time.Duration)
	s := start(t, func(c *server.Config) { advance = manual(c).Advance })
	r := connect(t, s)
	advance(time.Second) // log time begins at 0
	silent, other := newLimitClient(r, r.node(), 1), newLimitClient(r, r.node(), 2)
	silent.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000, Lease: 1000})
	leaf := protocol.LimitLeaf{Path: []byte("api"), Waiting: 1}
	refresh := func(c *limitClient) uint64 {
		t.Helper()
		lease, err := c.refresh(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return lease.Rate
	}
	silent.join("api")
	refresh(silent)
	if rate := refresh(silent); rate != 1_000_000 {
		t.Fatalf("alone it has a rate of %d", rate)
	}
	other.join("api")
	advance(200 * time.Millisecond)
	refresh(other)
	if status := other.describe("api"); status.Participants != 2 || status.Resources[0].Leased != 1_000_000 {
		t.Errorf("%+v", status)
	}
	if rate := refresh(other); rate != 0 {
		t.Errorf("while the first uses its lease, the other has a rate of %d", rate)
	}
	advance(time.Second)
	await.True(t, "the other to have all, in the moment in which the first's lease has ended", func() bool {
		return refresh(other) == 1_000_000
	})
}

// TestLimitNotification: a session that is to use less is told so at once, although the server has
// nothing else to send.
func TestLimitNotification(t *testing.T) {
	t.Parallel()
	var advance func(time.Duration)
	s := start(t, func(c *server.Config) { advance = manual(c).Advance })
	r := connect(t, s)
	advance(time.Second) // log time begins at 0
	first, other := newLimitClient(r, r.node(), 1), newLimitClient(r, r.node(), 2)
	first.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	refresh := func(c *limitClient, waiting uint64) uint64 {
		t.Helper()
		lease, err := c.refresh(protocol.LimitLeaf{Path: []byte("api"), Waiting: waiting})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Rate
	}
	first.join("api")
	refresh(first, 1)
	if rate := refresh(first, 1); rate != 1_000_000 {
		t.Fatalf("alone it has a rate of %d", rate)
	}
	watch := r.send(protocol.KindLimitWatch, first.tree("api"), &protocol.LimitWatch{Node: first.node, Path: []byte("api"), Session: first.id})
	if err := r.reply(protocol.KindLimitWatch, watch, nil); err != nil {
		t.Fatal(err)
	}
	r.event(protocol.KindLimitChanged, nil) // the beginning
	other.join("api")
	advance(100 * time.Millisecond)
	refresh(other, 0) // shares are computed, and in the next 50 ms are not
	advance(10 * time.Millisecond)
	if rate := refresh(other, 1); rate != 0 {
		t.Fatalf("before the first has shrunk, the other has a rate of %d", rate)
	}
	advance(50 * time.Millisecond)
	if h := r.event(protocol.KindLimitChanged, nil); h.ID != watch {
		t.Errorf("%+v", h)
	}
}

// TestLimitDeletedWhileLeased: the streams of a tree end with it, and what clients ask for is not
// found.
func TestLimitDeletedWhileLeased(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) })
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	c.join("api")
	leaf := protocol.LimitLeaf{Path: []byte("api"), Waiting: 1}
	if _, err := c.refresh(leaf); err != nil {
		t.Fatal(err)
	}
	watch := c.send(protocol.KindLimitWatch, c.tree("api"), &protocol.LimitWatch{Node: c.node, Path: []byte("api"), Session: c.id})
	if err := c.reply(protocol.KindLimitWatch, watch, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.remove("api"); err != nil {
		t.Fatal(err)
	}
	var cut protocol.StreamCut
	if h := c.event(protocol.KindStreamCut, &cut); h.ID != watch || cut.Status != protocol.StatusNotFound {
		t.Errorf("%+v %+v", h, cut)
	}
	if _, err := c.refresh(leaf); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("a refresh: %v", err)
	}
	if _, err := c.acquire("api", 1000); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("an acquire: %v", err)
	}
}

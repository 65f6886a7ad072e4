package integration

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	old := connect(t, s)
	node := old.node()
	r := old.session(node, 1)
	if _, err := old.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range s.shardIDs() {
		name := old.nameIn(node, id, "watched-")
		if _, err := old.lock(node, r.Session, name, 0); err != nil {
			t.Fatal(err)
		}
		m := &protocol.Describe{Session: r.Session, Node: node, Name: []byte(name), Flags: protocol.WatchOwners, WatchID: id}
		old.must(protocol.KindDescribe, old.bucket(node, name), m, &protocol.DescribeReply{})
	}
	c := connect(t, s)
	if _, err := c.attach(node, 2, r.Session, 2); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("attach with another key: %v", err)
	}
	if _, err := c.attach(node, 1, r.Session, 2); err != nil {
		t.Fatal(err)
	}
	var over protocol.TakenOver
	old.event(protocol.KindTakenOver, &over)
	if over.Session != r.Session || over.Epoch != 2 {
		t.Fatalf("taken over: %+v", over)
	}
	// What it watched, it hears nothing of any more: that was said before.
	for range s.shardIDs() {
		var fired protocol.WatchFired
		h := old.event(protocol.KindWatchFired, &fired)
		if fired != (protocol.WatchFired{Session: r.Session, WatchID: h.Arg}) {
			t.Fatalf("fired: %+v", fired)
		}
	}
	if err := old.unlock(node, r.Session, "a"); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("release by the older connection: %v", err)
	}
	old.ping()
	c.seq = old.seq
	if err := c.unlock(node, r.Session, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := old.attach(node, 1, r.Session, 1); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("attach with an older epoch: %v", err)
	}
}

// TestStartAgainElsewhere: a start that is sent again attaches the session to the connection of the
// newer sending, and the other connection is told: pongs there do not renew the session any more.
func TestStartAgainElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	old, c := connect(t, s), connect(t, s)
	node := old.node()
	first := old.session(node, 1)
	again := c.session(node, 1)
	if again.Session != first.Session || again.Epoch != 1 {
		t.Fatalf("started %+v, then %+v", first, again)
	}
	var over protocol.TakenOver
	old.event(protocol.KindTakenOver, &over)
	if over.Session != first.Session || over.Epoch != 1 {
		t.Fatalf("taken over: %+v", over)
	}
	if _, err := old.lock(node, first.Session, "a", 0); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("acquire on the older connection: %v", err)
	}
	if _, err := c.lock(node, first.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	// The ids are used up with the session.
	c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(first.Session)),
		&protocol.SessionStop{Session: first.Session, Epoch: 1}, nil)
	m := &protocol.SessionStart{Node: node, CreateID: id16(1), Key: id16(1), Nonce: 1}
	c.fails(protocol.StatusSessionExpired, protocol.KindSessionStart, c.homeBucket(m.CreateID), m)
}

// TestWatchTooLate: a watch that is armed behind a barrier finds that its session is not on the
// connection any more.
func TestWatchTooLate(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	d := s.shardAt(0, c.bucket(node, "a"))
	var sc *request.Client
	s.Requests.EachClient(func(x *request.Client) { sc = x })
	m := protocol.Describe{Session: r.Session, Node: node, Name: []byte("a"), Flags: protocol.WatchOwners, WatchID: 1}
	arm := func() error {
		var err error
		d.Replica().Exclusive(func(machine *shard.Machine) { err = request.Arm(sc, d, machine, &m) })
		return err
	}
	if err := arm(); err != nil || d.Hubs().Semaphores.Stats().OneShots != 1 {
		t.Fatal(err, d.Hubs().Semaphores.Stats().OneShots)
	}
	c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(r.Session)), &protocol.SessionStop{Session: r.Session, Epoch: 1}, nil)
	c.event(protocol.KindSessionEnded, nil)
	if err := arm(); !errors.Is(err, protocol.StatusSessionExpired) || d.Hubs().Semaphores.Stats().OneShots != 0 {
		t.Fatal(err, d.Hubs().Semaphores.Stats().OneShots)
	}
	_ = c.nc.Close()
	await.True(t, "the end of the connection", func() bool { return !sc.Watch(d.Hubs()) })
	if err := arm(); err != nil || d.Hubs().Semaphores.Stats().OneShots != 0 {
		t.Fatal(err, d.Hubs().Semaphores.Stats().OneShots)
	}
}

// TestReasonOfTheEnd: what waits for a session is told why the session ended, in shards that are
// not its home too.
func TestReasonOfTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	var info protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/doomed"}, &info)
	killed, dropped := c.session(info.ID, 2), c.session(info.ID, 3)
	// What a shard learns of a holder's end from elsewhere may come before what it learns of a
	// waiter's, which is granted then. So the holders are at home where they hold.
	holders := map[uint64]protocol.SessionReply{}
	for n := uint64(4); len(holders) < len(s.shardIDs()); n++ {
		r := c.session(info.ID, n)
		holders[r.Shard] = r
	}
	for _, id := range s.shardIDs() {
		name := c.nameIn(info.ID, id, "")
		for _, r := range []protocol.SessionReply{holders[id], killed, dropped} {
			if _, err := c.lock(info.ID, r.Session, name, protocol.Forever); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(r protocol.SessionReply, reason protocol.EndReason, text string) {
		t.Helper()
		var ended protocol.SessionEnded
		c.find("the end", func(h protocol.Header) bool {
			return h.Kind == protocol.KindSessionEnded && protocol.DecodeBody(&ended, h.Body) == nil && ended.Session == r.Session
		})
		if ended.Reason != reason || ended.Message != text {
			t.Errorf("ended: %+v", ended)
		}
		var result protocol.AcquireResult
		isResult := func(h protocol.Header) bool {
			return h.Kind == protocol.KindAcquireResult && result.DecodeBody(h.Body) == nil && result.Session == r.Session
		}
		// The home sends its result before the end, so it is read by now. Another shard sends its
		// own when it learns of the end.
		if !slices.ContainsFunc(c.later, isResult) {
			t.Error("the acquire that waited at home got no result before the end")
		}
		for range s.shardIDs() {
			h := c.find("a result", isResult)
			if result.Status != protocol.StatusSessionExpired || result.Message != text {
				t.Errorf("result of shard %d: %+v", h.Arg, result)
			}
		}
	}
	c.must(protocol.KindSessionKill, uint64(protocol.SessionBucket(killed.Session)),
		&protocol.SessionKill{Session: killed.Session, Node: info.ID, Reason: "in the way"}, nil)
	end(killed, protocol.EndKilled, "in the way")
	c.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/doomed", Force: true, Reason: "test"}, nil)
	end(dropped, protocol.EndNodeDropped, "its coordination node was deleted")
	for _, id := range s.shardIDs() {
		s.Serving.Shards.Get(id).Replica().View(func(m *shard.Machine) {
			if z := m.Metrics().Sizes(); z.Sessions+z.RemoteSessions+z.Semaphores != 0 {
				t.Errorf("shard %d keeps %+v of the dropped node", id, z)
			}
		})
	}
	// A client that was away is told when it comes back.
	if _, err := connect(t, s).attach(info.ID, 3, dropped.Session,
		2); !errors.Is(err, protocol.StatusSessionExpired) || !strings.Contains(err.Error(), "node was deleted") {
		t.Errorf("attach to a session of a dropped node: %v", err)
	}
	c.fails(protocol.StatusSessionExpired, protocol.KindAcquire, c.bucket(info.ID, "a"), &protocol.Acquire{
		Head: c.head(dropped.Session), Name: []byte("a"), Count: 1, Ephemeral: true,
	})
}

func TestTickets(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	home := connect(t, s)
	node := home.node()
	r := home.session(node, 1)
	remote := connect(t, s)
	if _, err := remote.lock(node, r.Session, "a", 0); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("acquire without a ticket: %v", err)
	}
	for name, bad := range map[string][]byte{
		"empty":    nil,
		"short":    r.Ticket[:20],
		"longer":   append(append([]byte(nil), r.Ticket...), 0),
		"another":  flip(r.Ticket, 12),
		"mac":      flip(r.Ticket, len(r.Ticket)-1),
		"key":      flip(r.Ticket, 8),
		"version":  flip(r.Ticket, 0),
		"identity": flip(r.Ticket, 34),
	} {
		err := remote.call(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: bad}, nil)
		if err == nil {
			t.Fatalf("%s ticket was taken", name)
		}
		if name != "empty" && !errors.Is(err, protocol.StatusBadSession) {
			t.Fatalf("%s ticket: %v", name, err)
		}
	}
	remote.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket}, nil)
	remote.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket}, nil)
	if a, err := remote.lock(node, r.Session, "a", 0); err != nil || a.State != protocol.Acquired {
		t.Fatalf("acquire with a ticket: %+v, %v", a, err)
	}
	// A newer epoch takes the session from the connection that showed the older ticket.
	again := connect(t, s)
	r2, err := again.attach(node, 1, r.Session, 2)
	if err != nil {
		t.Fatal(err)
	}
	remote.event(protocol.KindTakenOver, nil)
	remote.fails(protocol.StatusBadSession, protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket})
	remote.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r2.Ticket}, nil)
	remote.seq = 10
	if a, err := remote.lock(node, r.Session, "a", 0); err != nil || a.State != protocol.Acquired {
		t.Fatalf("acquire with the newer ticket: %+v, %v", a, err)
	}
}

func flip(b []byte, i int) []byte {
	b = append([]byte(nil), b...)
	b[i] ^= 0x40
	return b
}

// TestRelaxedAttach: after a power loss, sessions of a node with RELAXED attaches come back before
// the log has them, and nothing else does.
func TestRelaxedAttach(t *testing.T) {
	t.Parallel()
	disk := replica.NewMemoryDisk()
	config := func(c *server.Config) { c.Disk = disk; c.Shards = 1 }
	die := func(s *instance) {
		disk.PowerLoss()
		_ = s.Close()
		disk.PowerBack()
	}
	s := start(t, config)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	die(s)

	s = start(t, config)
	c = connect(t, s)
	if _, err := c.attach(node, 1, r.Session, 2); err != nil {
		t.Fatal(err)
	}
	if n := s.Metrics.RelaxedAttaches.Get(); n != 0 {
		t.Fatal("a STRICT node attached RELAXED")
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/default", Config: protocol.NodeConfig{
		Fields: protocol.FieldAttachConsistency | protocol.FieldGracePeriod, AttachConsistency: protocol.Relaxed,
		GracePeriod: protocol.MaxGracePeriod, // for a slow machine: an attach is RELAXED within it
	}}, &protocol.NodeInfo{})
	c2 := connect(t, s)
	if _, err := c2.attach(node, 1, r.Session, 3); err != nil {
		t.Fatal(err)
	}
	if n := s.Metrics.RelaxedAttaches.Get(); n != 0 {
		t.Fatal("a session that is attached was attached RELAXED")
	}
	die(s)

	s = start(t, config)
	c = connect(t, s)
	if _, err := c.attach(node, 2, r.Session, 4); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("attach with another key: %v", err)
	}
	r4, err := c.attach(node, 1, r.Session, 4)
	if err != nil || r4.Epoch != 4 || r4.Timeout != c.timeout() || len(r4.Ticket) == 0 || r4.Grace == 0 {
		t.Fatalf("RELAXED attach: %+v, %v", r4, err)
	}
	if n := s.Metrics.RelaxedAttaches.Get(); n != 1 {
		t.Fatal("attached STRICT")
	}
	c.seq = 100
	if err := c.unlock(node, r.Session, "a"); err != nil {
		t.Fatal(err)
	}
	var info protocol.SessionInfo
	c.must(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionDescribe{Session: r.Session, Node: node}, &info)
	if info.State != protocol.SessionAttached || info.Epoch != 4 {
		t.Fatalf("the log has the session as %+v", info)
	}
	// Pongs of the home renew once the attach is applied.
	c.nextID++
	id := c.nextID
	answered, pinger := make(chan struct{}), sync.WaitGroup{}
	pinger.Go(func() { // as clients do: a home may have a reason to let one ping go unanswered
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for {
			c.write(protocol.AppendFrame(nil, protocol.KindPing, id, 0, nil))
			select {
			case <-again.C:
			case <-answered:
				return
			}
		}
	})
	c.find("the home's pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == id && h.Arg == r4.Shard })
	close(answered)
	pinger.Wait()

	// Another leader may have attached it under a number that is left out here, and detached it
	// again.
	die(s)
	s = start(t, config)
	c = connect(t, s)
	if _, err := c.attach(node, 1, r.Session, 6); err != nil {
		t.Fatal(err)
	}
	if n := s.Metrics.RelaxedAttaches.Get(); n != 0 {
		t.Fatal("a session was attached RELAXED over a gap in its epochs")
	}

	// Another client may follow on this epoch too, elsewhere. The log decides between two of them.
	die(s)
	s = start(t, config)
	c, c2 = connect(t, s), connect(t, s)
	other := &protocol.SessionAttach{Session: r.Session, Node: node, Epoch: 7, Key: id16(1), Timeout: c.timeout(),
		Description: "raw", Nonce: 99}
	home := uint64(protocol.SessionBucket(r.Session))
	c.must(protocol.KindSessionAttach, home, other, new(protocol.SessionReply))
	if n := s.Metrics.RelaxedAttaches.Get(); n != 0 {
		t.Fatal("another client attached the session RELAXED")
	}
	if _, err := c2.attach(node, 1, r.Session, 7); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("two clients under one epoch: %v", err)
	}
	c2.must(protocol.KindSessionAttach, home, other, new(protocol.SessionReply)) // a repeat, from elsewhere

	// A stop is a planned change of leader. The session has its timeout at most, which is less than
	// an answer ahead of the log asks for.
	if err := shutdown(s); err != nil {
		t.Fatal(err)
	}
	s = start(t, config)
	c = connect(t, s)
	other.Epoch++
	c.must(protocol.KindSessionAttach, home, other, new(protocol.SessionReply))
	if n := s.Metrics.RelaxedAttaches.Get(); n != 0 {
		t.Fatal("a session was attached RELAXED that has less than its timeout left")
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	var rules rules
	s := start(t, func(c *server.Config) { c.Authenticator = &rules; c.Authorizer = &rules })
	x := dial(t, s)
	if err := x.call(protocol.KindHello, 0,
		&protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte("wrong")},
		nil); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Fatalf("wrong credentials: %v", err)
	}
	if g := x.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
		t.Fatalf("goodbye is %+v", g)
	}
	as := func(name string) *raw {
		c := dial(t, s)
		c.must(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte(name)}, &protocol.HelloReply{})
		return c
	}
	root := as("root")
	node := root.node()
	none, reader, user := as("none"), as("reader"), as("user")
	none.fails(protocol.StatusForbidden, protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"})
	none.fails(protocol.StatusForbidden, protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/missing"})
	none.fails(protocol.StatusForbidden, protocol.KindDescribe, 0, &protocol.Describe{Node: node, Name: []byte("a")})
	none.fails(protocol.StatusForbidden, protocol.KindDescribe, 0, &protocol.Describe{Node: 999, Name: []byte("a")}) // it learns nothing
	// the meta shard has been asked
	root.fails(protocol.StatusNotFound, protocol.KindDescribe, 0, &protocol.Describe{Node: 999, Name: []byte("a")})
	var gone protocol.NodeInfo
	root.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/gone"}, &gone)
	root.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/gone", Force: true, Reason: "test"}, nil)
	await.True(t, "the map to have the node", func() bool { return s.Requests.Routes().State.LastNode() >= gone.ID })
	none.fails(protocol.StatusForbidden, protocol.KindDescribe, 0, &protocol.Describe{Node: gone.ID, Name: []byte("a")})
	none.fails(protocol.StatusForbidden, protocol.KindSessionStart, 0,
		&protocol.SessionStart{Node: node, CreateID: id16(5), Key: id16(5), Timeout: 1, Nonce: 5})
	r := reader.session(node, 1)
	if _, err := reader.lock(node, r.Session, "a", 0); !errors.Is(err, protocol.StatusForbidden) {
		t.Fatalf("acquire with the right to read: %v", err)
	}
	u := user.session(node, 2)
	if _, err := user.lock(node, u.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	user.fails(protocol.StatusForbidden, protocol.KindDelete, user.bucket(node, "a"),
		&protocol.Delete{Head: user.head(u.Session), Name: []byte("a"), Force: true})
	user.fails(protocol.StatusForbidden, protocol.KindSessionKill, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionKill{Session: r.Session, Node: node, Reason: "test"})
	user.fails(protocol.StatusForbidden, protocol.KindForceRelease, user.bucket(node, "a"),
		&protocol.ForceRelease{Node: node, Name: []byte("a"), First: 1, Last: 1, Reason: "test"})
	user.fails(protocol.StatusForbidden, protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/default", Force: true, Reason: "test"})
	user.fails(protocol.StatusBadSession, protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket}) // somebody else's
	root.must(protocol.KindSessionKill, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionKill{Session: r.Session, Node: node, Reason: "test"}, nil)
	var ended protocol.SessionEnded
	reader.event(protocol.KindSessionEnded, &ended)
	if ended.Reason != protocol.EndKilled {
		t.Fatalf("ended: %+v", ended)
	}
}

// rules let names do what they say. The path "/boom" makes them panic.
type rules struct{}

func (*rules) Authenticate(c auth.Credentials) (string, error) {
	token := c.Token
	if string(token) == "wrong" {
		return "", errors.New("no such token")
	}
	return string(token), nil
}

func (*rules) Allowed(identity string, right auth.Right, path string) bool {
	if strings.HasPrefix(path, "/boom") {
		panic("a defect in the rules")
	}
	switch identity {
	case "root":
		return true
	case "user":
		return right <= auth.RightUse
	case "reader":
		return right <= auth.RightRead
	}
	return false
}

func TestPanicContained(t *testing.T) {
	t.Parallel()
	var rules rules
	s := start(t, func(c *server.Config) {
		c.Authorizer = &rules
		c.Authenticator = &rules
		c.Logger = slog.New(slog.DiscardHandler)
	})
	connectAs := func() *raw {
		c := dial(t, s)
		c.must(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte("root")}, &protocol.HelloReply{})
		return c
	}
	healthy, victim := connectAs(), connectAs()
	for range 3 {
		victim.send(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/boom"})
		victim.closed()
		healthy.ping()
		victim = connectAs()
	}
	if n := s.Metrics.Panics.Get(); n != 3 {
		t.Fatalf("%d panics were counted", n)
	}
	node := healthy.node()
	r := healthy.session(node, 1)
	if _, err := healthy.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
}

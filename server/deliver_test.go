package server

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestNewLeader: sessions at home in a shard are detached when a new term leads it, so that they are attached again; those at home elsewhere stay, and so do the
// connections. A retake of the same term detaches nobody.
func TestNewLeader(t *testing.T) {
	s := start(t, nil)
	bystander := connect(t, s)
	node := bystander.node()
	c := connect(t, s)
	r := c.session(node, 1)
	other := r
	for n := uint64(2); other.Shard == r.Shard; n++ {
		other = c.session(node, n)
	}
	d := s.shards.get(r.Shard)
	var epoch uint64
	d.raft.View(func(m *shard.Machine) { epoch = m.Epoch() })
	for _, step := range []struct {
		epoch    uint64
		detaches bool
	}{{epoch + 1, false}, {epoch + 1<<16, true}} {
		d.raft.Exclusive(func(*shard.Machine) {
			d.Applied(d.raft, 0, nil, &shard.Events{List: []shard.Event{{Kind: shard.EventTookOver, Epoch: step.epoch}}})
		})
		if !step.detaches {
			c.ping()
			continue
		}
		var away protocol.Detached
		c.event(protocol.KindDetached, &away)
		if away.Session != r.Session || away.Epoch != r.Epoch {
			t.Fatalf("detached: %+v, want session %d of epoch %d", away, r.Session, r.Epoch)
		}
	}
	if _, err := c.lock(node, other.Session, "a", 0); err != nil {
		t.Errorf("a session at home in another shard: %v", err)
	}
	if _, err := c.lock(node, r.Session, "b", 0); protocol.StatusOf(err) != protocol.StatusBadSession {
		t.Errorf("a session that was detached: %v", err)
	}
	bystander.ping()
}

// TestRelaxedAttachFails: an attach was answered, and the log does not take it.
func TestRelaxedAttachFails(t *testing.T) {
	s := start(t, nil)
	first := connect(t, s)
	node := first.node()
	r := first.session(node, 1)
	d := s.shards.get(r.Shard)
	var id uint64
	s.eachConn(func(c *conn) { id = c.ID() })
	origin := replica.Origin{Conn: id, Request: r.Session, Kind: protocol.KindSessionAttach, Tag: unloggedNote}
	reply := func(st protocol.Status) {
		d.raft.Exclusive(func(*shard.Machine) {
			d.Reply(&origin, &shard.Event{Kind: shard.EventReply, Status: st, Text: "gone"})
			d.out.flush()
		})
	}
	reply(protocol.StatusOK)
	first.ping()
	if n := len(first.later); n != 0 {
		t.Fatalf("%d frames came for an attach that was answered before", n)
	}
	reply(protocol.StatusSessionExpired)
	var ended protocol.SessionEnded
	first.event(protocol.KindSessionEnded, &ended)
	if ended.Session != r.Session {
		t.Fatalf("ended: %+v", ended)
	}
	if _, err := first.lock(node, r.Session, "a", 0); protocol.StatusOf(err) != protocol.StatusSessionExpired {
		t.Fatal(err)
	}
	d.Failed(d.raft, []replica.Origin{origin}, protocol.StatusUnavailable)
	if g := first.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
}

// TestFailedAndLate: requests that never entered the log are answered so that they may be sent again, and what comes too late finds nobody.
func TestFailedAndLate(t *testing.T) {
	s := start(t, nil)
	c := connect(t, s)
	var id uint64
	s.eachConn(func(c *conn) { id = c.ID(); c.unanswered.Add(1) })
	var d *shardHost
	for _, d = range s.shards.all() {
	}
	d.Failed(d.raft, []replica.Origin{
		{}, {Conn: id + 1<<24, Request: 4, Kind: protocol.KindAcquire}, {Conn: id, Request: 5, Kind: protocol.KindAcquire},
	}, protocol.StatusUnavailable)
	err := c.reply(protocol.KindAcquire, 5, nil)
	if protocol.StatusOf(err) != protocol.StatusUnavailable || !protocol.Retryable(err) {
		t.Fatal(err)
	}
	node := c.node()
	for n := range uint64(20) {
		x := connect(t, s)
		r := x.session(node, 100+n)
		for i := range 50 {
			x.send(protocol.KindAcquire, x.bucket(node, "late"), &protocol.Acquire{
				Head: protocol.Head{Session: r.Session, Seq: uint64(i + 1), Low: 1}, Name: []byte("late"), Count: 1, Ephemeral: true,
			})
		}
		_ = x.nc.Close()
	}
	c.ping()
	eventually(t, "the connections to go", func() bool { return s.transport.Connections() == 1 })
	bindings := 0
	for i := range s.bindings.stripes {
		st := &s.bindings.stripes[i]
		st.mu.Lock()
		bindings += st.list.Len()
		st.mu.Unlock()
	}
	if bindings != 0 {
		t.Fatalf("%d sessions are bound without a connection", bindings)
	}
}

// TestBindings: one session, several connections and epochs.
func TestBindings(t *testing.T) {
	table := newBindings()
	a, b, c := new(conn), new(conn), new(conn)
	bind := func(c *conn, epoch uint64) (*binding, []*binding) {
		x := &binding{session: 7, epoch: epoch, sharedBinding: &sharedBinding{conn: c}}
		return x, table.insert(x)
	}
	a1, older := bind(a, 1)
	if len(older) != 0 || table.conn(7) != a {
		t.Fatal("first")
	}
	b1, older := bind(b, 1)
	if len(older) != 0 || table.conn(7) != b || a1.removed.Load() {
		t.Fatal("a second connection of the same epoch")
	}
	table.remove(b1)
	table.remove(b1)
	if table.conn(7) != a {
		t.Fatal("the older connection is not found when the newer is gone")
	}
	b1, _ = bind(b, 1)
	c2, older := bind(c, 2)
	if len(older) != 2 || !a1.removed.Load() || !b1.removed.Load() || table.conn(7) != c || table.newestEpoch(7) != 2 {
		t.Fatalf("a newer epoch: %v", older)
	}
	c3, older := bind(c, 3)
	if len(older) != 0 || !c2.removed.Load() {
		t.Fatal("the same connection again")
	}
	if older := table.removeOlder(&binding{session: 7, epoch: 3, sharedBinding: new(sharedBinding)}); len(older) != 0 {
		t.Fatal("not older")
	}
	if older := table.removeOlder(&binding{session: 7, epoch: 4, sharedBinding: new(sharedBinding)}); len(older) != 1 || older[0] != c3 || table.conn(7) != nil {
		t.Fatal("older than what was attached elsewhere")
	}
	// The same attach again, from elsewhere: it takes the session from where it was attached, and not from where it was presented.
	home := new(shardHost)
	presented, _ := bind(c, 4)
	attached := &binding{session: 7, epoch: 4, sharedBinding: &sharedBinding{conn: a, home: home}}
	if older := table.insert(attached); len(older) != 0 {
		t.Fatal("an attach took the session from where it was presented")
	}
	if older := table.insert(&binding{session: 7, epoch: 4, sharedBinding: &sharedBinding{conn: b, home: home}}); len(older) != 1 || older[0] != attached || presented.removed.Load() {
		t.Fatalf("the same attach again: %v", older)
	}
	if older := table.removeOlder(&binding{session: 7, epoch: 4, sharedBinding: &sharedBinding{home: home}}); len(older) != 1 || older[0].conn != b || presented.removed.Load() {
		t.Fatalf("the same attach again, through a connection that is closed: %v", older)
	}
	bind(a, 5)
	bind(b, 5)
	if all := table.removeAll(7); len(all) != 2 || table.conn(7) != nil || table.newestEpoch(7) != 0 {
		t.Fatal("the end")
	}
}

func TestSessionSet(t *testing.T) {
	var set sessionSet
	bindings := make([]*binding, 4)
	for i := range bindings {
		bindings[i] = &binding{session: uint64(i + 1)}
	}
	check := func(want ...*binding) {
		t.Helper()
		seen := map[*binding]bool{}
		set.each(func(b *binding) { seen[b] = true })
		if set.len() != len(want) || len(seen) != len(want) {
			t.Fatalf("%d bindings, %d seen, want %d", set.len(), len(seen), len(want))
		}
		for _, b := range want {
			if set.get(b.session) != b || !seen[b] {
				t.Fatalf("session %d is not found", b.session)
			}
		}
	}
	check()
	a, again := bindings[0], &binding{session: 1}
	if set.put(a) != nil || set.put(again) != a {
		t.Fatal("replaced something else")
	}
	check(again)
	set.remove(2)
	set.remove(1)
	check()
	for _, b := range bindings {
		set.put(b)
	}
	check(bindings...)
	if set.put(again) != a {
		t.Fatal("replaced something else")
	}
	for _, b := range bindings {
		set.remove(b.session)
	}
	check()
	set.put(a)
	check(a)
}

// TestPongs: with a session at home here there are two pongs; without, one at once.
func TestPongs(t *testing.T) {
	s := start(t, nil)
	c := connect(t, s)
	c.ping()
	r := c.session(c.node(), 1)
	homes := 0
	for i := range uint64(50) {
		c.write(protocol.AppendFrame(nil, protocol.KindPing, 1000+i, 0, nil))
	}
	own := map[uint64]bool{}
	for len(own) < 50 || homes == 0 {
		h := c.event(protocol.KindPong, nil)
		if h.Arg == 0 {
			own[h.ID] = true
		} else if h.Arg == r.Shard {
			homes++
		} else {
			t.Fatalf("shard %d renews", h.Arg)
		}
	}
	c.write(protocol.AppendFrame(nil, protocol.KindPing, 2000, 0, nil))
	c.find("the last ping's own pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 2000 && h.Arg == 0 })
	c.find("the last ping's home pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 2000 && h.Arg == r.Shard })
	// Nor does a home renew while one of the sessions lives by an attach that is not in the log.
	d := s.shards.get(r.Shard)
	var sc *conn
	s.eachConn(func(x *conn) { sc = x })
	sc.addBinding(&binding{session: 7, sharedBinding: &sharedBinding{home: d, conn: sc}, unlogged: true}, 0)
	for _, id := range []uint64{2500, 2501} {
		c.write(protocol.AppendFrame(nil, protocol.KindPing, id, 0, nil))
		c.find("a pong of the connection", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == id && h.Arg == 0 })
	}
	sc.addBinding(&binding{session: 7, sharedBinding: &sharedBinding{home: d, conn: sc}}, 0)
	c.write(protocol.AppendFrame(nil, protocol.KindPing, 2600, 0, nil))
	c.find("a pong of the home", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 2600 && h.Arg == r.Shard })
	for _, h := range c.later {
		if h.Kind == protocol.KindPong && h.ID >= 2500 && h.ID < 2600 && h.Arg != 0 {
			t.Fatalf("the home renewed by an attach that it does not have, with ping %d", h.ID)
		}
	}
	// A home that says nothing holds up nobody's own pong.
	for _, d := range s.shards.all() {
		d.raft.Exclusive(func(*shard.Machine) {
			c.write(protocol.AppendFrame(nil, protocol.KindPing, 3000+d.id, 0, nil))
			c.find("a pong of a shard that stands still", func(h protocol.Header) bool {
				return h.Kind == protocol.KindPong && h.ID == 3000+d.id && h.Arg == 0
			})
		})
	}
}

package integration

import (
	"reflect"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestNewLeader: sessions at home in a shard are detached when a new term leads it, so that they
// are attached again; those at home elsewhere stay, and so do the connections. A repeated
// take-over of the same term detaches nobody.
func TestNewLeader(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	bystander := connect(t, s)
	node := bystander.node()
	c := connect(t, s)
	r := c.session(node, 1)
	other := r
	for n := uint64(2); other.Shard == r.Shard; n++ {
		other = c.session(node, n)
	}
	d := s.Serving.Shards.Get(r.Shard)
	var epoch uint64
	d.Replica().View(func(m *shard.Machine) { epoch = m.Epoch() })
	for _, step := range []struct {
		epoch    uint64
		detaches bool
	}{{epoch + 1, false}, {epoch + 1<<16, true}} {
		d.Replica().Exclusive(func(*shard.Machine) {
			d.Applied(d.Replica(), 0, nil, &shard.Events{List: []shard.Event{{Kind: shard.EventTookOver, Epoch: step.epoch}}})
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
	t.Parallel()
	s := start(t, nil)
	first := connect(t, s)
	node := first.node()
	r := first.session(node, 1)
	d := s.Serving.Shards.Get(r.Shard)
	var id uint64
	s.Requests.EachClient(func(c *request.Client) { id = c.ID() })
	origin := replica.Origin{Conn: id, Request: r.Session, Kind: protocol.KindSessionAttach, Tag: request.UnloggedNote}
	reply := func(st protocol.Status) {
		d.Replica().Exclusive(func(*shard.Machine) {
			d.Applied(d.Replica(), 0, []replica.Origin{origin},
				&shard.Events{List: []shard.Event{{Kind: shard.EventReply, Status: st, Text: "gone"}}})
			s.Requests.Flush()
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
	d.Failed(d.Replica(), []replica.Origin{origin}, protocol.StatusUnavailable)
	if g := first.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
}

// TestEventsReachTheirSession: each event of the log for a session is a frame on the connection
// that has the session. An answer to a command that came through another instance is none.
func TestEventsReachTheirSession(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	r := c.session(c.node(), 1)
	d := s.Serving.Shards.Get(r.Shard)
	applied := func(e shard.Event) {
		e.Session = r.Session
		d.Replica().Exclusive(func(*shard.Machine) {
			d.Applied(d.Replica(), 0, nil, &shard.Events{List: []shard.Event{e}})
		})
	}
	name := []byte("s")
	var result protocol.AcquireResult
	applied(shard.Event{Kind: shard.EventAcquireResult, Seq: 3, Status: protocol.StatusOK, State: protocol.Acquired, OrderID: 9, Text: "why"})
	c.event(protocol.KindAcquireResult, &result)
	if want := (protocol.AcquireResult{Session: r.Session, Seq: 3, State: protocol.Acquired, OrderID: 9, Message: "why"}); !reflect.DeepEqual(result, want) {
		t.Errorf("a grant: %+v, want %+v", result, want)
	}
	var lost protocol.LeaseLost
	applied(shard.Event{Kind: shard.EventLeaseLost, Name: name, OrderID: 9, Text: "by force", Cause: 1})
	c.event(protocol.KindLeaseLost, &lost)
	if want := (protocol.LeaseLost{Session: r.Session, Name: name, OrderID: 9, Message: "by force", Cause: 1}); !reflect.DeepEqual(lost, want) {
		t.Errorf("what was taken: %+v, want %+v", lost, want)
	}
	for _, command := range []int{0, 1, -1} {
		applied(shard.Event{Kind: shard.EventReply, Command: command})
	}
	c.ping()
	if len(c.later) != 0 {
		t.Errorf("%d frames came for other instances' commands", len(c.later))
	}
	var ended protocol.SessionEnded
	applied(shard.Event{Kind: shard.EventSessionEnded, Reason: protocol.EndExpired, Text: "late", Ending: new(protocol.Ending)})
	c.event(protocol.KindSessionEnded, &ended)
	if want := (protocol.SessionEnded{Session: r.Session, Reason: protocol.EndExpired, Message: "late"}); ended != want {
		t.Errorf("an end: %+v, want %+v", ended, want)
	}
	applied(shard.Event{Kind: shard.EventAcquireResult, Seq: 4, Status: protocol.StatusSessionExpired, Text: "gone"})
	c.event(protocol.KindAcquireResult, &result)
	if result.Seq != 4 || result.Message != "late" {
		t.Errorf("a result after the end: %+v, want the reason of the end", result)
	}
}

// TestLogFasterThanRelaxedAttach: the log has an attach, and what became of its session, before the
// attach is bound. The binding says what the log does, and does not keep the home from renewing
// other sessions.
func TestLogFasterThanRelaxedAttach(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	d := s.Serving.Shards.Get(c.session(node, 1).Shard)
	var sc *request.Client
	s.Requests.EachClient(func(x *request.Client) { sc = x })
	elsewhere := connect(t, s)
	next := uint64(1)
	for name, fate := range map[string]struct {
		happens func(session uint64)
		other   uint64 // added to the attach's nonce
		want    protocol.Status
	}{
		"attached": {func(uint64) {}, 0, protocol.StatusOK},
		"ended": {func(id uint64) {
			c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(id)), &protocol.SessionStop{Session: id, Epoch: 1}, nil)
		}, 0, protocol.StatusSessionExpired},
		"attached elsewhere": {func(id uint64) {
			if _, err := elsewhere.attach(node, next, id, 2); err != nil {
				t.Fatal(err)
			}
		}, 0, protocol.StatusBadSession},
		"attached by another client": {func(uint64) {}, 1, protocol.StatusBadSession},
	} {
		next++
		r := c.session(node, next)
		fate.happens(r.Session)
		bad := sc.BindUnlogged(d, &protocol.SessionAttach{Session: r.Session, Node: node, Epoch: r.Epoch, Key: id16(next),
			Timeout: r.Timeout, Description: "raw", Nonce: next + 1 + fate.other})
		got := protocol.StatusOK
		if bad != nil {
			got = bad.Status
		}
		if got != fate.want || sc.Has(r.Session) != (got == protocol.StatusOK) {
			t.Errorf("%s: the attach is answered %v, bound: %v", name, bad, sc.Has(r.Session))
		}
		first := c.nextID
		await.True(t, "the home's pong, "+name, func() bool {
			c.ping()
			return slices.ContainsFunc(c.later, func(h protocol.Header) bool {
				return h.Kind == protocol.KindPong && h.ID > first && h.Arg == r.Shard
			})
		})
	}
}

// TestFailedAndLate: requests that never entered the log are answered so that they may be sent
// again, and what comes too late finds nobody.
func TestFailedAndLate(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	rejected := connect(t, s)
	var id uint64
	s.Requests.EachClient(func(c *request.Client) { id = c.ID() })
	var d *shardhost.Shard
	for _, d = range s.Serving.Shards.All() {
	}
	d.Failed(d.Replica(), []replica.Origin{
		{}, {Conn: id + 1<<24, Request: 4, Kind: protocol.KindAcquire}, {Conn: id, Request: 5, Kind: protocol.KindAcquire},
	}, protocol.StatusUnavailable)
	err := rejected.reply(protocol.KindAcquire, 5, nil)
	if protocol.StatusOf(err) != protocol.StatusUnavailable || !protocol.Retryable(err) {
		t.Fatal(err)
	}
	_ = rejected.nc.Close() // the server did not count the request that the test made up
	c := connect(t, s)
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
	await.True(t, "the connections to go", func() bool { return s.Transport.Connections() == 1 })
	await.True(t, "their sessions to be bound no more", func() bool { return s.Bindings.Len() == 0 })
}

// TestPongs: with a session at home here there are two pongs; without, one at once.
func TestPongs(t *testing.T) {
	t.Parallel()
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
			if len(own) >= 50 && homes == 0 { // on a busy machine the home may not have heard of the connection yet
				c.write(protocol.AppendFrame(nil, protocol.KindPing, 1000+uint64(len(own)), 0, nil))
			}
		} else if h.Arg == r.Shard {
			homes++
		} else {
			t.Fatalf("shard %d renews", h.Arg)
		}
	}
	c.write(protocol.AppendFrame(nil, protocol.KindPing, 2000, 0, nil))
	c.find("the last ping's own pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 2000 && h.Arg == 0 })
	c.find("the last ping's home pong", func(h protocol.Header) bool {
		return h.Kind == protocol.KindPong && h.ID == 2000 && h.Arg == r.Shard
	})
	// A ping may have any id.
	c.write(protocol.AppendFrame(nil, protocol.KindPing, 0, 0, nil))
	c.find("the home pong of ping 0", func(h protocol.Header) bool {
		return h.Kind == protocol.KindPong && h.ID == 0 && h.Arg == r.Shard
	})
	// Nor does a home renew while one of the sessions lives by an attach that is not in the log.
	d := s.Serving.Shards.Get(r.Shard)
	var sc *request.Client
	s.Requests.EachClient(func(x *request.Client) { sc = x })
	b := sc.NewBinding(7, 0, 0, d, "")
	b.Unlogged = true
	b.Bind(0)
	for _, id := range []uint64{2500, 2501} {
		c.write(protocol.AppendFrame(nil, protocol.KindPing, id, 0, nil))
		c.find("a pong of the connection", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == id && h.Arg == 0 })
	}
	for _, h := range c.later {
		if h.Kind == protocol.KindPong && h.ID >= 2500 && h.Arg != 0 {
			t.Fatalf("the home renewed by an attach that it does not have, with ping %d", h.ID)
		}
	}
	sc.NewBinding(7, 0, 0, d, "").Bind(0)
	c.find("a pong of the home, without another ping", func(h protocol.Header) bool {
		return h.Kind == protocol.KindPong && h.ID == 2501 && h.Arg == r.Shard
	})
	// A home that says nothing holds up nobody's own pong.
	for _, d := range s.Serving.Shards.All() {
		d.Replica().Exclusive(func(*shard.Machine) {
			c.write(protocol.AppendFrame(nil, protocol.KindPing, 3000+d.ID(), 0, nil))
			c.find("a pong of a shard that stands still", func(h protocol.Header) bool {
				return h.Kind == protocol.KindPong && h.ID == 3000+d.ID() && h.Arg == 0
			})
		})
	}
}

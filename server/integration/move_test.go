package integration

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestFrozenHome: the sessions at home in a bucket that is frozen leave their connection with a
// word; the others of the connection are renewed as before, and when the move is given up the first
// ones are attached again on the same connection.
func TestFrozenHome(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	first := c.session(node, 1)
	moving := uint64(protocol.SessionBucket(first.Session))
	var other protocol.SessionReply
	n := uint64(2)
	for ; other.Session == 0; n++ {
		if b := c.homeBucket(id16(n)); b != moving && s.shardAt(0, b).ID() == first.Shard {
			other = c.session(node, n)
		}
	}
	d := s.Serving.Shards.Get(first.Shard)
	step := func(kind shard.CommandKind, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: 16, First: uint32(moving), Count: 1, Epoch: epoch}
		if err := d.Replica().ProposeInternal(t.Context(), shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)}); err != nil {
			t.Fatal(err)
		}
	}
	renewed := func() {
		t.Helper()
		ping := c.send(protocol.KindPing, 0, &protocol.Empty{})
		c.find("the home's pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == ping && h.Arg == d.ID() })
	}
	renewed()

	step(shard.CmdFreeze, 100)
	var away protocol.Detached
	if c.event(protocol.KindDetached, &away); away != (protocol.Detached{Session: first.Session, Epoch: first.Epoch}) {
		t.Fatalf("detached: %+v", away)
	}
	renewed()
	if b := c.s.Bindings.Conn(first.Session); b != nil {
		t.Error("the session is still bound")
	}
	if _, err := c.lock(node, other.Session, "", 0); protocol.StatusOf(err) != protocol.StatusBadRequest {
		t.Errorf("the other session's request was answered %v", err)
	}
	if _, err := c.attach(node, 1, first.Session, first.Epoch+1); protocol.StatusOf(err) != protocol.StatusWrongShard {
		t.Errorf("attach at a frozen home was answered %v", err)
	} else if e := new(protocol.Error); !errors.As(err, &e) || e.Master != s.Instance() {
		t.Errorf("the refusal names %d as the leader, not this instance", e.Master)
	}

	step(shard.CmdActivate, 101)
	c.find("the word that the bucket is served", func(h protocol.Header) bool {
		var m protocol.MapChanged
		return h.Kind == protocol.KindMapChanged && protocol.DecodeBody(&m, h.Body) == nil && m.Shard == d.ID() && m.Master == s.Instance()
	})
	if r, err := c.attach(node, 1, first.Session, first.Epoch+2); err != nil || r.Epoch != first.Epoch+2 {
		t.Fatalf("attach at a home that serves again: %+v, %v", r, err)
	}
	renewed()
	if len(c.later) > 0 && c.later[0].Kind == protocol.KindDetached {
		t.Error("detached twice")
	}
}

// TestMovingBucketStaysOutOfTheLog: a request for a bucket that moves, and that its shard does not
// serve now, is refused without a log entry, as the log would refuse it. Requests for other buckets
// are not held up, and the bucket is served again as soon as its copy is active.
func TestMovingBucketStaysOutOfTheLog(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	first := c.session(node, 1)
	moving := protocol.SessionBucket(first.Session)
	d := s.Serving.Shards.Get(first.Shard)
	step := func(kind shard.CommandKind, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: 16, First: uint32(moving), Count: 1, Epoch: epoch}
		if err := d.Replica().ProposeInternal(t.Context(), shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)}); err != nil {
			t.Fatal(err)
		}
	}
	// The map has the move, as the governor would have begun it.
	to := first.Shard + 1
	if _, ok := s.Meta.State().Shard(to); !ok {
		to = first.Shard - 1
	}
	moved := meta.Machine{State: *s.Meta.State()}
	if res, err := meta.DecodeResult(moved.Apply(1<<40, meta.AppendCommand(nil, meta.OpID{1},
		&meta.MoveBegin{First: uint32(moving), Count: 1, From: first.Shard, To: to}))); err != nil || res.Err() != nil {
		t.Fatal(res, err)
	}
	s.Requests.MapChanged(&moved.State)

	// Until the freeze it serves.
	if r, err := c.attach(node, 1, first.Session, first.Epoch+1); err != nil || r.Epoch != first.Epoch+1 {
		t.Fatalf("attach before the freeze: %+v, %v", r, err)
	}
	step(shard.CmdFreeze, 100)
	before := d.Replica().Stats().Commands
	for n := range uint64(5) {
		_, err := c.attach(node, 1, first.Session, first.Epoch+2+n)
		if e := new(protocol.Error); !errors.As(err, &e) || e.Status != protocol.StatusWrongShard || e.Master != s.Instance() {
			t.Fatalf("attach at a frozen home: %v", err)
		}
	}
	if n := d.Replica().Stats().Commands - before; n != 0 {
		t.Errorf("%d commands were logged", n)
	}
	step(shard.CmdActivate, 101)
	if r, err := c.attach(node, 1, first.Session, first.Epoch+9); err != nil || r.Epoch != first.Epoch+9 {
		t.Fatalf("attach at a home that serves again: %+v, %v", r, err)
	}
}

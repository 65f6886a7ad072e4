package integration

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestWatchBesideWrites arms a watch while somebody writes, a little before or after it, again and
// again. A client that was answered with the value of before hears of the write, although no other
// write follows that would tell: the read and the registration are of one moment, for one-shot
// watches and for streams, relaxed and strict.
func TestWatchBesideWrites(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	w, r := connect(t, s), connect(t, s)
	node := w.node()
	writer, reader := w.session(node, 1).Session, r.session(node, 2).Session
	b := w.bucket(node, "cfg")
	w.must(protocol.KindCreate, b, &protocol.Create{Head: w.head(writer), Name: []byte("cfg"), Limit: 1}, nil)
	var now protocol.DescribeReply
	w.must(protocol.KindDescribe, b, &protocol.Describe{Node: node, Name: []byte("cfg"), Consistency: protocol.Strict}, &now)
	version := now.Version
	w.besideWrites(400, func(round uint64) (kind protocol.Kind, written uint64) {
		return protocol.KindUpdate, w.send(protocol.KindUpdate, b,
			&protocol.Update{Head: w.head(writer), Name: []byte("cfg"), Data: []byte{byte(round)}})
	}, func(round uint64) (old bool) {
		version++
		if round%3 == 0 {
			return r.streamBeside(s, node, b, version)
		}
		return r.oneShotBeside(node, reader, b, round, version)
	})
}

// TestStreamsBesideWrites is the same for streams over a process and over a rollout: who was sent
// the state of before is sent the change.
func TestStreamsBesideWrites(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	t.Run("process", func(t *testing.T) {
		w, r := newMemberClient(t, s, "queue", 1), connect(t, s)
		w.join("one")
		name, at := []byte("queue"), w.bucket()
		backoff := func(round uint64) uint64 { return 100 + round%100 }
		w.besideWrites(200, func(round uint64) (kind protocol.Kind, written uint64) {
			return protocol.KindProcessAlter, w.send(protocol.KindProcessAlter, at, &protocol.ProcessAlter{
				Node: w.node, Name: name, Options: protocol.ProcessOptions{BackoffMin: backoff(round)}})
		}, func(round uint64) (old bool) {
			var state protocol.ProcessState
			stream := r.openBeside(at, protocol.KindProcessWatch, &protocol.ProcessWatch{Node: w.node, Name: name},
				protocol.KindProcessState, &state)
			old = state.Status.Options.BackoffMin != backoff(round)
			r.closeBeside(at, stream, protocol.KindProcessChanges, old)
			return old
		})
	})
	t.Run("track", func(t *testing.T) {
		k, r := newTrackKit(t, s), connect(t, s)
		k.besideWrites(200, func(round uint64) (kind protocol.Kind, written uint64) {
			verb := protocol.TrackPause
			if round%2 == 0 {
				verb = protocol.TrackResume
			}
			return protocol.KindTrackAdmin, k.send(protocol.KindTrackAdmin, k.at,
				&protocol.TrackAdmin{Head: k.head(k.session), Name: k.name, Verb: verb})
		}, func(round uint64) (old bool) {
			var state protocol.TrackStatus
			stream := r.openBeside(k.at, protocol.KindTrackWatch, &protocol.TrackWatch{Node: k.node, Name: k.name},
				protocol.KindTrackStatus, &state)
			old = state.Paused != (round%2 == 1)
			r.closeBeside(k.at, stream, protocol.KindTrackEvents, old)
			return old
		})
	})
}

// besideWrites sends a write and reads at some moment of the time that the write takes, on another
// connection, until enough reads were before their write and enough after it. Read reports whether it
// was before, and has seen to it that the write is told of then.
func (c *raw) besideWrites(rounds uint64, write func(round uint64) (protocol.Kind, uint64), read func(round uint64) (old bool)) {
	c.t.Helper()
	before, after := 0, 0
	for round := uint64(1); round <= rounds || before < 20 || after < 20; round++ {
		if round == 20_000 {
			c.t.Fatalf("%d reads before the write, %d after it: the test has lost its way", before, after)
		}
		kind, written := write(round)
		for until := time.Now().Add(time.Duration(rand.IntN(400)) * time.Microsecond); time.Now().Before(until); {
			runtime.Gosched() // anywhere in the time that a write takes
		}
		if read(round) {
			before++
		} else {
			after++
		}
		if err := c.reply(kind, written, nil); err != nil {
			c.t.Fatal(err)
		}
	}
	c.t.Logf("%d reads before the write, %d after it", before, after)
}

// openBeside opens a stream over a process or a track, and reads the state that it begins with.
func (c *raw) openBeside(bucket uint64, kind protocol.Kind, m protocol.Message, begin protocol.Kind, state protocol.Message) (id uint64) {
	c.t.Helper()
	id = c.send(kind, bucket, m)
	if err := c.reply(kind, id, nil); err != nil {
		c.t.Fatal(err)
	}
	if h := c.event(begin, state); h.ID != id {
		c.t.Fatalf("the state is of stream %d, want %d", h.ID, id)
	}
	return id
}

// closeBeside closes a stream, when it has been told of the write if its state was that of before:
// no other write is under way.
func (c *raw) closeBeside(bucket, id uint64, change protocol.Kind, old bool) {
	c.t.Helper()
	if old {
		c.find("the change", func(h protocol.Header) bool { return h.Kind == change && h.ID == id })
	}
	c.must(protocol.KindUnwatch, bucket, &protocol.Unwatch{WatchID: id}, nil)
	c.later = nil // told before it was closed
}

// oneShotBeside reads with a one-shot watch while version is being written, and reports whether it
// read what was before it.
func (c *raw) oneShotBeside(node, session, b, id, version uint64) (old bool) {
	c.t.Helper()
	var d protocol.DescribeReply
	c.must(protocol.KindDescribe, b, &protocol.Describe{
		Session: session, Node: node, Name: []byte("cfg"), Flags: protocol.WatchData, WatchID: id,
		Consistency: protocol.Consistency(1 + id%2),
	}, &d)
	if d.Version == version {
		return false // its watch fires with the next write
	}
	for {
		var f protocol.WatchFired
		c.event(protocol.KindWatchFired, &f)
		if f.WatchID == id {
			return true
		}
	}
}

// streamBeside is the same with a stream.
func (c *raw) streamBeside(s *instance, node, b, version uint64) (old bool) {
	c.t.Helper()
	id := c.send(protocol.KindWatch, b, &protocol.Watch{Shard: s.shardAt(0, b).ID(), Node: node, Name: []byte("cfg")})
	if err := c.reply(protocol.KindWatch, id, nil); err != nil {
		c.t.Fatal(err)
	}
	for seen, index := uint64(0), uint64(0); seen < version; {
		h := c.find("what the stream tells", func(h protocol.Header) bool {
			return h.Kind == protocol.KindDelta || h.Kind == protocol.KindSnapshot && h.ID == id
		})
		if h.Kind == protocol.KindDelta {
			var delta protocol.Delta
			if err := protocol.DecodeBody(&delta, h.Body); err != nil {
				c.t.Fatal(err)
			}
			if index > 0 && delta.Index > index {
				break // the write is the only one since
			}
			continue
		}
		var snap protocol.Snapshot
		if err := protocol.DecodeBody(&snap, h.Body); err != nil || len(snap.Semaphores) != 1 {
			c.t.Fatalf("snapshot: %+v, %v", snap, err)
		}
		seen, index = snap.Semaphores[0].Version, snap.Index
		old = seen < version
	}
	c.must(protocol.KindUnwatch, b, &protocol.Unwatch{WatchID: id}, nil)
	return old
}

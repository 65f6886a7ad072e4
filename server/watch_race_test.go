package server

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
	s := start(t, nil)
	w, r := connect(t, s), connect(t, s)
	node := w.node()
	writer, reader := w.session(node, 1).Session, r.session(node, 2).Session
	b := w.bucket(node, "cfg")
	w.must(protocol.KindCreate, b, &protocol.Create{Head: w.head(writer), Name: []byte("cfg"), Limit: 1}, nil)
	var now protocol.DescribeReply
	w.must(protocol.KindDescribe, b, &protocol.Describe{Node: node, Name: []byte("cfg"), Consistency: protocol.Strict}, &now)
	version := now.Version
	before, after := 0, 0
	for round := uint64(1); round <= 400 || before < 20 || after < 20; round++ {
		if round == 20_000 {
			t.Fatalf("%d reads before the write, %d after it: the test has lost its way", before, after)
		}
		written := w.send(protocol.KindUpdate, b, &protocol.Update{Head: w.head(writer), Name: []byte("cfg"), Data: []byte{byte(round)}})
		for until := time.Now().Add(time.Duration(rand.IntN(400)) * time.Microsecond); time.Now().Before(until); {
			runtime.Gosched() // anywhere in the time that a write takes
		}
		version++
		var old bool
		if round%3 == 0 {
			old = r.streamBeside(s, node, b, version)
		} else {
			old = r.oneShotBeside(node, reader, b, round, version)
		}
		if old {
			before++
		} else {
			after++
		}
		if err := w.reply(protocol.KindUpdate, written, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d reads before the write, %d after it", before, after)
}

// oneShotBeside reads with a one-shot watch while version is being written, and says whether it
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
func (c *raw) streamBeside(s *Server, node, b, version uint64) (old bool) {
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
			if err := delta.DecodeBody(h.Body); err != nil {
				c.t.Fatal(err)
			}
			if index > 0 && delta.Index > index {
				break // the write is the only one since
			}
			continue
		}
		var snap protocol.Snapshot
		if err := snap.DecodeBody(h.Body); err != nil || len(snap.Semaphores) != 1 {
			c.t.Fatalf("snapshot: %+v, %v", snap, err)
		}
		seen, index = snap.Semaphores[0].Version, snap.Index
		old = seen < version
	}
	c.must(protocol.KindUnwatch, b, &protocol.Unwatch{WatchID: id}, nil)
	return old
}

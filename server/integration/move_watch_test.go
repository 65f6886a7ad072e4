package integration

import (
	"fmt"
	"maps"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestWatchesOfFrozenBucket: watches that were opened before a bucket is frozen are notified that
// it leaves the shard. Later ones are refused, and the refusal says what those of requests say.
func TestWatchesOfFrozenBucket(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	k := newTrackKit(t, s)
	d := s.shardAt(0, k.at)
	name := ""
	for i := 0; name == ""; i++ {
		if x := fmt.Sprint("name-", i); k.bucket(k.node, x) == k.at {
			name = x
		}
	}
	w := connect(t, s)
	n := uint64(2)
	for b := w.homeBucket(id16(n)); b == k.at || s.shardAt(0, b) != d; b = w.homeBucket(id16(n)) {
		n++
	}
	session := w.session(k.node, n).Session
	w.must(protocol.KindCreate, k.at, &protocol.Create{Head: w.head(session), Name: []byte(name), Limit: 1}, nil)
	ofName := &protocol.Watch{Shard: d.ID(), Node: k.node, Name: []byte(name)}
	ofTrack := &protocol.TrackWatch{Node: k.node, Name: k.name}
	// snapshot waits for a stream's state, and reports whether it is about the bucket.
	snapshot := func(id uint64) (has bool) {
		t.Helper()
		h := w.find("a snapshot", func(h protocol.Header) bool { return h.Kind == protocol.KindSnapshot && h.ID == id })
		var m protocol.Snapshot
		if err := protocol.DecodeBody(&m, h.Body); err != nil {
			t.Fatal(err)
		}
		first := uint64(0)
		for _, run := range m.Runs {
			if k.at-first < uint64(run.Count) {
				has = run.Epoch > 0
			}
			first += uint64(run.Count)
		}
		return has
	}

	stream := w.send(protocol.KindWatch, k.at, ofName)
	snapshot(stream)
	prefix := w.send(protocol.KindWatch, k.at, &protocol.Watch{Shard: d.ID(), Node: k.node, Prefix: true})
	if !snapshot(prefix) {
		t.Error("the stream of all names is not about the bucket")
	}
	track := w.send(protocol.KindTrackWatch, k.at, ofTrack)
	w.event(protocol.KindTrackStatus, nil)
	w.must(protocol.KindDescribe, k.at, &protocol.Describe{
		Session: session, Node: k.node, Name: []byte(name), Flags: protocol.WatchOwners, WatchID: 9}, nil)

	k.moveStep(shard.CmdFreeze, 100)
	cuts := make(map[uint64]protocol.Status)
	for range 2 {
		var cut protocol.StreamCut
		h := w.event(protocol.KindStreamCut, &cut)
		cuts[h.ID] = cut.Status
	}
	if want := map[uint64]protocol.Status{stream: protocol.StatusWrongShard, track: protocol.StatusWrongShard}; !maps.Equal(cuts, want) {
		t.Errorf("streams are cut with %v, want %v", cuts, want)
	}
	var fired protocol.WatchFired
	if w.event(protocol.KindWatchFired, &fired); fired != (protocol.WatchFired{Session: session, WatchID: 9}) {
		t.Errorf("the one-shot watch fires with %+v", fired)
	}
	if snapshot(prefix) {
		t.Error("the stream of all names is about the frozen bucket")
	}
	want := protocol.Failure{Master: s.Instance(), Shard: d.ID(), MapVersion: s.Meta.State().MapVersion()}
	for kind, m := range map[protocol.Kind]protocol.Message{protocol.KindWatch: ofName, protocol.KindTrackWatch: ofTrack} {
		if e := w.wrongShard(kind, k.at, m); e.Master != want.Master || e.Shard != want.Shard || e.MapVersion != want.MapVersion {
			t.Errorf("%v is refused with %+v, want %+v", kind, e, want)
		}
	}
	w.must(protocol.KindWatch, k.at, &protocol.Watch{Shard: d.ID(), Node: k.node, Name: []byte(name), Prefix: true}, nil)

	k.moveStep(shard.CmdActivate, 101)
	snapshot(w.send(protocol.KindWatch, k.at, ofName))
	if !snapshot(prefix) {
		t.Error("the stream of all names is not about the bucket that is served again")
	}
}

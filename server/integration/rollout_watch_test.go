package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// TestRolloutWatchBounds: streams are bounded in number, closed with their connection or by
// request, and what a client does not read is not kept.
func TestRolloutWatchBounds(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.MaxStreams, c.Limits.MaxWatchers = 2, 3 })
	k := newTrackKit(t, s)
	d := k.host()
	watch := &protocol.TrackWatch{Node: k.node, Name: k.name}
	open := func(c *raw) (id uint64, err error) {
		id = c.send(protocol.KindTrackWatch, k.at, watch)
		return id, c.reply(protocol.KindTrackWatch, id, nil)
	}
	first, err := open(k.raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(k.raw); err != nil {
		t.Fatal(err)
	}
	if _, err := open(k.raw); !errors.Is(err, protocol.StatusOverloaded) || !strings.Contains(err.Error(), "limited to 2") {
		t.Errorf("a third stream of a connection was answered %v", err)
	}
	other := connect(t, s)
	if _, err := open(other); err != nil {
		t.Fatal(err)
	}
	if _, err := open(other); !errors.Is(err, protocol.StatusOverloaded) || !strings.Contains(err.Error(), "limited to 3") {
		t.Errorf("a fourth watcher of a track was answered %v", err)
	}
	k.must(protocol.KindUnwatch, k.at, &protocol.Unwatch{WatchID: first}, nil)
	if _, err := open(other); err != nil {
		t.Errorf("after one was closed another was answered %v", err)
	}
	_ = other.nc.Close()
	await.True(t, "the streams of a connection to go with it", func() bool { return d.Hubs().Tracks.Len() == 1 })

	// Of one location, and of what an instance needs, no more is told.
	narrow := connect(t, s)
	narrow.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name, Location: "MAN", Targets: true}, nil)
	narrow.event(protocol.KindTrackStatus, nil)
	v := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, v)
	await.True(t, "the second location to have it", func() bool { return k.poll("man-1", k.man, 0, 0).Version == v })
	for notified := false; !notified; {
		var m protocol.TrackEvents
		narrow.event(protocol.KindTrackEvents, &m)
		for _, e := range m.Events {
			switch {
			case e.Location != "MAN" || e.Kind != protocol.TrackEventTarget && e.State != protocol.StateReady:
				t.Fatalf("notified of %+v", e)
			case e.Kind == protocol.TrackEventTarget:
				notified = e.Version == v
			}
		}
	}
}

// TestRolloutManyEvents: an entry that changes more than one frame has room for is sent in several.
func TestRolloutManyEvents(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Shards, c.Limits.OutSoft, c.Limits.OutHard = 1, 8<<20, 8<<20 })
	k := newTrackKit(t, s)
	watcher := connect(t, s)
	watcher.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	watcher.event(protocol.KindTrackStatus, nil)
	seen := func(kind protocol.TrackEventKind, first, end int) (frames int) {
		t.Helper()
		for n := first; n < end; frames++ {
			var m protocol.TrackEvents
			if h := watcher.event(protocol.KindTrackEvents, &m); len(h.Body) > protocol.MaxFrameLen/2 {
				t.Fatalf("a frame of %d bytes with %d events", len(h.Body), len(m.Events))
			}
			for i := range m.Events {
				if e := &m.Events[i]; e.Kind == kind {
					if id := fmt.Sprintf("%0255d", n); e.Instance != id {
						t.Fatalf("event of %s, want %s", e.Instance, id)
					}
					n++
				}
			}
		}
		return frames
	}

	const instances, window = 5_000, 200
	owner := connect(t, s)
	session := owner.session(k.node, 2).Session
	for first := 0; first < instances; first += window {
		var ids [window]uint64
		for i := range ids {
			ids[i] = owner.send(protocol.KindTrackRegister, k.at, &protocol.TrackRegister{Head: owner.head(session), Name: k.name,
				ID: fmt.Sprintf("%0255d", first+i), Location: "SAS", Role: protocol.InstanceFollower})
		}
		for _, id := range ids {
			if err := owner.reply(protocol.KindTrackRegister, id, nil); err != nil {
				t.Fatal(err)
			}
		}
		seen(protocol.TrackEventJoined, first, first+window)
	}
	owner.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(session)), &protocol.SessionStop{Session: session, Epoch: 1}, nil)
	if frames := seen(protocol.TrackEventLeft, 0, instances); frames < 2 {
		t.Errorf("%d instances left in %d frame", instances, frames)
	}
	watcher.ping()
}

// TestRolloutBehind: a client that reads nothing gets the status again when it reads again, and
// what is kept for it meanwhile is bounded.
func TestRolloutBehind(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.OutSoft = transport.MinOutSoft })
	k := newTrackKit(t, s)
	slow := connect(t, s)
	slow.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	slow.event(protocol.KindTrackStatus, nil)
	// What is not read fills the sockets' buffers first.
	stands := func() bool { return k.host().Hubs().Tracks.Waiting() > 0 }
	for !stands() {
		for range 200 {
			m := &protocol.TrackAdmin{Head: k.head(k.session), Name: k.name, Verb: protocol.TrackPause}
			if k.seq%2 == 0 {
				m.Verb = protocol.TrackResume
			}
			k.send(protocol.KindTrackAdmin, k.at, m)
		}
		for id := k.nextID - 199; id <= k.nextID; id++ {
			if err := k.reply(protocol.KindTrackAdmin, id, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := k.publish("last")
	k.poll("sas-1", k.sas, 0, 0)
	var m protocol.TrackStatus
	for m.Last != v {
		slow.event(protocol.KindTrackStatus, &m)
	}
	slow.ping()
}

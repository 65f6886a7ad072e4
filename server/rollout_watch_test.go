package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// TestRolloutWatchBounds: streams are bounded in number, closed with their connection or by
// request, and what a client does not read is not kept.
func TestRolloutWatchBounds(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.MaxStreams, c.Limits.MaxWatchers = 2, 3 })
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
	await.True(t, "the streams of a connection to go with it", func() bool { return d.Delivery().Tracks.Len() == 1 })

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

// TestRolloutBehind: a client that reads nothing gets the status again when it reads again, and
// what is kept for it meanwhile is bounded.
func TestRolloutBehind(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.OutSoft = transport.MinOutSoft })
	k := newTrackKit(t, s)
	slow := connect(t, s)
	slow.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	slow.event(protocol.KindTrackStatus, nil)
	// What is not read fills the sockets' buffers first.
	stands := func() bool { return k.host().Delivery().Tracks.Waiting() > 0 }
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

package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestTrackFenced: a registration that another one has taken is told at once, and the session is not doubted for it.
func TestTrackFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.sessionIn(t, f.open(t), 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindTrackPoll {
					fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusBadSession), &protocol.Failure{Message: "FENCED: a newer incarnation is registered"})
				}
				return h.Kind == protocol.KindTrackPoll
			}
		})
		track := s.Track(nameIn(0))
		m := &protocol.TrackPoll{Session: s.ID(), Name: []byte(track.Name()), ID: "a", Incarnation: 1}
		if err := track.Tell(bg, protocol.KindTrackPoll, m, &protocol.TrackPollReply{}); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := f.count(protocol.KindTrackPoll); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if n := f.count(protocol.KindSessionAttach); n != 0 {
			t.Errorf("attached anew %d times", n)
		}
	})
}

// TestTrackUnsupported: a server without rollouts says so, to each kind of call, and is not asked again.
func TestTrackUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.sessionIn(t, f.open(t), 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind >= protocol.KindTrackCreate && h.Kind <= protocol.KindTrackWatch {
					fc.fail(h, protocol.StatusUnsupported)
					return true
				}
				return false
			}
		})
		track := s.Track(nameIn(1))
		create := &protocol.TrackCreate{Name: []byte(track.Name())}
		if err := track.Change(bg, protocol.KindTrackCreate, &create.Head, create, &protocol.TrackRevision{}); !errors.Is(err, Unsupported) {
			t.Error(err)
		}
		if err := track.Read(bg, protocol.KindTrackDescribe, &protocol.TrackDescribe{Name: []byte(track.Name())}, &protocol.TrackStatus{}); !errors.Is(err, Unsupported) {
			t.Error(err)
		}
		for _, err := range track.Watch(bg, "", false) {
			if !errors.Is(err, Unsupported) {
				t.Error(err)
			}
		}
		reader := s.Node().Track(track.Name())
		if err := reader.Change(bg, protocol.KindTrackCreate, &create.Head, create, &protocol.TrackRevision{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if err := reader.Tell(bg, protocol.KindTrackPoll, &protocol.TrackPoll{}, &protocol.TrackPollReply{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		for _, kind := range []protocol.Kind{protocol.KindTrackCreate, protocol.KindTrackDescribe, protocol.KindTrackWatch} {
			if n := f.count(kind); n != 1 {
				t.Errorf("%v was sent %d times", kind, n)
			}
		}
	})
}

// TestTrackWatchBegins: a watch begins anew, with a status, when its shard is led elsewhere, when its connection is lost and when its consumer fell behind; the server is
// told of its end.
func TestTrackWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		opened := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindTrackWatch {
					if h.Kind == protocol.KindUnwatch {
						fc.reply(h, &protocol.Empty{})
					}
					return h.Kind == protocol.KindUnwatch
				}
				opened++
				fc.reply(h, &protocol.Empty{})
				fc.send(protocol.KindTrackStatus, h.ID, 1, &protocol.TrackStatus{Last: uint64(opened), Name: []byte("geo/base")})
				switch opened {
				case 1:
					fc.send(protocol.KindStreamCut, h.ID, 1, &protocol.StreamCut{Status: protocol.StatusWrongShard, Message: "the leader moved"})
				case 2:
					_ = fc.nc.Close()
					delete(f.conns, fc)
				case 3:
					for i := range uint64(2 * maxStreamBacklog) {
						fc.send(protocol.KindTrackEvents, h.ID, 1, &protocol.TrackEvents{Revision: i})
					}
				}
				return true
			}
		})
		var statuses []uint64
		changes := 0
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		for news, err := range s.Track(nameIn(0)).Watch(ctx, "SAS", true) {
			if err != nil {
				t.Fatal(err)
			}
			if news.Status == nil {
				changes++
				continue
			}
			if string(news.Status.Name) != "geo/base" {
				t.Errorf("status of %q", news.Status.Name)
			}
			statuses = append(statuses, news.Status.Last)
			if news.Status.Last == 4 {
				break
			}
			time.Sleep(time.Minute) // the consumer is slow
		}
		synctest.Wait()
		last := statuses[len(statuses)-1]
		if last != 4 || changes >= 2*maxStreamBacklog {
			t.Errorf("statuses %v, %d changes", statuses, changes)
		}
		var m protocol.TrackWatch
		if err := m.DecodeBody(f.all(protocol.KindTrackWatch)[3].body); err != nil || m.Location != "SAS" || !m.Targets || string(m.Name) != nameIn(0) {
			t.Errorf("%+v, %v", m, err)
		}
		if n := f.count(protocol.KindUnwatch); n == 0 {
			t.Error("the server was not told that the watch is over")
		}
		for _, l := range c.allConnectors() {
			if cn := l.current.Load(); cn != nil {
				cn.mu.Lock()
				if len(cn.objectStreams) != 0 {
					t.Errorf("%d streams are left", len(cn.objectStreams))
				}
				cn.mu.Unlock()
			}
		}
	})
}

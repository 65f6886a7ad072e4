package client

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// trackEvents watches a track: statuses, and lists of events.
func trackEvents(ctx context.Context, o *object) iter.Seq2[any, error] {
	req := &protocol.TrackWatch{Node: o.NodeID(), Name: []byte(o.Name()), Location: "SAS", Targets: true}
	return o.Events(ctx, protocol.KindTrackWatch, req, func() rpc.Decoder {
		return func(h protocol.Header) (any, rpc.Step, error) {
			if h.Kind == protocol.KindTrackEvents {
				m := new(protocol.TrackEvents)
				return m, rpc.Append, m.DecodeBody(h.Body)
			}
			m := new(protocol.TrackStatus)
			err := m.DecodeBody(bytes.Clone(h.Body))
			return m, rpc.Replace, err
		}
	})
}

// TestTrackFenced: a registration that another one has taken is told at once, and the session is
// not doubted for it.
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
		track := newObject(s, nil, nameIn(0), protocol.Bucket)
		m := &protocol.TrackPoll{Session: s.ID(), Name: []byte(track.Name()), ID: "a", Incarnation: 1}
		if err := track.Send(bg, protocol.KindTrackPoll, m, &protocol.TrackPollReply{}); !errors.Is(err, BadSession) {
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

// TestTrackUnsupported: a server without rollouts says so, to each kind of call, and is not asked
// again.
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
		track := newObject(s, nil, nameIn(1), protocol.Bucket)
		create := &protocol.TrackCreate{Name: []byte(track.Name())}
		if err := track.Change(bg, protocol.KindTrackCreate, &create.Head, create, &protocol.TrackRevision{}); !errors.Is(err, Unsupported) {
			t.Error(err)
		}
		if _, err := track.Request(bg, protocol.KindTrackDescribe, &protocol.TrackDescribe{Name: []byte(track.Name())}, &protocol.TrackStatus{}); !errors.Is(err, Unsupported) {
			t.Error(err)
		}
		for _, err := range trackEvents(bg, track) {
			if !errors.Is(err, Unsupported) {
				t.Error(err)
			}
		}
		reader := newObject(nil, s.Node(), track.Name(), protocol.Bucket)
		if err := reader.Change(bg, protocol.KindTrackCreate, &create.Head, create, &protocol.TrackRevision{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if err := reader.Send(bg, protocol.KindTrackPoll, &protocol.TrackPoll{}, &protocol.TrackPollReply{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		for _, kind := range []protocol.Kind{protocol.KindTrackCreate, protocol.KindTrackDescribe, protocol.KindTrackWatch} {
			if n := f.count(kind); n != 1 {
				t.Errorf("%v was sent %d times", kind, n)
			}
		}
	})
}

// TestTrackWatchBegins: a watch begins anew, with a status, when its shard is led elsewhere, when
// its connection is lost and when its consumer fell behind; the server is told of its end.
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
		for event, err := range trackEvents(ctx, newObject(s, nil, nameIn(0), protocol.Bucket)) {
			if err != nil {
				t.Fatal(err)
			}
			status, ok := event.(*protocol.TrackStatus)
			if !ok {
				changes++
				continue
			}
			if string(status.Name) != "geo/base" {
				t.Errorf("status of %q", status.Name)
			}
			statuses = append(statuses, status.Last)
			if status.Last == 4 {
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

// TestProcessList: the lists of four shards, in pages, are one list in order of name; a shard that
// refuses ends it.
func TestProcessList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		n := f.sessionIn(t, c, 0).Node()
		of := map[uint64][]string{1: {"b", "d", "h"}, 2: {"a"}, 3: nil, 4: {"c", "e", "f", "g"}}
		refuse := false
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindProcessList {
					return false
				}
				m := decode[protocol.ProcessList](t, h.Body)
				if refuse && m.Shard == 4 {
					fc.fail(h, protocol.StatusForbidden)
					return true
				}
				names := of[m.Shard]
				if string(m.Prefix) != "p" || m.Consistency != protocol.Strict {
					t.Errorf("%+v", m)
				}
				at := 0
				if len(m.Cursor) > 0 {
					at = int(m.Cursor[0])
				}
				var reply protocol.ProcessListReply
				if at < len(names) {
					reply.Processes = []protocol.ProcessItem{{Name: []byte(names[at]), NumMembers: m.Shard}}
				}
				if at+1 < len(names) {
					reply.Cursor = []byte{byte(at + 1)}
				}
				fc.reply(h, &reply)
				return true
			}
		})
		list := ""
		for p, err := range n.processes(bg, "p") {
			if err != nil {
				t.Fatal(err)
			}
			list += string(p.Name)
		}
		if list != "abcdefgh" {
			t.Errorf("listed %q", list)
		}
		f.set(func() { refuse = true })
		var last error
		for _, err := range n.processes(bg, "p") {
			last = err
		}
		if !errors.Is(last, Forbidden) {
			t.Error(last)
		}
	})
}

// TestObjectWithoutSession: who only reads cannot take part, and is told so before anything is
// sent.
func TestObjectWithoutSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		p := newObject(nil, f.sessionIn(t, f.open(t), 0).Node(), "queue", protocol.ProcessBucket)
		if _, err := p.Handle(nil); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		m := &protocol.ProcessLeave{Name: []byte("queue")}
		if err := p.Change(bg, protocol.KindProcessLeave, &m.Head, m, &protocol.ProcessLeaveReply{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if err := p.Send(bg, protocol.KindProcessSync, &protocol.ProcessSync{}, &protocol.Empty{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if p.SessionID() != 0 || p.Name() != "queue" || f.count(protocol.KindProcessLeave)+f.count(protocol.KindProcessSync) > 0 {
			t.Error("something was sent")
		}
		time.Sleep(time.Second)
	})
}

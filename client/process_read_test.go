package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestProcessWatch: a state comes in pages and is told whole; changes follow; a cut and a lost connection begin anew, and half a state is never told.
func TestProcessWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.sessionIn(t, f.open(t), 0)
		opened := 0
		page := func(first, last bool, epoch uint64, members ...uint64) *protocol.ProcessState {
			m := &protocol.ProcessState{First: first, Last: last, Exists: true, Status: protocol.ProcessStatus{Name: []byte("queue"), Epoch: epoch}}
			for _, session := range members {
				m.Status.Members = append(m.Status.Members, protocol.ProcessMemberInfo{Member: protocol.ProcessMember{Session: session}})
			}
			return m
		}
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindProcessWatch {
					if h.Kind == protocol.KindUnwatch {
						fc.reply(h, &protocol.Empty{})
					}
					return h.Kind == protocol.KindUnwatch
				}
				opened++
				fc.reply(h, &protocol.Empty{})
				fc.send(protocol.KindProcessState, h.ID, 1, page(false, true, 99, 9)) // of no state
				fc.send(protocol.KindProcessState, h.ID, 1, page(true, false, uint64(opened), 1, 2))
				switch opened {
				case 1:
					fc.send(protocol.KindStreamCut, h.ID, 1, &protocol.StreamCut{Status: protocol.StatusWrongShard, Message: "the leader moved"})
					return true
				case 2:
					_ = fc.nc.Close()
					delete(f.conns, fc)
					return true
				}
				fc.send(protocol.KindProcessState, h.ID, 1, page(false, false, 0, 3))
				fc.send(protocol.KindProcessState, h.ID, 1, page(false, true, 0, 4))
				fc.send(protocol.KindProcessChanges, h.ID, 1, &protocol.ProcessChanges{Revision: 7, Changes: []protocol.ProcessChange{{Kind: protocol.ProcessJoined, Session: 5}}})
				return true
			}
		})
		var states []*protocol.ProcessState
		for news, err := range s.Node().Process("queue").Watch(bg) {
			if err != nil {
				t.Fatal(err)
			}
			if news.State != nil {
				states = append(states, news.State)
				continue
			}
			if news.Changes.Revision != 7 || len(news.Changes.Changes) != 1 || news.Changes.Changes[0].Session != 5 {
				t.Errorf("changes %+v", news.Changes)
			}
			break
		}
		synctest.Wait()
		var members []uint64
		for _, st := range states {
			for _, m := range st.Status.Members {
				members = append(members, m.Member.Session)
			}
		}
		if len(states) != 1 || states[0].Status.Epoch != 3 || string(states[0].Status.Name) != "queue" || !slices.Equal(members, []uint64{1, 2, 3, 4}) {
			t.Errorf("%d states, members %v", len(states), members)
		}
		if f.count(protocol.KindUnwatch) == 0 {
			t.Error("the server was not told that the watch is over")
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		for _, err := range s.Process("queue").Watch(ctx) {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestProcessList: the lists of four shards, in pages, are one list in order of name; a shard that refuses ends it.
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
		for p, err := range n.Processes(bg, "p") {
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
		for _, err := range n.Processes(bg, "p") {
			last = err
		}
		if !errors.Is(last, Forbidden) {
			t.Error(last)
		}
	})
}

// TestProcessWithoutSession: who only reads cannot take part, and is told so before anything is sent.
func TestProcessWithoutSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		p := f.sessionIn(t, f.open(t), 0).Node().Process("queue")
		if _, err := p.Listen(nil); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		m := &protocol.ProcessLeave{Name: []byte("queue")}
		if err := p.Change(bg, protocol.KindProcessLeave, &m.Head, m, &protocol.ProcessLeaveReply{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if err := p.Tell(bg, protocol.KindProcessSync, &protocol.ProcessSync{}); !errors.Is(err, BadRequest) {
			t.Error(err)
		}
		if p.Session() != nil || p.Name() != "queue" || f.count(protocol.KindProcessLeave)+f.count(protocol.KindProcessSync) > 0 {
			t.Error("something was sent")
		}
		time.Sleep(time.Second)
	})
}

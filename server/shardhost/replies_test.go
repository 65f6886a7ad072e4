package shardhost

import (
	"reflect"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestReplies: each kind of command has its reply, made of its own fields of the event, and all
// others have an empty one.
func TestReplies(t *testing.T) {
	poll := &protocol.TrackPollReply{Version: 12}
	e := &shard.Event{State: protocol.Acquired, Flag: true, AlreadyMember: true, Session: 1, Epoch: 2, Timeout: 3,
		Grace: 4, Node: 5, OrderID: 6, Result: 7, Poll: poll}
	want := map[protocol.Kind]protocol.Message{
		protocol.KindUpdate:       &protocol.UpdateReply{Version: 7},
		protocol.KindCreate:       &protocol.UpdateReply{Version: 7},
		protocol.KindAcquire:      &protocol.AcquireReply{State: protocol.Acquired, OrderID: 6},
		protocol.KindRelease:      &protocol.ReleaseReply{Released: true},
		protocol.KindForceRelease: &protocol.ForceReleaseReply{Released: 7},
		protocol.KindProcessJoin: &protocol.ProcessJoinReply{Order: 6, Topology: 7, Returned: true,
			AlreadyMember: true},
		protocol.KindProcessLeave:  &protocol.ProcessLeaveReply{CompletedEpoch: 7},
		protocol.KindLimitCreate:   &protocol.LimitRevision{Revision: 7},
		protocol.KindLimitAlter:    &protocol.LimitRevision{Revision: 7},
		protocol.KindTrackCreate:   &protocol.TrackRevision{Revision: 7},
		protocol.KindTrackAlter:    &protocol.TrackRevision{Revision: 7},
		protocol.KindTrackRegister: &protocol.TrackRegisterReply{Incarnation: 7},
		protocol.KindTrackPoll:     poll,
		protocol.KindTrackPublish:  &protocol.TrackVersion{Version: 7},
	}
	var r replies
	for kind := range protocol.Kind(128) {
		got := r.body(kind, e)
		if w, ok := want[kind]; !ok && got != nil || ok && !reflect.DeepEqual(got, w) {
			t.Errorf("kind %v: %+v, want %+v", kind, got, w)
		}
	}
	wantSession := &protocol.SessionReply{Session: 1, Epoch: 2, Shard: 9, Timeout: 3, Grace: 4, Ticket: []byte("ticket"),
		Node: 5, ReadConsistency: 7}
	if got := r.sessionBody(9, e, []byte("ticket")); !reflect.DeepEqual(got, wantSession) {
		t.Errorf("a session: %+v, want %+v", got, wantSession)
	}
	e.Result = 1
	if got, want := r.body(protocol.KindRelease, e), (&protocol.ReleaseReply{Released: true, Transferred: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("a transfer: %+v, want %+v", got, want)
	}
	e.Result = 7
	e.AlreadyMember = false
	if got, want := r.body(protocol.KindProcessJoin, e), (&protocol.ProcessJoinReply{Order: 6, Topology: 7, Returned: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("a member that returned: %+v, want %+v", got, want)
	}
	e.Flag, e.AlreadyMember, e.State = false, false, protocol.Queued
	for kind, want := range map[protocol.Kind]protocol.Message{
		protocol.KindAcquire:     &protocol.AcquireReply{State: protocol.Queued, OrderID: 6},
		protocol.KindRelease:     &protocol.ReleaseReply{},
		protocol.KindProcessJoin: &protocol.ProcessJoinReply{Order: 6, Topology: 7},
	} {
		if got := r.body(kind, e); !reflect.DeepEqual(got, want) {
			t.Errorf("kind %v again: %+v, want %+v", kind, got, want)
		}
	}
}

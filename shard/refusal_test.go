package shard

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestRepeatedRefusals: a request of a process or a rollout that is sent again is refused as it was
// first, with its status, which of its refusals it is, and a sentence: also by a restored machine,
// and where the buckets have moved to.
func TestRepeatedRefusals(t *testing.T) {
	x, inc := newTrackMachine(t)
	crew := []byte("crew")
	for i := range 2 {
		if e := x.send(t, CmdProcessJoin, &protocol.ProcessJoin{Head: x.head(i), Name: crew}); e.Status != protocol.StatusOK {
			t.Fatalf("join: %v %s", e.Status, e.Text)
		}
	}
	type request struct {
		kind CommandKind
		body protocol.Message
	}
	var list []request
	first := x.head(1)
	head := func() protocol.Head {
		h := x.head(1)
		h.Low = first.Seq
		return h
	}
	config := protocol.TrackConfig{Source: protocol.SourcePublished,
		Locations: []protocol.LocationConfig{{Name: "SAS"}}}
	list = append(list, []request{
		{CmdProcessComplete, &protocol.ProcessComplete{Head: head(), Name: crew, Epoch: 7}},
		{CmdProcessComplete, &protocol.ProcessComplete{Head: head(), Name: crew, Epoch: 1}},
		{CmdProcessComplete, &protocol.ProcessComplete{Head: head(), Name: []byte("none"), Epoch: 1}},
		{CmdProcessLeave, &protocol.ProcessLeave{Head: head(), Name: []byte("none")}},
		{CmdProcessJoin, &protocol.ProcessJoin{Head: head(), Name: crew, Key: "other"}},
		{CmdProcessJoin, &protocol.ProcessJoin{Head: head(), Name: []byte("new"),
			Options: protocol.ProcessOptions{BackoffMin: 500, BackoffMax: 100}}},
		{CmdTrackCreate, &protocol.TrackCreate{Head: head(), Name: trackName, Config: config}},
		{CmdTrackAlter, &protocol.TrackAlter{Head: head(), Name: trackName, Revision: 99, Config: config}},
		{CmdTrackDelete, &protocol.TrackDelete{Head: head(), Name: []byte("none")}},
		{CmdTrackDelete, &protocol.TrackDelete{Head: head(), Name: trackName}},
		{CmdTrackPublish, &protocol.TrackPublish{Head: head(), Name: trackName, Version: 41}},
		{CmdTrackPublish, &protocol.TrackPublish{Head: head(), Name: trackName, Version: 1<<63 - 1}},
		{CmdTrackWithdraw, &protocol.TrackWithdraw{Head: head(), Name: trackName, Version: 40}},
		{CmdTrackRegister, &protocol.TrackRegister{Head: head(), Name: trackName,
			ID: "SAS-1", Location: "SAS", Role: protocol.InstanceLeader}},
		{CmdTrackRegister, &protocol.TrackRegister{Head: head(), Name: trackName,
			ID: "X-1", Location: "X", Role: protocol.InstanceLeader}},
		{CmdTrackUnregister,
			&protocol.TrackUnregister{Head: head(), Name: trackName, ID: "MAN-1", Incarnation: inc[1] + 5}},
		{CmdTrackAdmin, &protocol.TrackAdmin{Head: head(), Name: trackName, Verb: protocol.TrackRollback,
			Locations: []string{"SAS"}, Version: 41}},
		{CmdTrackAdmin,
			&protocol.TrackAdmin{Head: head(), Name: trackName, Verb: protocol.TrackPause, Locations: []string{"X"}}},
	}...)
	refused := make([]Event, len(list))
	for i, r := range list {
		if refused[i] = x.send(t, r.kind, r.body); refused[i].Status == protocol.StatusOK || refused[i].Text == "" {
			t.Fatalf("request %d is not refused: %+v", i, refused[i])
		}
	}
	again := func(where string, x *benchMachine) {
		t.Helper()
		for i, r := range list {
			if e := x.send(t, r.kind, r.body); e.Status != refused[i].Status ||
				e.Refusal != refused[i].Refusal || e.Text == "" || e.Result != refused[i].Result {
				t.Errorf("%s, request %d is refused with %v %v %q, first it was %v %v",
					where, i, e.Status, e.Refusal, e.Text, refused[i].Status, refused[i].Refusal)
			}
		}
	}
	again("sent again", x)
	x.m = x.restored(t)
	again("by a restored machine", x)
	again("after a move", x.moved(t))
}

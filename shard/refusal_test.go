package shard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestRepeatedRefusalsKeepText: a request of a process or a rollout that is sent again is
// refused with the words, and the values in them, that it was refused with first: also by a
// restored machine, and where the buckets have moved to.
func TestRepeatedRefusalsKeepText(t *testing.T) {
	x, inc := newTrackMachine(t)
	crew := []byte("crew")
	for i := range 2 {
		if e := x.send(t, CmdProcessJoin, &protocol.ProcessJoin{Head: x.head(i), Name: crew}); e.Status != protocol.StatusOK {
			t.Fatalf("join: %v %s", e.Status, e.Text)
		}
	}
	type request struct {
		kind CommandKind
		body interface{ AppendBody([]byte) []byte }
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
				e.Text != refused[i].Text || e.Result != refused[i].Result {
				t.Errorf("%s, request %d is refused with %v %q, first it was %v %q",
					where, i, e.Status, e.Text, refused[i].Status, refused[i].Text)
			}
		}
	}
	again("sent again", x)
	x.m = x.restored(t)
	again("by a restored machine", x)
	again("after a move", x.moved(t))
}

// TestLongRefusalIsRecognized: a refusal whose sentence is too long to be kept whole begins with
// the same word when it is repeated, which clients go by.
func TestLongRefusalIsRecognized(t *testing.T) {
	x, _ := newTrackMachine(t)
	register := func(session int) *protocol.TrackRegister {
		return &protocol.TrackRegister{Head: x.head(session), Name: trackName, ID: "x" + strings.Repeat("\u00e9", 127),
			Location: "SAS", Role: protocol.InstanceFollower}
	}
	if e := x.send(t, CmdTrackRegister, register(0)); e.Status != protocol.StatusOK {
		t.Fatalf("register: %v %s", e.Status, e.Text)
	}
	refused := register(1)
	first, again := x.send(t, CmdTrackRegister, refused), x.send(t, CmdTrackRegister, refused)
	if first.Status != protocol.StatusAlreadyExists || len(first.Text) <= maxSentence || again.Status != first.Status ||
		again.Text == "" || !strings.HasPrefix(first.Text, again.Text) || !utf8.ValidString(again.Text) {
		t.Errorf("refused with %v %q, then with %v %q", first.Status, first.Text, again.Status, again.Text)
	}
}

// TestRefusalTextsAreBounded: a client that never raises its low-water mark makes the machine
// keep a bounded number of sentences, and is refused all the same.
func TestRefusalTextsAreBounded(t *testing.T) {
	x, _ := newTrackMachine(t)
	low := x.head(0).Seq
	var list []*protocol.TrackAlter
	for range maxSentences + 10 {
		h := x.head(0)
		h.Low = low
		b := &protocol.TrackAlter{Head: h, Name: trackName, Revision: 99, Config: protocol.TrackConfig{Source: protocol.SourcePublished,
			Locations: []protocol.LocationConfig{{Name: "SAS"}}}}
		x.send(t, CmdTrackAlter, b)
		list = append(list, b)
	}
	kept := 0
	for _, b := range list {
		e := x.send(t, CmdTrackAlter, b)
		if e.Status != protocol.StatusPreconditionFailed || e.Refusal != protocol.RefusalOtherVersion {
			t.Fatalf("a repeat is answered %v, %v", e.Status, e.Refusal)
		}
		if strings.Contains(e.Text, "has revision") {
			kept++
		}
	}
	if kept > maxSentences || kept < maxSentences-1 {
		t.Errorf("%d of %d sentences are kept", kept, len(list))
	}
}

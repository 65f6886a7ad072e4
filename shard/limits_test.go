package shard

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHoldingsLimits: a session is in as many processes and tracks as the limits say, and in not
// one more; what it leaves makes room.
func TestHoldingsLimits(t *testing.T) {
	x := newBenchMachine(1)
	replies := func() (list []Event) {
		x.commit()
		for _, e := range x.out.List {
			if e.Kind == EventReply {
				list = append(list, e)
			}
		}
		return list
	}
	command := func(kind CommandKind, m protocol.Message) {
		x.entry = AppendCommand(x.entry, Command{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, m)})
	}
	process := func(i int) []byte { return fmt.Appendf(nil, "p%d", i) }
	track := func(i int) []byte { return fmt.Appendf(nil, "t%d", i) }
	join := func(i int) {
		command(CmdProcessJoin, &protocol.ProcessJoin{Head: x.head(0), Name: process(i)})
	}
	register := func(i int) {
		command(CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: track(i), Config: protocol.TrackConfig{
			Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
		}})
		command(CmdTrackRegister, &protocol.TrackRegister{Head: x.head(0), Name: track(i),
			ID: "i", Location: "SAS", Role: protocol.InstanceFollower})
	}
	for _, c := range []struct {
		name  string
		most  int
		add   func(i int)
		leave func()
		text  string
	}{
		{"processes", MaxProcessesPerSession, join, func() {
			command(CmdProcessLeave, &protocol.ProcessLeave{Head: x.head(0), Name: process(7)})
		}, textMembershipsLimit},
		{"tracks", MaxTracksPerSession, register, func() {
			command(CmdTrackDelete, &protocol.TrackDelete{Head: x.head(0), Name: track(7), Force: true})
		}, textTracksLimit},
	} {
		for i := 0; i < c.most; {
			x.begin()
			for range 100 {
				c.add(i)
				i++
			}
			for _, e := range replies() {
				if e.Status != protocol.StatusOK {
					t.Fatalf("%s, up to %d: %v %s", c.name, i, e.Status, e.Text)
				}
			}
		}
		last := func() Event {
			x.begin()
			c.add(c.most)
			list := replies()
			return list[len(list)-1]
		}
		if e := last(); e.Status != protocol.StatusOverloaded || e.Text != c.text {
			t.Errorf("%s, one past the limit: %v %s", c.name, e.Status, e.Text)
		}
		x.begin()
		c.leave()
		if e := replies()[0]; e.Status != protocol.StatusOK {
			t.Fatalf("%s: %v %s", c.name, e.Status, e.Text)
		}
		if e := last(); e.Status != protocol.StatusOK {
			t.Errorf("%s, when there is room: %v %s", c.name, e.Status, e.Text)
		}
	}
	if err := x.m.Check(); err != nil {
		t.Fatal(err)
	}
}

package core

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestReplicasStayBehind: replicas that are behind are not believed, however long that takes. All of
// them may be: after a restart each begins with an older state, until it has read its log.
func TestReplicasStayBehind(t *testing.T) {
	w := &Watch{Node: 7, Name: "jobs"}
	b := newWatchBench(t, 1, w)
	b.reopen(1)
	b.page(1, &protocol.Snapshot{Index: 9, First: true, Last: true})
	p := b.part(1)
	b.cut(1)
	for i := range 25 {
		b.reopen(1)
		b.page(1, &protocol.Snapshot{Index: 8, First: true, Last: true})
		if p.live || p.open != nil {
			t.Fatalf("an opening that is behind is believed at try %d", i+1)
		}
	}
	b.reopen(1)
	b.page(1, &protocol.Snapshot{Index: 9, First: true, Last: true})
	if !p.live {
		t.Fatal("a replica that has caught up is not believed")
	}
}

// TestConsumerBehind: a consumer that takes nothing costs a bounded backlog. The stream is closed, and
// opened again when it has taken what there is.
func TestConsumerBehind(t *testing.T) {
	b := newWatchBench(t, 1, &Watch{Node: 7, Name: "jobs"})
	x := &Stream{
		Waiter: nobody{}, Kind: protocol.KindProcessWatch, Msg: &protocol.ProcessWatch{Node: 7, Name: []byte("p")},
		To: Target{Of: AtProcess, Node: 7, Name: "p"}, Decode: func() Decoder { return decodeState },
	}
	b.e.Stream(b.now, x)
	p := x.parts[0]
	state := func(index uint64) {
		b.receive(protocol.KindProcessState, p.stream, 1, &protocol.ProcessState{
			First: true, Last: true, Exists: true, Status: protocol.ProcessStatus{Name: []byte("p"), Index: index},
		})
	}
	state(1)
	for i := range uint64(maxBacklog + 100) {
		b.receive(protocol.KindProcessChanges, p.stream, 1, &protocol.ProcessChanges{Revision: i + 2})
	}
	if len(x.events) != maxBacklog || p.open != nil || x.Last() == nil {
		t.Fatalf("%d events wait, open: %t, why: %v", len(x.events), p.open != nil, x.Last())
	}
	b.e.Tick(b.now + 10*time.Second)
	if p.open != nil {
		t.Fatal("the stream is opened although its consumer takes nothing")
	}
	for i := range maxBacklog {
		if _, ok, err := x.Next(); !ok || err != nil {
			t.Fatal(i, ok, err)
		}
	}
	if _, ok, err := x.Next(); ok || err != nil || p.open == nil {
		t.Fatalf("after all were taken: %t, %v, open: %t", ok, err, p.open != nil)
	}
	state(maxBacklog + 200)
	if event, ok, err := x.Next(); !ok || err != nil || event.(stateEvent).index != maxBacklog+200 {
		t.Fatal(event, ok, err)
	}
}

// TestEventsReachTheirStream: each kind of event of a stream is decoded by the stream whose id it has,
// and by no other.
func TestEventsReachTheirStream(t *testing.T) {
	for _, x := range []struct {
		kind protocol.Kind
		m    protocol.Message
	}{
		{protocol.KindSnapshot, &protocol.Snapshot{}},
		{protocol.KindProcessState, &protocol.ProcessState{}},
		{protocol.KindProcessChanges, &protocol.ProcessChanges{}},
		{protocol.KindTrackStatus, &protocol.TrackStatus{}},
		{protocol.KindTrackEvents, &protocol.TrackEvents{}},
		{protocol.KindLimitChanged, &protocol.LimitChanged{}},
	} {
		b := newWatchBench(t, 1, &Watch{Node: 7, Name: "jobs"})
		var streams [2]*Stream
		for i := range streams {
			streams[i] = &Stream{
				Waiter: nobody{}, Kind: protocol.KindProcessWatch, Msg: &protocol.ProcessWatch{Node: 7, Name: []byte("p")},
				To: Target{Of: AtProcess, Node: 7, Name: "p"},
				Decode: func() Decoder {
					return func(h protocol.Header) (any, Step, error) { return h.Kind, Append, nil }
				},
			}
			b.e.Stream(b.now, streams[i])
		}
		b.receive(x.kind, streams[1].parts[0].stream, 1, x.m)
		if event, ok, err := streams[1].Next(); event != x.kind || !ok || err != nil {
			t.Errorf("the stream of an event of kind %d has %v, %t, %v", x.kind, event, ok, err)
		}
		if event, ok, err := streams[0].Next(); ok || err != nil {
			t.Errorf("the other stream has %v, %v for an event of kind %d", event, err, x.kind)
		}
	}
}

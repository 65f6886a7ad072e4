package shard

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

var trackName = []byte("geo/base")

// send applies one command of a session, checks the invariants, and gives the reply.
func (x *benchMachine) send(t testing.TB, kind CommandKind, body protocol.Message) Event {
	t.Helper()
	x.begin()
	x.entry = AppendCommand(x.entry, Command{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, body)})
	x.commit()
	if err := x.m.Check(); err != nil {
		t.Fatal(err)
	}
	for _, e := range x.out.List {
		if e.Kind == EventReply {
			return e
		}
	}
	t.Fatal("no reply")
	return Event{}
}

// newTrackMachine has a track SAS, then MAN five seconds later, with a leader of session i in each.
func newTrackMachine(t testing.TB) (x *benchMachine, incarnations [2]uint64) {
	t.Helper()
	x = newBenchMachine(2)
	e := x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: trackName, Config: protocol.TrackConfig{
		Source:    protocol.SourcePublished,
		Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "MAN", Delay: 5_000}},
	}})
	if e.Status != protocol.StatusOK || e.Result != 1 {
		t.Fatalf("create: %v %s", e.Status, e.Text)
	}
	for i, l := range []string{"SAS", "MAN"} {
		e := x.send(t, CmdTrackRegister, &protocol.TrackRegister{Head: x.head(i), Name: trackName,
			ID: l + "-1", Location: l, Role: protocol.InstanceLeader})
		if e.Status != protocol.StatusOK {
			t.Fatalf("register: %v %s", e.Status, e.Text)
		}
		incarnations[i] = e.Result
	}
	e = x.send(t, CmdTrackPublish,
		&protocol.TrackPublish{Head: x.head(0), Name: trackName, Version: 42, Payload: []byte("v42")})
	if e.Status != protocol.StatusOK || e.Result != 42 {
		t.Fatalf("publish: %v %s", e.Status, e.Text)
	}
	return x, incarnations
}

func (x *benchMachine) pollOf(i int, incarnation, seq, current uint64) *protocol.TrackPoll {
	p := &protocol.TrackPoll{Session: x.sessions[i], Name: trackName, ID: []string{"SAS-1", "MAN-1"}[i],
		Incarnation: incarnation, WithPayload: true}
	if seq > 0 {
		p.Report = protocol.UpdateReport{Seq: seq, Current: current, Target: current, Code: "OK", Attempts: 1}
	}
	return p
}

func (x *benchMachine) restored(t testing.TB) *Machine {
	t.Helper()
	var b bytes.Buffer
	s := x.m.BeginSnapshot()
	if err := s.WriteTo(&b, &busyLock{idle: func() {}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	m, err := Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest() != x.m.Digest() {
		t.Fatal("what was restored has another digest")
	}
	return m
}

func callerOf(p *protocol.TrackPoll) rollout.Caller {
	return rollout.Caller{Session: p.Session, ID: p.ID, Incarnation: p.Incarnation}
}

// TestTrackGoesOn: the second location gets a version when its delay is over, not before, though
// the machine is restored in between.
func TestTrackGoesOn(t *testing.T) {
	x, inc := newTrackMachine(t)
	if e := x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0)); e.Status != 0 ||
		e.Poll.Version != 42 || string(e.Poll.Payload) != "v42" {
		t.Fatalf("first poll: %+v", e)
	}
	x.now += 4_999
	if e := x.send(t, CmdTrackPoll, x.pollOf(1, inc[1], 0, 0)); e.Poll.Version != 0 ||
		e.Poll.Status != protocol.PollNoTarget || e.Poll.RetryAfter != 1 {
		t.Fatalf("poll before the delay is over: %+v", e.Poll)
	}
	x.m = x.restored(t)
	x.now++
	if e := x.send(t, CmdTrackPoll, x.pollOf(1, inc[1], 0, 0)); e.Poll.Version != 42 {
		t.Fatalf("poll after the delay: %+v", e.Poll)
	}
}

// TestPeekTrackChangesNothing: of ten thousand polls in a steady state none needs an entry, and a
// report with news does.
func TestPeekTrackChangesNothing(t *testing.T) {
	x, inc := newTrackMachine(t)
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 1, 42))
	digest := x.m.Digest()
	var reply protocol.TrackPollReply
	for range 10_000 {
		if !x.m.Tracks().Peek(1, 1, x.pollOf(0, inc[0], 1, 42), x.now, x.now, &reply) || reply.Version != 42 {
			t.Fatalf("a steady poll wants an entry, or has a wrong answer: %+v", reply)
		}
	}
	if x.m.Digest() != digest {
		t.Fatal("a read changed the machine")
	}
	if x.m.Tracks().Peek(1, 1, x.pollOf(0, inc[0], 2, 41), x.now, x.now, &reply) {
		t.Fatal("a report with news was answered without an entry")
	}
	if x.m.Tracks().Peek(1, 2, x.pollOf(0, inc[0], 1, 42), x.now, x.now, &reply) ||
		x.m.Tracks().Peek(1, 1, x.pollOf(1, inc[0], 1, 42), x.now, x.now, &reply) {
		t.Fatal("a poll under another epoch or session was answered")
	}
}

// TestTrackSessionStops: the instances of a session go with it.
func TestTrackSessionStops(t *testing.T) {
	x, inc := newTrackMachine(t)
	if e := x.send(t, CmdSessionStop, &protocol.SessionStop{Session: x.sessions[0], Epoch: 1}); e.Status != protocol.StatusOK {
		t.Fatalf("stop: %v %s", e.Status, e.Text)
	}
	x.sessions[0] = x.sessions[1]
	if e := x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0)); e.Status != protocol.StatusNotFound {
		t.Fatalf("poll of an instance that is gone: %v %s", e.Status, e.Text)
	}
	x.restored(t)
}

// TestTrackAdminAllOrNone: a command that is refused for one location changes none.
func TestTrackAdminAllOrNone(t *testing.T) {
	x, _ := newTrackMachine(t)
	before := x.m.activeBucket(1, trackName).readObject(kindTrack, 1, trackName).track().Digest()
	e := x.send(t, CmdTrackAdmin, &protocol.TrackAdmin{Head: x.head(0), Name: trackName,
		Verb: protocol.TrackPause, Locations: []string{"SAS", "XXX"}})
	if e.Status != protocol.StatusNotFound ||
		x.m.activeBucket(1, trackName).readObject(kindTrack, 1, trackName).track().Digest() != before {
		t.Fatalf("pause of a location that is not there: %v, or the other was paused", e.Status)
	}
	e = x.send(t, CmdTrackAdmin,
		&protocol.TrackAdmin{Head: x.head(0), Name: trackName, Verb: protocol.TrackPause, Locations: []string{"SAS"}})
	if e.Status != protocol.StatusOK ||
		x.m.activeBucket(1, trackName).readObject(kindTrack, 1, trackName).track().Digest() == before {
		t.Fatalf("pause: %v %s", e.Status, e.Text)
	}
}

// moved moves all buckets to a machine with another log time, which takes a minute.
func (x *benchMachine) moved(t testing.TB) *benchMachine {
	t.Helper()
	run := BucketsBody{Total: 64, Count: 64, Epoch: 9}
	step := func(m *benchMachine, kind CommandKind, body []byte) {
		t.Helper()
		m.begin()
		m.entry = AppendCommand(m.entry, Command{Kind: kind, Body: body})
		m.commit()
		if e := m.out.List[len(m.out.List)-1]; e.Status != protocol.StatusOK {
			t.Fatalf("step %d: %v %s", kind, e.Status, e.Text)
		}
		if err := m.m.Check(); err != nil {
			t.Fatal(err)
		}
	}
	step(x, CmdFreeze, AppendBuckets(nil, run))
	y := &benchMachine{m: New(2), now: 700_000, sessions: x.sessions, seqs: x.seqs}
	step(y, CmdTakeOver, nil)
	step(y, CmdNodePut, AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()}))
	var cursor []byte
	for {
		part, next, err := x.m.Buckets().Export(0, 64, 9, cursor, 0)
		if err != nil {
			t.Fatal(err)
		}
		step(y, CmdImport, AppendImport(nil, ImportBody{BucketsBody: run, Chunk: part}))
		if cursor = next; next == nil {
			break
		}
	}
	y.now += 60_000 // frozen copies and imports stand still
	step(y, CmdActivate, AppendBuckets(nil, run))
	step(x, CmdDropBuckets, AppendBuckets(nil, run))
	return y
}

// TestTrackMoves: a track that moves in the middle of a delay to a shard with another log time
// keeps what was left of the delay, and its answers.
func TestTrackMoves(t *testing.T) {
	x, inc := newTrackMachine(t)
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	x.now += 2_000
	x.send(t, CmdTrackPoll, x.pollOf(1, inc[1], 0, 0))
	y := x.moved(t)
	for range 3 {
		x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	}
	if n := x.m.nodes[1].objects[kindTrack].Len(); n != 0 {
		t.Fatalf("the copy that moved away keeps %d tracks", n)
	}
	describe := func() protocol.TrackPollReply {
		b := y.m.activeBucket(1, trackName)
		a, err := b.readObject(kindTrack, 1, trackName).track().Poll(trackNow(y.m, b),
			callerOf(y.pollOf(1, inc[1], 0, 0)), nil, &y.m.batch.track)
		if err != nil {
			t.Fatal(err)
		}
		y.m.batch.track.Reset()
		return a
	}
	if a := describe(); a.Version != 0 || a.RetryAfter != 3_000 {
		t.Fatalf("after the move: %+v; 3,000 ms of the delay were left", a)
	}
	y.restored(t)
}

func BenchmarkPeekTrack(b *testing.B) {
	x, inc := newTrackMachine(b)
	x.send(b, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	x.send(b, CmdTrackPoll, x.pollOf(0, inc[0], 1, 42))
	poll, reply := x.pollOf(0, inc[0], 1, 42), protocol.TrackPollReply{}
	b.ReportAllocs()
	for b.Loop() {
		if !x.m.Tracks().Peek(1, 1, poll, x.now, x.now, &reply) {
			b.Fatal("a steady poll wants an entry")
		}
	}
}

// TestListedStates: a list says of each location what the track's own description says, at the log
// time that the leader would stamp, though the log of the shard is silent.
func TestListedStates(t *testing.T) {
	x, inc := newTrackMachine(t)
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	for _, at := range []struct {
		after uint64
		sas   protocol.TrackState
	}{{0, protocol.StateConverging}, {rollout.DefaultStallTimeout + 1, protocol.StateStalled}} {
		var status protocol.TrackStatus
		if err := x.m.Tracks().Describe(&protocol.TrackDescribe{Node: 1, Name: trackName}, x.now+at.after, &status); err != nil {
			t.Fatal(err)
		}
		var own []byte
		for i := range status.Locations {
			own = append(own, byte(status.Locations[i].State))
		}
		var list protocol.TrackListReply
		if err := x.m.Tracks().List(&protocol.TrackList{Node: 1}, x.now+at.after, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Tracks) != 1 || !bytes.Equal(list.Tracks[0].States, own) || own[0] != byte(at.sas) {
			t.Errorf("after %d ms %+v is listed, and its own page says %v; SAS is to be %s",
				at.after, list.Tracks, own, at.sas)
		}
	}
}

// TestTrackReads: a description comes in pages, at the time that the leader would stamp; lists and
// histories say what there is.
func TestTrackReads(t *testing.T) {
	x, inc := newTrackMachine(t)
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 1, 42))
	const more = 250
	want := []string{"MAN-1", "SAS-1"}
	for i := range more {
		id := fmt.Sprintf("x%03d", i)
		want = append(want, id)
		e := x.send(t, CmdTrackRegister, &protocol.TrackRegister{Head: x.head(1), Name: trackName,
			ID: id, Location: "MAN", Role: protocol.InstanceFollower})
		if e.Status != protocol.StatusOK {
			t.Fatal(e.Text)
		}
	}
	var got []string
	q := protocol.TrackDescribe{Node: 1, Name: trackName, Flags: protocol.WithTrackInstances, Limit: 100}
	for pages := 1; ; pages++ {
		var s protocol.TrackStatus
		if err := x.m.Tracks().Describe(&q, x.now+1_000, &s); err != nil {
			t.Fatal(err)
		}
		if s.Locations[1].State != protocol.StateUnset || s.Locations[1].Until-s.Clock != 4_000 ||
			s.NumInstances != more+2 || s.Last != 42 {
			t.Fatalf("a second later %+v", s)
		}
		for i := range s.Instances {
			got = append(got, s.Instances[i].ID)
		}
		if q.Cursor = s.Cursor; len(q.Cursor) == 0 {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("instances %v", got)
	}
	for _, name := range []string{"geo/a", "geo/c", "other"} {
		e := x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: []byte(name), Config: protocol.TrackConfig{
			Source: protocol.SourceTSO, Locations: []protocol.LocationConfig{{Name: "SAS"}},
		}})
		if e.Status != protocol.StatusOK {
			t.Fatal(e.Text)
		}
	}
	got = nil
	l := protocol.TrackList{Node: 1, Prefix: []byte("geo/"), Limit: 2}
	for {
		var r protocol.TrackListReply
		if err := x.m.Tracks().List(&l, 0, &r); err != nil {
			t.Fatal(err)
		}
		for i := range r.Tracks {
			got = append(got, string(r.Tracks[i].Name))
		}
		if l.Cursor = r.Cursor; len(l.Cursor) == 0 {
			break
		}
	}
	if !slices.Equal(got, []string{"geo/a", "geo/base", "geo/c"}) {
		t.Errorf("listed %v", got)
	}
	got = nil
	x.m.Tracks().From(1, []byte("geo/b"),
		func(node uint64, name []byte) bool { got = append(got, string(name)); return true })
	if !slices.Equal(got, []string{"geo/base", "geo/c", "other"}) {
		t.Errorf("from geo/b on there are %v", got)
	}
	var h protocol.TrackHistoryReply
	if err := x.m.Tracks().History(&protocol.TrackHistory{Node: 1, Name: trackName, Location: "SAS"},
		x.now, &h); err != nil || len(h.Rows) != 1 || h.Rows[0].Version != 42 {
		t.Errorf("%+v, %v", h, err)
	}
	for name, want := range map[string]protocol.Status{"SAS": protocol.StatusOK, "": protocol.StatusOK, "ABC": protocol.StatusNotFound} {
		if err := x.m.Tracks().CheckLocation(1, trackName, name); protocol.StatusOf(err) != want {
			t.Errorf("location %q: %v", name, err)
		}
	}
	x.send(t, CmdTrackDelete, &protocol.TrackDelete{Head: x.head(0), Name: []byte("other")})
	if !slices.ContainsFunc(x.out.List, func(e Event) bool {
		return e.Kind == EventTrackDeleted &&
			e.Node == 1 && string(e.Name) == "other"
	}) {
		t.Errorf("a deletion told %+v", x.out.List)
	}
}

// TestTrackCreatedAgain: a track that is created again never repeats a config revision of the
// deleted one, so a change that was meant for the deleted track is refused.
func TestTrackCreatedAgain(t *testing.T) {
	x, _ := newTrackMachine(t)
	config := protocol.TrackConfig{Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}}}
	alter := func(revision uint64) Event {
		return x.send(t, CmdTrackAlter,
			&protocol.TrackAlter{Head: x.head(0), Name: trackName, Revision: revision, Config: config})
	}
	if e := alter(1); e.Status != protocol.StatusOK || e.Result != 2 {
		t.Fatalf("alter: %+v", e)
	}
	x.send(t, CmdTrackDelete, &protocol.TrackDelete{Head: x.head(0), Name: trackName, Force: true})
	x.m = x.restored(t)
	created := x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: trackName, Config: config})
	if created.Status != protocol.StatusOK {
		t.Fatalf("create: %+v", created)
	}
	for revision := range uint64(3) {
		if e := alter(revision); e.Status != protocol.StatusPreconditionFailed {
			t.Errorf("alter of revision %d, which the deleted track had: %+v", revision, e)
		}
	}
	if e := alter(created.Result); e.Status != protocol.StatusOK || e.Result != created.Result+1 {
		t.Errorf("alter of the new track: %+v", e)
	}
}

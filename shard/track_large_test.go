package shard

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// TestLargeTrackMoves: a track with megabytes of payloads moves in chunks of the usual size.
func TestLargeTrackMoves(t *testing.T) {
	x, inc := newTrackMachine(t)
	x.send(t, CmdTrackPoll, x.pollOf(0, inc[0], 0, 0))
	const more = 40
	for i := range more {
		e := x.send(t, CmdTrackPublish,
			&protocol.TrackPublish{Head: x.head(0), Name: trackName, Payload: bytes.Repeat([]byte{byte(i)}, 64<<10)})
		if e.Status != protocol.StatusOK {
			t.Fatalf("publish: %v %s", e.Status, e.Text)
		}
	}
	x.movedInChunks(t, 10, BucketsBody{Total: 64, Count: 64, Epoch: 9})
}

// TestTrackOfLongDescriptionsMoves: a track whose sessions have megabytes of descriptions moves in
// chunks of the usual size, without the homes of most of its sessions, which keep their
// descriptions.
func TestTrackOfLongDescriptionsMoves(t *testing.T) {
	const sessions = 3_000
	x := newBenchMachine(sessions)
	x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: trackName, Config: protocol.TrackConfig{
		Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
	}})
	x.begin()
	for i, id := range x.sessions {
		x.m.sessions.get(id).setDescription(strings.Repeat(fmt.Sprint(i%10), maxDescription))
		m := &protocol.TrackRegister{Head: x.head(i), Name: trackName, ID: fmt.Sprint("host-", i), Location: "SAS",
			Role: protocol.InstanceFollower}
		x.entry = AppendCommand(x.entry,
			Command{Kind: CmdTrackRegister, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, m)})
	}
	x.commit()
	bucket := protocol.Bucket(1, trackName, 64)
	if n := len(x.m.buckets[bucket].readObject(kindTrack, 1, trackName).state.sessions(nil)); n != sessions {
		t.Fatalf("%d sessions are registered", n)
	}
	y := x.movedInChunks(t, 10, BucketsBody{Total: 64, First: bucket, Count: 1, Epoch: 9})
	for i, id := range x.sessions {
		if p := y.m.sessions.get(id); p == nil || p.description != x.m.sessions.get(id).description {
			t.Fatalf("session %d of the track has lost its description", i)
		}
	}
}

// movedInChunks moves a run with the track to a new machine, in so many chunks at least. A chunk in
// the middle comes late, one too early, and both shards are restored between them.
func (x *benchMachine) movedInChunks(t *testing.T, atLeast int, run BucketsBody) (y *benchMachine) {
	t.Helper()
	step := func(m *benchMachine, kind CommandKind, body []byte) protocol.Status {
		m.begin()
		m.entry = AppendCommand(m.entry, Command{Kind: kind, Body: body})
		m.commit()
		return m.out.List[len(m.out.List)-1].Status
	}
	ok := func(st protocol.Status) {
		t.Helper()
		if st != protocol.StatusOK {
			t.Fatal(st)
		}
	}
	export := func(cursor []byte) (part, next []byte) {
		t.Helper()
		part, next, err := x.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 0)
		if err != nil {
			t.Fatal(err)
		}
		return part, next
	}
	ok(step(x, CmdFreeze, AppendBuckets(nil, run)))
	y = &benchMachine{m: New(2), now: 700_000, sessions: x.sessions, seqs: x.seqs}
	step(y, CmdTakeOver, nil)
	ok(step(y, CmdNodePut, AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()})))
	chunks := 0
	for cursor := []byte(nil); ; chunks++ {
		part, next := export(cursor)
		if len(part) > 2*ChunkBytes {
			t.Fatalf("chunk %d has %d bytes", chunks, len(part))
		}
		ok(step(y, CmdImport, AppendImport(nil, ImportBody{BucketsBody: run, Chunk: part})))
		if chunks == 3 {
			ok(step(y, CmdImport, AppendImport(nil, ImportBody{BucketsBody: run, Chunk: part})))
			_, far := export(next)
			early, _ := export(far)
			if st := step(y, CmdImport, AppendImport(nil, ImportBody{BucketsBody: run, Chunk: early})); st != protocol.StatusAborted {
				t.Fatalf("a chunk that is not the next: %v", st)
			}
			x.m, y.m = x.restored(t), y.restored(t)
			if at, _, _ := y.m.Buckets().Imported(run.First, run.Count, run.Epoch); !bytes.Equal(at, next) {
				t.Fatal("the import is at another place after a restart")
			}
		}
		if cursor = next; next == nil {
			break
		}
	}
	if chunks < atLeast {
		t.Fatalf("it came in %d chunks", chunks)
	}
	ok(step(y, CmdActivate, AppendBuckets(nil, run)))
	if err := y.m.Check(); err != nil {
		t.Fatal(err)
	}
	record := func(m *Machine) []byte {
		return m.buckets[protocol.Bucket(1, trackName, 64)].readObject(kindTrack, 1, trackName).state.Append(nil)
	}
	if !bytes.Equal(record(x.m), record(y.m)) {
		t.Fatal("the track is another at the target")
	}
	return y
}

// newSteadyTrack has so many instances of a hundred sessions in three locations, which all have the
// target, and their polls.
func newSteadyTrack(t testing.TB, instances int) (x *benchMachine, polls []*protocol.TrackPoll) {
	const sessions = 100
	x = newBenchMachine(sessions)
	x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: trackName, Config: protocol.TrackConfig{
		Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"},
			{Name: "MAN", Delay: 5_000}, {Name: "VLA", Delay: 5_000}},
	}})
	x.send(t, CmdTrackPublish, &protocol.TrackPublish{Head: x.head(0), Name: trackName, Payload: []byte("v")})
	apply := func(kind CommandKind, body func(i int) protocol.Message) {
		for i := 0; i < instances; {
			x.begin()
			first := i
			for range min(100, instances-i) {
				x.entry = AppendCommand(x.entry,
					Command{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, body(i))})
				i++
			}
			x.commit()
			for _, e := range x.out.List {
				if e.Kind == EventReply && e.Status != protocol.StatusOK {
					t.Fatalf("%v %s", e.Status, e.Text)
				}
				if e.Kind == EventReply && kind == CmdTrackRegister {
					polls[first+e.Command].Incarnation = e.Result
				}
			}
		}
	}
	polls = make([]*protocol.TrackPoll, instances)
	apply(CmdTrackRegister, func(i int) protocol.Message {
		id := fmt.Sprintf("host-%05d.example.net", i)
		polls[i] = &protocol.TrackPoll{Session: x.sessions[i%sessions], Name: trackName, ID: id}
		return &protocol.TrackRegister{
			Head: x.head(i % sessions), Name: trackName, ID: id, Location: []string{"SAS", "MAN", "VLA"}[i%3],
			Role: protocol.InstanceLeader,
		}
	})
	// Each location gets the version when the one before has had it for five seconds, and reports
	// it.
	for seq := uint64(1); seq <= 4; seq++ {
		apply(CmdTrackPoll, func(i int) protocol.Message { return polls[i] })
		for _, p := range polls {
			p.Report = protocol.UpdateReport{Seq: seq, Current: 1, Target: 1, Code: "OK", Attempts: 1}
		}
		x.now += 5_000
		if seq < 4 {
			for i, p := range polls {
				if l := uint64(i % 3); l >= seq {
					p.Report = protocol.UpdateReport{}
				}
			}
		}
	}
	apply(CmdTrackPoll, func(i int) protocol.Message { return polls[i] })
	if err := x.m.Check(); err != nil {
		t.Fatal(err)
	}
	return x, polls
}

// TestSteadyPollsNeedNoEntry: ten thousand instances poll once a second for a minute, and no poll
// needs an entry; nor does anything fall due.
func TestSteadyPollsNeedNoEntry(t *testing.T) {
	x, polls := newSteadyTrack(t, 10_000)
	digest := x.m.Digest()
	var reply protocol.TrackPollReply
	for second := uint64(1); second <= 60; second++ {
		for i, p := range polls {
			if !x.m.Tracks().Peek(1, 1, p, x.now+second*1000, x.now+second*1000, &reply) ||
				reply.Version != 1 || reply.State != protocol.StateConverged {
				t.Fatalf("second %d, instance %d: the poll needs an entry, or is answered %+v", second, i, reply)
			}
		}
	}
	if at, ok := x.m.NextDeadline(); ok && at <= x.now+60_000 {
		t.Errorf("a tick is due at %d, after %d ms", at, at-x.now)
	}
	if x.m.Digest() != digest {
		t.Error("reads changed the machine")
	}
}

// BenchmarkSteadyPolls is a poll of one of ten thousand instances, from its bytes to its answer:
// read, or written as a command of a batch of 64.
func BenchmarkSteadyPolls(b *testing.B) {
	x, polls := newSteadyTrack(b, 10_000)
	bodies := make([][]byte, len(polls))
	for i, p := range polls {
		bodies[i] = protocol.AppendBody(nil, p)
	}
	b.Run("read", func(b *testing.B) {
		var poll protocol.TrackPoll
		var reply protocol.TrackPollReply
		var frame []byte
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := poll.DecodeBody(bodies[i%len(bodies)]); err != nil ||
				!x.m.Tracks().Peek(1, 1, &poll, x.now, x.now, &reply) {
				b.Fatal("a steady poll needs an entry", err)
			}
			frame = reply.AppendBody(frame[:0])
		}
	})
	b.Run("written", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; i < b.N; i += 64 {
			x.begin()
			for j := range 64 {
				x.entry = AppendCommand(x.entry,
					Command{Kind: CmdTrackPoll, Node: 1, Epoch: 1, Body: bodies[(i+j)%len(bodies)]})
			}
			x.commit()
		}
	})
}

// operate applies an operator's command to a location.
func (x *benchMachine) operate(t testing.TB, verb protocol.TrackVerb) {
	t.Helper()
	m := protocol.TrackAdmin{Head: x.head(0), Name: trackName, Verb: verb, Locations: []string{"MAN"}}
	x.begin()
	x.entry = AppendCommand(x.entry, Command{Kind: CmdTrackAdmin, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, &m)})
	x.commit()
	if e := x.out.List[0]; e.Status != protocol.StatusOK || len(x.out.TrackChanges) == 0 {
		t.Fatalf("%v %s, %d changes", e.Status, e.Text, len(x.out.TrackChanges))
	}
}

// TestTrackAdminCopiesNothing: what an operator's command costs does not grow with the instances of
// its track.
func TestTrackAdminCopiesNothing(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	x, _ := newSteadyTrack(t, 1_000)
	if n := testing.AllocsPerRun(10, func() {
		x.operate(t, protocol.TrackPause)
		x.operate(t, protocol.TrackResume)
	}); n > 100 {
		t.Errorf("a pause and its end allocate %v times", n)
	}
}

// BenchmarkTrackAdmin is an operator's command on a track that is as large as one may be: an entry
// of its own.
func BenchmarkTrackAdmin(b *testing.B) {
	x, _ := newSteadyTrack(b, rollout.MaxInstances)
	for i := range rollout.MaxPublished - 1 {
		e := x.send(b, CmdTrackPublish,
			&protocol.TrackPublish{Head: x.head(0), Name: trackName, Payload: bytes.Repeat([]byte{byte(i)}, protocol.MaxTrackPayload)})
		if e.Status != protocol.StatusOK {
			b.Fatalf("publish: %v %s", e.Status, e.Text)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.operate(b, []protocol.TrackVerb{protocol.TrackPause, protocol.TrackResume}[i%2])
	}
}

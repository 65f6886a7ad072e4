package integration

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestProcessRounds: members join and leave, exchange messages, come back on another connection,
// and are watched and operated, by the words of the protocol.
func TestProcessRounds(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	a, b := newMemberClient(t, s, "queue", 1), newMemberClient(t, s, "queue", 2)

	watcher := connect(t, s)
	watch := watcher.send(protocol.KindProcessWatch, a.bucket(), &protocol.ProcessWatch{Node: a.node, Name: []byte("queue")})
	if err := watcher.reply(protocol.KindProcessWatch, watch, nil); err != nil {
		t.Fatal(err)
	}
	var state protocol.ProcessState
	if h := watcher.event(protocol.KindProcessState, &state); h.ID != watch || !state.First || !state.Last || state.Exists {
		t.Fatalf("stream starts with %+v, id %d", state, h.ID)
	}
	changes := func(kind protocol.ProcessChangeKind) protocol.ProcessChange {
		t.Helper()
		for {
			var m protocol.ProcessChanges
			if h := watcher.event(protocol.KindProcessChanges, &m); h.ID != watch || m.Revision == 0 || m.Wall == 0 {
				t.Fatalf("changes %+v with id %d", m, h.ID)
			}
			for _, x := range m.Changes {
				if x.Kind == kind {
					return x
				}
			}
		}
	}

	if r := a.join("one"); r.Order != 1 || r.Returned || r.AlreadyMember {
		t.Fatalf("join is answered %+v", r)
	}
	if x := changes(protocol.ProcessJoined); x.Session != a.session || x.Text != "one" {
		t.Fatalf("watch says %+v", x)
	}
	first := completeRound(t, 1, "alone", a)
	if x := changes(protocol.ProcessRoundEnded); x.Epoch != first || x.Outcome != protocol.RoundCompleted {
		t.Fatalf("watch says %+v", x)
	}
	b.join("two")
	epoch := a.round(protocol.RoundPrepare, first+1).Epoch
	m := b.round(protocol.RoundPrepare, epoch)
	if len(m.Members) != 2 || m.Members[1].Identity != "anonymous" || string(m.Members[1].Data) != "data of two" ||
		m.Members[1].Key != "two" {
		t.Fatalf("members are %+v", m.Members)
	}
	if err := a.ask(epoch, 1, "early", b.session); !errors.Is(err, protocol.StatusUnavailable) {
		t.Fatalf("a message before all are prepared: %v", err)
	}
	a.confirm(epoch, protocol.StepPrepared)
	b.confirm(epoch, protocol.StepPrepared)
	a.round(protocol.RoundCoordinate, epoch)

	// Messages pass both ways, to oneself, and again on a new connection.
	if err := a.ask(epoch, 1, "hello", a.session, b.session); err != nil {
		t.Fatal(err)
	}
	own := a.message()
	a.respond(&own, "me")
	if m := a.message(); m.Kind != protocol.MessageReply || m.From != a.session || string(m.Payload) != "me" {
		t.Fatalf("own answer is %+v", m)
	}
	if m := b.message(); m.Kind != protocol.MessageRequest || m.From != a.session || string(m.Payload) != "hello" || m.Number != 1 {
		t.Fatalf("message is %+v", m)
	}
	_ = b.nc.Close()
	b.raw = &raw{t: t, s: s, nc: connect(t, s).nc, nextID: 1000, seq: b.seq}
	if _, err := b.attach(b.node, b.n, b.session, 2); err != nil {
		t.Fatal(err)
	}
	if err := b.sync(epoch); err != nil {
		t.Fatal(err)
	}
	again := b.message()
	b.respond(&again, strings.Repeat("x", protocol.MaxProcessPayload))
	if m := a.message(); m.From != b.session || len(m.Payload) != protocol.MaxProcessPayload {
		t.Fatalf("answer of %d bytes from %d", len(m.Payload), m.From)
	}
	if err := b.ask(epoch, 7, "up", a.session); err != nil {
		t.Fatal(err)
	}
	if m := a.message(); m.From != b.session || m.Number != 7 {
		t.Fatalf("message is %+v", m)
	}
	a.complete(epoch, "both")
	b.round(protocol.RoundComplete, epoch)
	b.confirm(epoch, protocol.StepCompleted)
	a.round(protocol.RoundComplete, epoch)
	a.confirm(epoch, protocol.StepCompleted)
	if err := a.ask(epoch, 8, "late", b.session); !errors.Is(err, protocol.StatusAborted) {
		t.Fatalf("a message when the round is over: %v", err)
	}

	// Reads.
	for _, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed, protocol.ConsistencyDefault} {
		r := a.status(consistency)
		if r.Phase != protocol.PhaseCompleted || r.Epoch != epoch || r.NumMembers != 2 || len(r.Members) != 2 ||
			len(r.History) != 2 || r.Counters.Completed != 2 ||
			r.Coordinator != a.session || r.Members[1].Status != protocol.MemberCompleted {
			t.Fatalf("description is %+v", r)
		}
		var list protocol.ProcessListReply
		a.must(protocol.KindProcessList, a.bucket(), &protocol.ProcessList{Shard: s.shardAt(0, a.bucket()).ID(),
			Node: a.node, Prefix: []byte("q"), Consistency: consistency}, &list)
		if len(list.Processes) != 1 || string(list.Processes[0].Name) != "queue" || list.Processes[0].NumMembers != 2 {
			t.Fatalf("list is %+v", list)
		}
	}
	a.fails(protocol.StatusWrongShard, protocol.KindProcessList, a.bucket(), &protocol.ProcessList{Shard: 99, Node: a.node})
	a.fails(protocol.StatusNotFound, protocol.KindProcessDescribe,
		uint64(protocol.ProcessBucket(a.node, []byte("none"), 16)),
		&protocol.ProcessDescribe{Node: a.node, Name: []byte("none")})

	// Operators.
	a.must(protocol.KindProcessForceRound, a.bucket(),
		&protocol.ProcessForceRound{Node: a.node, Name: []byte("queue"), Text: "why not"}, nil)
	epoch = completeRound(t, epoch+1, "forced", a, b)
	a.must(protocol.KindProcessAlter, a.bucket(),
		&protocol.ProcessAlter{Node: a.node, Name: []byte("queue"), Options: protocol.ProcessOptions{BackoffMin: 20}},
		nil)
	changes(protocol.ProcessAltered)
	if r := a.status(protocol.Strict); r.Options.BackoffMin != 20 {
		t.Fatalf("options are %+v", r.Options)
	}
	a.must(protocol.KindProcessEvict, a.bucket(),
		&protocol.ProcessEvict{Node: a.node, Name: []byte("queue"), Session: b.session, Text: "slow"}, nil)
	if m := b.round(protocol.RoundRemoved, 0); m.Removal != protocol.RemovedByOperator || m.CompletedEpoch != epoch || m.Text == "" {
		t.Fatalf("removal is %+v", m)
	}
	if x := changes(protocol.ProcessLeft); x.Session != b.session {
		t.Fatalf("watch says %+v", x)
	}
	epoch = completeRound(t, epoch+1, "alone again", a)
	none := uint64(protocol.ProcessBucket(a.node, []byte("none"), 16))
	a.fails(protocol.StatusNotFound, protocol.KindProcessForceRound, none, &protocol.ProcessForceRound{Node: a.node, Name: []byte("none")})

	// A stream that opens late starts with what there is, and one that is closed says nothing.
	late := watcher.send(protocol.KindProcessWatch, a.bucket(), &protocol.ProcessWatch{Node: a.node, Name: []byte("queue")})
	if err := watcher.reply(protocol.KindProcessWatch, late, nil); err != nil {
		t.Fatal(err)
	}
	state = protocol.ProcessState{}
	if h := watcher.event(protocol.KindProcessState, &state); h.ID != late || !state.Exists ||
		state.Status.NumMembers != 1 || len(state.Status.History) != 4 {
		t.Fatalf("late stream starts with %+v", state)
	}
	watcher.must(protocol.KindUnwatch, 0, &protocol.Unwatch{WatchID: late}, nil)
	watcher.fails(protocol.StatusBadRequest, protocol.KindProcessWatch, a.bucket(),
		&protocol.ProcessWatch{Node: a.node, Name: []byte("a--b")})
	if r := a.leave(); r.CompletedEpoch != epoch {
		t.Fatalf("leave is answered %+v", r)
	}
	if x := changes(protocol.ProcessLeft); x.Session != a.session {
		t.Fatalf("watch says %+v", x)
	}
	if err := a.sync(epoch); err != nil { // the answer to a leave may have been lost
		t.Fatal(err)
	}
	c := newMemberClient(t, s, "queue", 3)
	if err := c.sync(0); !errors.Is(err, protocol.StatusNotFound) {
		t.Fatalf("sync of a stranger: %v", err)
	}
	c.name = "none"
	if err := c.sync(0); !errors.Is(err, protocol.StatusNotFound) {
		t.Fatalf("sync with a process that is not there: %v", err)
	}
	text := new(bytes.Buffer)
	s.Metrics.WritePrometheus(text)
	for _, line := range []string{
		`phase="idle"} 1`, `outcome="completed"} 4`, "signalbox_process_requests_total", "signalbox_process_round_seconds_count 4",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("metrics lack %q", line)
		}
	}
}

// TestProcessSlowMember: a member that does not read is not cut for what others send to it. What
// was left out comes when it syncs, and beyond a bound the sender is to wait.
func TestProcessSlowMember(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.OutSoft = transport.MinOutSoft })
	a, b, epoch := pair(t, s)
	if err := socketOf(b.nc).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	d := s.shardAt(0, a.bucket())
	const n = 8 // times a mebibyte: what the relay keeps for a receiver
	payload := strings.Repeat("x", protocol.MaxProcessPayload)
	for i := range uint64(n) {
		id := a.send(protocol.KindProcessRequest, a.bucket(), &protocol.ProcessRequest{
			Session: a.session, Name: []byte("queue"), Epoch: epoch, Number: 1 + i, Low: 1, To: []uint64{b.session},
			Payload: []byte(payload),
		})
		if err := a.reply(protocol.KindProcessRequest, id, nil); err != nil {
			t.Fatal(err)
		}
	}
	a.fails(protocol.StatusOverloaded, protocol.KindProcessRequest, a.bucket(), &protocol.ProcessRequest{
		Session: a.session, Name: []byte("queue"), Epoch: epoch, Number: n + 1, Low: 1, To: []uint64{b.session}, Payload: []byte(payload),
	})
	await.True(t, "messages to be left out", func() bool {
		return !strings.Contains(scrape(s), fmt.Sprintf("signalbox_process_undelivered_total{shard=\"%d\"} 0\n", d.ID()))
	})
	for answered := map[uint64]bool{}; len(answered) < n; {
		if err := b.sync(epoch); err != nil {
			t.Fatal(err)
		}
		m := b.message()
		b.respond(&m, "thanks")
		answered[m.Number] = true
	}
	for range n {
		if m := a.message(); m.Kind != protocol.MessageReply || m.From != b.session {
			t.Fatalf("answer is %+v", m)
		}
	}
	if cut := s.Transport.Metrics.SlowReader.Get(); cut != 0 {
		t.Errorf("%d connections were cut", cut)
	}
}

// TestProcessBucketFrozen: while the bucket of a process moves nothing is served, and its streams
// are cut; when the move is given up members go on with the round they were in.
func TestProcessBucketFrozen(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	a, b, epoch := pair(t, s)
	d := s.shardAt(0, a.bucket())
	step := func(kind shard.CommandKind, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: 16, First: uint32(a.bucket()), Count: 1, Epoch: epoch}
		if err := d.Replica().ProposeInternal(t.Context(), shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)}); err != nil {
			t.Fatal(err)
		}
	}
	watcher := connect(t, s)
	watch := watcher.send(protocol.KindProcessWatch, a.bucket(), &protocol.ProcessWatch{Node: a.node, Name: []byte("queue")})
	watcher.event(protocol.KindProcessState, nil)
	if err := a.ask(epoch, 1, "before", b.session); err != nil {
		t.Fatal(err)
	}
	before := b.message()

	step(shard.CmdFreeze, 100)
	var cut protocol.StreamCut
	if h := watcher.event(protocol.KindStreamCut, &cut); h.ID != watch || cut.Status != protocol.StatusWrongShard {
		t.Fatalf("stream is cut with %+v", cut)
	}
	refused := watcher.wrongShard(protocol.KindProcessWatch, a.bucket(), &protocol.ProcessWatch{Node: a.node, Name: []byte("queue")})
	if refused.Master != s.Instance() || refused.Shard != d.ID() || refused.MapVersion != s.Meta.State().MapVersion() {
		t.Errorf("the refusal of a stream says %+v", refused)
	}
	if err := a.ask(epoch, 2, "meanwhile", b.session); !errors.Is(err, protocol.StatusWrongShard) {
		t.Fatalf("a message while the bucket is frozen: %v", err)
	}
	if err := b.sync(epoch); !errors.Is(err, protocol.StatusWrongShard) {
		t.Fatalf("a sync while the bucket is frozen: %v", err)
	}
	// The relay forgets what it had: the process is elsewhere, as far as it knows.
	await.True(t, "the relay to go", func() bool { return d.Replica().RelayStats().Relays == 0 })

	step(shard.CmdActivate, 101)
	for _, p := range []*memberClient{a, b} { // some were at home in that bucket
		if !connHas(s, p.session) {
			if _, err := p.attach(p.node, p.n, p.session, 2); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.sync(epoch); err != nil {
			t.Fatal(err)
		}
	}
	b.respond(&before, "late") // dropped: its sender sends it again
	if err := a.ask(epoch, 1, "before", b.session); err != nil {
		t.Fatal(err)
	}
	again := b.message()
	b.respond(&again, "yes")
	if m := a.message(); m.Kind != protocol.MessageReply || string(m.Payload) != "yes" {
		t.Fatalf("answer is %+v", m)
	}
	a.complete(epoch, "agreed")
	if m := b.round(protocol.RoundComplete, epoch); string(m.Result) != "agreed" {
		t.Fatalf("round is complete with %q", m.Result)
	}
}

// TestProcessAudit: what operators ask for is in the audit log, with who asked and why.
func TestProcessAudit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit")
	s := start(t, func(c *server.Config) { c.Audit = file })
	a, b, _ := pair(t, s)
	a.must(protocol.KindProcessForceRound, a.bucket(),
		&protocol.ProcessForceRound{Node: a.node, Name: []byte("queue"), Text: "new hosts"}, nil)
	a.must(protocol.KindProcessEvict, a.bucket(),
		&protocol.ProcessEvict{Node: a.node, Name: []byte("queue"), Session: b.session, Text: "sick"}, nil)
	a.must(protocol.KindProcessAlter, a.bucket(), &protocol.ProcessAlter{Node: a.node, Name: []byte("queue")}, nil)
	audited(t, s, file,
		`"title":"ask_force_round"`, `"initiator":"anonymous"`,
		`"node":"/default","process":"queue","reason":"new hosts"`, `"title":"ask_evict_member"`,
		fmt.Sprintf(`"session":%d,"reason":"sick"`, b.session), `"title":"ask_alter_process"`,
	)
}

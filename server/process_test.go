package server

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
)

// memberClient is a member with a connection of its own that does what it is told and nothing more.
type memberClient struct {
	*raw
	node    uint64
	name    string
	session uint64
	n       uint64
}

func newMemberClient(t *testing.T, s *Server, name string, n uint64) *memberClient {
	t.Helper()
	c := connect(t, s)
	p := &memberClient{raw: c, node: c.node(), name: name, n: n}
	p.session = c.session(p.node, n).Session
	return p
}

func (p *memberClient) bucket() uint64 {
	return uint64(protocol.ProcessBucket(p.node, []byte(p.name), p.s.cfg.Buckets))
}

func (p *memberClient) join(key string) (r protocol.ProcessJoinReply) {
	p.t.Helper()
	p.must(protocol.KindProcessJoin, p.bucket(), &protocol.ProcessJoin{Head: p.head(p.session), Name: []byte(p.name),
		Key: key, Data: []byte("data of " + key)}, &r)
	return r
}

func (p *memberClient) leave() (r protocol.ProcessLeaveReply) {
	p.t.Helper()
	p.must(protocol.KindProcessLeave, p.bucket(), &protocol.ProcessLeave{Head: p.head(p.session), Name: []byte(p.name)}, &r)
	return r
}

// round waits for an event of a kind about a round of at least an epoch. What came before it about
// the same process is forgotten.
func (p *memberClient) round(kind protocol.ProcessRoundKind, epoch uint64) (m protocol.ProcessRound) {
	p.t.Helper()
	for {
		m = protocol.ProcessRound{}
		p.event(protocol.KindProcessRound, &m)
		if m.Session != p.session || string(m.Name) != p.name {
			p.t.Fatalf("told %+v, a member of %q with session %d", m, p.name, p.session)
		}
		if m.Kind == kind && m.Epoch >= epoch {
			return m
		}
	}
}

func (p *memberClient) confirm(epoch uint64, step protocol.ProcessStep) {
	p.t.Helper()
	p.must(protocol.KindProcessConfirm, p.bucket(),
		&protocol.ProcessConfirm{Session: p.session, Name: []byte(p.name), Epoch: epoch, Step: step}, nil)
}

func (p *memberClient) complete(epoch uint64, result string) {
	p.t.Helper()
	p.must(protocol.KindProcessComplete, p.bucket(), &protocol.ProcessComplete{Head: p.head(p.session),
		Name: []byte(p.name), Epoch: epoch, Result: []byte(result)}, nil)
}

func (p *memberClient) sync(epoch uint64) error {
	p.t.Helper()
	return p.call(protocol.KindProcessSync, p.bucket(), &protocol.ProcessSync{Session: p.session, Name: []byte(p.name), Epoch: epoch}, nil)
}

func (p *memberClient) ask(epoch, number uint64, payload string, to ...uint64) error {
	p.t.Helper()
	return p.call(protocol.KindProcessRequest, p.bucket(), &protocol.ProcessRequest{
		Session: p.session, Name: []byte(p.name), Epoch: epoch, Number: number, Low: number, To: to, Payload: []byte(payload),
	}, nil)
}

func (p *memberClient) respond(m *protocol.ProcessMessage, payload string) {
	p.t.Helper()
	p.must(protocol.KindProcessReply, p.bucket(), &protocol.ProcessReply{
		Session: p.session, Name: []byte(p.name), Epoch: m.Epoch, To: m.From, Number: m.Number, Payload: []byte(payload),
	}, nil)
}

func (p *memberClient) message() (m protocol.ProcessMessage) {
	p.t.Helper()
	p.event(protocol.KindProcessMessage, &m)
	return m
}

func (p *memberClient) status(consistency protocol.Consistency) (r protocol.ProcessStatus) {
	p.t.Helper()
	p.must(protocol.KindProcessDescribe, p.bucket(), &protocol.ProcessDescribe{
		Node: p.node, Name: []byte(p.name), Flags: protocol.WithProcessMembers | protocol.WithProcessHistory, Consistency: consistency,
	}, &r)
	return r
}

// completeRound takes players through the round that is under way, the first as its coordinator.
func completeRound(t *testing.T, epoch uint64, result string, players ...*memberClient) uint64 {
	t.Helper()
	for _, p := range players {
		m := p.round(protocol.RoundPrepare, epoch)
		if m.Coordinator != players[0].session || len(m.Members) != len(players) || m.Token < m.Epoch {
			t.Fatalf("prepare is %+v", m)
		}
		epoch = m.Epoch
	}
	for _, p := range players {
		p.confirm(epoch, protocol.StepPrepared)
	}
	players[0].round(protocol.RoundCoordinate, epoch)
	players[0].complete(epoch, result)
	for i := range players {
		p := players[(i+1)%len(players)] // the coordinator is told last
		if m := p.round(protocol.RoundComplete, epoch); string(m.Result) != result {
			t.Fatalf("round is complete with %q", m.Result)
		}
		p.confirm(epoch, protocol.StepCompleted)
	}
	return epoch
}

// TestProcessRounds: members join and leave, exchange messages, come back on another connection,
// and are watched and operated, by the words of the protocol.
func TestProcessRounds(t *testing.T) {
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
	s.metrics.WritePrometheus(text)
	for _, line := range []string{
		`phase="idle"} 1`, `outcome="completed"} 4`, "signalbox_process_requests_total", "signalbox_process_round_seconds_count 4",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("metrics lack %q", line)
		}
	}
}

// TestProcessBadInput: what is wrong is answered with a sentence, and nothing stays of it.
func TestProcessBadInput(t *testing.T) {
	s := start(t, nil)
	p := newMemberClient(t, s, "queue", 1)
	name := []byte("queue")
	head := func() protocol.Head { // the cases come in any order
		h := p.head(p.session)
		h.Low = 1
		return h
	}
	for what, c := range map[string]struct {
		kind protocol.Kind
		m    protocol.Message
		want protocol.Status
	}{
		"name": {protocol.KindProcessJoin, &protocol.ProcessJoin{Head: head(), Name: []byte("no good")},
			protocol.StatusBadRequest},
		"no name": {protocol.KindProcessJoin, &protocol.ProcessJoin{Head: head()}, protocol.StatusBadRequest},
		"data": {protocol.KindProcessJoin,
			&protocol.ProcessJoin{Head: head(), Name: name, Data: make([]byte, 513)}, protocol.StatusBadRequest},
		"options": {protocol.KindProcessJoin,
			&protocol.ProcessJoin{Head: head(), Name: name, Options: protocol.ProcessOptions{Election: 9}},
			protocol.StatusBadRequest},
		"another session": {protocol.KindProcessJoin,
			&protocol.ProcessJoin{Head: protocol.Head{Session: p.session + 1, Seq: 1, Low: 1}, Name: name},
			protocol.StatusSessionExpired},
		"not a member": {protocol.KindProcessLeave, &protocol.ProcessLeave{Head: head(), Name: name}, protocol.StatusNotFound},
		"confirm": {protocol.KindProcessConfirm,
			&protocol.ProcessConfirm{Session: p.session, Name: name, Epoch: 1, Step: 7}, protocol.StatusBadRequest},
		"confirm no round": {protocol.KindProcessConfirm, &protocol.ProcessConfirm{Session: p.session, Name: name, Epoch: 1, Step: 1}, protocol.StatusNotFound},
		"fail no round": {protocol.KindProcessFail,
			&protocol.ProcessFail{Session: p.session, Name: name, Epoch: 1}, protocol.StatusNotFound},
		"complete nothing": {protocol.KindProcessComplete, &protocol.ProcessComplete{Head: head(), Name: name, Epoch: 1}, protocol.StatusNotFound},
		"large result": {
			protocol.KindProcessComplete,
			&protocol.ProcessComplete{Head: head(), Name: name, Epoch: 1, Result: make([]byte, 33<<10)},
			protocol.StatusBadRequest,
		},
		"large message": {
			protocol.KindProcessRequest,
			&protocol.ProcessRequest{Session: p.session, Name: name, Epoch: 1, Number: 1, Low: 1, To: []uint64{1},
				Payload: make([]byte, 1<<20+1)}, protocol.StatusBadRequest,
		},
		"no receiver": {protocol.KindProcessRequest, &protocol.ProcessRequest{Session: p.session, Name: name, Epoch: 1, Number: 1, Low: 1}, protocol.StatusBadRequest},
		"unknown process": {
			protocol.KindProcessRequest, &protocol.ProcessRequest{Session: p.session, Name: name, Epoch: 1, Number: 1,
				Low: 1, To: []uint64{p.session}}, protocol.StatusNotFound,
		},
		"reply to nobody": {protocol.KindProcessReply, &protocol.ProcessReply{Session: p.session, Name: name, Epoch: 1}, protocol.StatusBadRequest},
		"evict nobody":    {protocol.KindProcessEvict, &protocol.ProcessEvict{Node: p.node, Name: name}, protocol.StatusBadRequest},
		"alter": {protocol.KindProcessAlter,
			&protocol.ProcessAlter{Node: p.node, Name: name, Options: protocol.ProcessOptions{Debounce: 1 << 40}},
			protocol.StatusBadRequest},
		"describe flags": {protocol.KindProcessDescribe,
			&protocol.ProcessDescribe{Node: p.node, Name: name, Flags: 0x80}, protocol.StatusBadRequest},
	} {
		if err := p.call(c.kind, p.bucket(), c.m, nil); !errors.Is(err, c.want) || statusMessage(err) == "" {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	p.fails(protocol.StatusWrongShard, protocol.KindProcessForceRound, 1<<40, &protocol.ProcessForceRound{Node: p.node, Name: name})
	p.fails(protocol.StatusWrongShard, protocol.KindProcessSync, 1<<40, &protocol.ProcessSync{Session: p.session, Name: name})
	p.fails(protocol.StatusNotFound, protocol.KindProcessWatch,
		uint64(protocol.ProcessBucket(999, name, s.cfg.Buckets)), &protocol.ProcessWatch{Node: 999, Name: name})
	var list protocol.ProcessListReply
	p.must(protocol.KindProcessList, p.bucket(), &protocol.ProcessList{Shard: s.shardAt(0, p.bucket()).ID(), Node: p.node}, &list)
	if len(list.Processes) != 0 {
		t.Errorf("processes are %+v", list.Processes)
	}
	p.ping()
}

func statusMessage(err error) string {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// pair is two players whose round is open for messages.
func pair(t *testing.T, s *Server) (a, b *memberClient, epoch uint64) {
	t.Helper()
	a, b = newMemberClient(t, s, "queue", 1), newMemberClient(t, s, "queue", 2)
	a.join("")
	first := a.round(protocol.RoundPrepare, 1).Epoch
	b.join("")
	epoch = a.round(protocol.RoundPrepare, first+1).Epoch
	b.round(protocol.RoundPrepare, epoch)
	a.confirm(epoch, protocol.StepPrepared)
	b.confirm(epoch, protocol.StepPrepared)
	a.round(protocol.RoundCoordinate, epoch)
	return a, b, epoch
}

// TestProcessOldEpoch: nothing of a round that is over is taken, and only the coordinator completes
// one.
func TestProcessOldEpoch(t *testing.T) {
	s := start(t, nil)
	a, b, old := pair(t, s)
	name := []byte("queue")
	b.fails(protocol.StatusPreconditionFailed, protocol.KindProcessComplete, b.bucket(),
		&protocol.ProcessComplete{Head: b.head(b.session), Name: name, Epoch: old})
	if err := a.ask(old, 1, "hello", b.session); err != nil {
		t.Fatal(err)
	}
	m := b.message()
	a.must(protocol.KindProcessForceRound, a.bucket(), &protocol.ProcessForceRound{Node: a.node, Name: name}, nil)
	epoch := a.round(protocol.RoundPrepare, old+1).Epoch
	if m := b.round(protocol.RoundPrepare, old+1); m.Epoch != epoch || m.CompletedEpoch >= old {
		t.Fatalf("the next round is %+v, that of the other has epoch %d", m, epoch)
	}
	for what, err := range map[string]error{
		"prepared": a.call(protocol.KindProcessConfirm, a.bucket(),
			&protocol.ProcessConfirm{Session: a.session, Name: name, Epoch: old, Step: protocol.StepPrepared}, nil),
		"completed": a.call(protocol.KindProcessConfirm, a.bucket(),
			&protocol.ProcessConfirm{Session: a.session, Name: name, Epoch: old, Step: protocol.StepCompleted}, nil),
		"failed": a.call(protocol.KindProcessFail, a.bucket(),
			&protocol.ProcessFail{Session: a.session, Name: name, Epoch: old, Text: "no"}, nil),
		"complete": a.call(protocol.KindProcessComplete, a.bucket(),
			&protocol.ProcessComplete{Head: a.head(a.session), Name: name, Epoch: old}, nil),
		"message": a.ask(old, 2, "late", b.session),
		"reply after cancel": b.call(protocol.KindProcessReply, b.bucket(), &protocol.ProcessReply{
			Session: b.session, Name: name, Epoch: old, To: m.From, Number: m.Number, Payload: []byte("late"),
		}, nil),
	} {
		if !errors.Is(err, protocol.StatusAborted) {
			t.Errorf("%s: %v, want ABORTED", what, err)
		}
	}
	if r := a.status(protocol.Strict); r.Epoch != epoch || r.Phase != protocol.PhasePreparing ||
		len(r.Members) != 2 || r.Members[0].Status != protocol.MemberPreparing {
		t.Errorf("the round is %+v", r)
	}
}

// TestProcessSlowMember: a member that does not read is not cut for what others send to it. What
// was left out comes when it syncs, and beyond a bound the sender is to wait.
func TestProcessSlowMember(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.OutSoft = transport.MinOutSoft })
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
	if cut := s.transport.Metrics.SlowReader.Get(); cut != 0 {
		t.Errorf("%d connections were cut", cut)
	}
}

// TestProcessBucketFrozen: while the bucket of a process moves nothing is served, and its streams
// are cut; when the move is given up members go on with the round they were in.
func TestProcessBucketFrozen(t *testing.T) {
	s := start(t, nil)
	a, b, epoch := pair(t, s)
	d := s.shardAt(0, a.bucket())
	step := func(kind shard.CommandKind, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: 16, First: uint32(a.bucket()), Count: 1, Epoch: epoch}
		if err := d.Raft().ProposeInternal(t.Context(), shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)}); err != nil {
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
	watcher.fails(protocol.StatusWrongShard, protocol.KindProcessWatch, a.bucket(),
		&protocol.ProcessWatch{Node: a.node, Name: []byte("queue")})
	if err := a.ask(epoch, 2, "meanwhile", b.session); !errors.Is(err, protocol.StatusWrongShard) {
		t.Fatalf("a message while the bucket is frozen: %v", err)
	}
	if err := b.sync(epoch); !errors.Is(err, protocol.StatusWrongShard) {
		t.Fatalf("a sync while the bucket is frozen: %v", err)
	}
	// The relay forgets what it had: the process is elsewhere, as far as it knows.
	await.True(t, "the relay to go", func() bool { return d.Raft().RelayStats().Relays == 0 })

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

func connHas(s *Server, session uint64) bool { return s.bindings.Conn(session) != nil }

// TestProcessAudit: what operators ask for is in the audit log, with who asked and why.
func TestProcessAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	s := start(t, func(c *Config) { c.Audit = file })
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

// TestProcessRights: members need use, readers read, operators admin; a missing right tells nothing
// of what there is.
func TestProcessRights(t *testing.T) {
	var may atomic.Uint32
	may.Store(uint32(auth.RightRead))
	s := start(t, func(c *Config) {
		c.Authorizer = authorizer(func(right auth.Right) bool { return uint32(right) <= may.Load() })
	})
	p := newMemberClient(t, s, "queue", 1)
	name := []byte("queue")
	join := func() error {
		return p.call(protocol.KindProcessJoin, p.bucket(), &protocol.ProcessJoin{Head: p.head(p.session), Name: name}, nil)
	}
	force := func() error {
		return p.call(protocol.KindProcessForceRound, p.bucket(), &protocol.ProcessForceRound{Node: p.node, Name: name}, nil)
	}
	describe := func() error {
		return p.call(protocol.KindProcessDescribe, p.bucket(), &protocol.ProcessDescribe{Node: p.node, Name: name}, nil)
	}
	watch := func() error {
		return p.call(protocol.KindProcessWatch, p.bucket(), &protocol.ProcessWatch{Node: p.node, Name: name}, nil)
	}
	for _, c := range []struct {
		right auth.Right
		what  string
		f     func() error
		want  protocol.Status
	}{
		{0, "describe", describe, protocol.StatusForbidden}, {0, "watch", watch, protocol.StatusForbidden}, {0, "join", join, protocol.StatusForbidden},
		{auth.RightRead, "join", join, protocol.StatusForbidden}, {auth.RightRead, "describe", describe, protocol.StatusNotFound}, {auth.RightRead, "watch", watch, protocol.StatusOK},
		{auth.RightUse, "join", join, protocol.StatusOK}, {auth.RightUse, "force", force, protocol.StatusForbidden}, {auth.RightAdmin, "force", force, protocol.StatusOK},
	} {
		may.Store(uint32(c.right))
		if err := c.f(); protocol.StatusOf(err) != c.want {
			t.Errorf("%s with the right %v: %v, want %v", c.what, c.right, err, c.want)
		}
	}
}

type authorizer func(auth.Right) bool

func (a authorizer) Allowed(_ string, right auth.Right, _ string) bool { return a(right) }

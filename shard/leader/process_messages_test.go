package leader

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// processHarness is a machine with one process, and the leader's part of it.
type processHarness struct {
	t        *testing.T
	m        *shard.Machine
	p        *Processes
	out      ProcessOut
	ev       shard.Events
	index    uint64
	time     uint64
	sessions []uint64
	seqs     map[uint64]uint64
}

func newProcessHarness(t *testing.T, sessions int) *processHarness {
	x := &processHarness{t: t, m: shard.New(1), p: NewProcesses(relay.Limits{}),
		time: 1_000, seqs: map[uint64]uint64{}}
	x.apply(shard.Command{Kind: shard.CmdTakeOver})
	x.apply(shard.Command{Kind: shard.CmdBuckets,
		Body: shard.AppendBuckets(nil, shard.BucketsBody{Total: 16, Count: 16})})
	x.apply(shard.Command{Kind: shard.CmdNodePut, Body: shard.AppendNodePut(nil,
		shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()})})
	for i := range sessions {
		create := [protocol.KeyLen]byte{byte(i + 1)}
		e := x.request(shard.CmdSessionStart,
			&protocol.SessionStart{Node: 1, CreateID: create[:], Key: create[:], Timeout: 60_000, Nonce: 1})
		x.sessions = append(x.sessions, e.Session)
	}
	for _, id := range x.sessions {
		x.must(shard.CmdProcessJoin, &protocol.ProcessJoin{Head: x.head(id), Name: []byte("p")})
	}
	x.p.Start(0)
	return x
}

func (x *processHarness) head(id uint64) protocol.Head {
	x.seqs[id]++
	return protocol.Head{Session: id, Seq: x.seqs[id], Low: x.seqs[id]}
}

func (x *processHarness) apply(c shard.Command) shard.Event {
	x.t.Helper()
	x.index++
	entry := shard.AppendHeader(nil, shard.Header{Format: 1, Epoch: 1 << 16, Seq: x.index, LogTime: x.time})
	x.ev.Reset()
	x.m.Apply(x.index, shard.AppendCommand(entry, c), &x.ev)
	if err := x.m.Check(); err != nil {
		x.t.Fatal(err)
	}
	for _, e := range x.ev.List {
		if e.Kind == shard.EventReply {
			return e
		}
	}
	x.t.Fatal("no reply")
	return shard.Event{}
}

func (x *processHarness) request(kind shard.CommandKind, body protocol.Message) shard.Event {
	x.t.Helper()
	return x.apply(shard.Command{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, body)})
}

func (x *processHarness) must(kind shard.CommandKind, body protocol.Message) {
	x.t.Helper()
	if e := x.request(kind, body); e.Status != protocol.StatusOK {
		x.t.Fatalf("%d: %v %s", kind, e.Status, e.Text)
	}
}

func (x *processHarness) epoch() uint64 {
	v, err := x.m.Processes().Find(1, []byte("p"))
	if err != nil {
		x.t.Fatal(err)
	}
	return v.Epoch()
}

func (x *processHarness) confirm(id uint64, step protocol.ProcessStep) {
	x.t.Helper()
	x.must(shard.CmdProcessConfirm,
		&protocol.ProcessConfirm{Session: id, Name: []byte("p"), Epoch: x.epoch(), Step: step})
}

// received says what left since the last call.
func (x *processHarness) received() string {
	var b strings.Builder
	name := func(id uint64) int {
		for i, s := range x.sessions {
			if s == id {
				return i
			}
		}
		return -1
	}
	for _, e := range x.out.Rounds {
		fmt.Fprintf(&b, "%d:%d ", name(e.Session), e.Process.Kind)
	}
	for _, d := range x.out.Messages {
		fmt.Fprintf(&b, "%d<%d:%d:%s ", name(d.To), name(d.From), d.Kind, d.Payload)
	}
	x.out.Reset()
	return strings.TrimSpace(b.String())
}

func (x *processHarness) expect(what, want string) {
	x.t.Helper()
	if got := x.received(); got != want {
		x.t.Fatalf("%s: told %q, want %q", what, got, want)
	}
}

func (x *processHarness) sync(session uint64) {
	x.t.Helper()
	if err := x.p.Sync(x.m, 1, &protocol.ProcessSync{Session: session, Name: []byte("p")}, &x.out); err != nil {
		x.t.Fatal(err)
	}
}

func (x *processHarness) refused(what string, err error, want protocol.Status) {
	x.t.Helper()
	if protocol.StatusOf(err) != want {
		x.t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// TestMessagesFollowTheRound: messages pass while the round is open and not before or after; what
// is unanswered comes again on a new connection; a new leader has none.
func TestMessagesFollowTheRound(t *testing.T) {
	x := newProcessHarness(t, 3)
	s := x.sessions
	q := func() *protocol.ProcessRequest {
		return &protocol.ProcessRequest{Session: s[0], Name: []byte("p"), Epoch: x.epoch(),
			Number: 1, Low: 1, To: []uint64{s[1], s[2]}, Payload: []byte("hi")}
	}
	x.refused("early", x.p.Request(x.m, 1, q(), &x.out), protocol.StatusUnavailable)
	x.expect("early", "")
	x.confirm(s[0], protocol.StepPrepared)
	x.confirm(s[1], protocol.StepPrepared)
	x.sync(s[2])
	x.expect("sync", fmt.Sprintf("2:%d", process.EventPrepare))
	x.confirm(s[2], protocol.StepPrepared)
	x.sync(s[0])
	x.expect("the coordinator synced", fmt.Sprintf("0:%d", process.EventCoordinate))

	old := q()
	if err := x.p.Request(x.m, 1, old, &x.out); err != nil {
		t.Fatal(err)
	}
	old.Payload[0] = 'X' // what came in is not kept
	x.expect("request", "1<0:1:hi 2<0:1:hi")
	x.sync(s[2])
	x.expect("the receiver synced", "2<0:1:hi")
	a := &protocol.ProcessReply{Session: s[2], Name: []byte("p"), Epoch: x.epoch(),
		To: s[0], Number: 1, Payload: []byte("yes")}
	if err := x.p.Reply(x.m, 1, a, &x.out); err != nil {
		t.Fatal(err)
	}
	x.expect("reply", "0<2:2:yes")
	x.sync(s[2])
	x.expect("answered", "")

	x.p.Stop()
	x.refused("not led", x.p.Request(x.m, 1, q(), &x.out), protocol.StatusUnavailable)
	x.p.Start(10)
	x.sync(s[1])
	x.expect("new leader", "")
	if err := x.p.Request(x.m, 1, q(), &x.out); err != nil {
		t.Fatal(err)
	}
	x.expect("sent again", "1<0:1:hi 2<0:1:hi")

	late := q()
	x.must(shard.CmdProcessLeave, &protocol.ProcessLeave{Head: x.head(s[1]), Name: []byte("p")})
	x.refused("older epoch", x.p.Request(x.m, 1, late, &x.out), protocol.StatusAborted)
	x.sync(s[2])
	x.expect("the next round", fmt.Sprintf("2:%d", process.EventPrepare))
	x.refused("no member", x.p.Sync(x.m, 1, &protocol.ProcessSync{Session: s[1] + 1000, Name: []byte("p")}, &x.out),
		protocol.StatusNotFound)
	x.refused("no process", x.p.Sync(x.m, 1, &protocol.ProcessSync{Session: s[0], Name: []byte("q")}, &x.out),
		protocol.StatusNotFound)
	if n := x.p.Stats(); n.Relays != 1 || n.Pending != 0 || n.Requests != 4 || n.Replies != 1 {
		t.Fatalf("%+v", n)
	}
}

// TestPendingMessagesAreBounded: what waits for replies is bounded for a node, by its quota of
// bytes or a little more, and counted as it comes and goes.
func TestPendingMessagesAreBounded(t *testing.T) {
	x := newProcessHarness(t, 3)
	config := protocol.DefaultNodeConfig()
	config.MaxBytes = 1 << 20
	x.apply(shard.Command{Kind: shard.CmdNodePut,
		Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 2, Config: config})})
	s := x.sessions
	for _, id := range s {
		x.confirm(id, protocol.StepPrepared)
	}
	number, low := uint64(0), uint64(1)
	send := func() error {
		number++
		x.out.Reset()
		return x.p.Request(x.m, 1, &protocol.ProcessRequest{
			Session: s[0], Name: []byte("p"), Epoch: x.epoch(), Number: number, Low: low,
			To: []uint64{s[1+number%2]}, Payload: make([]byte, 1<<20),
		}, &x.out)
	}
	for range minNodePending >> 20 {
		if err := send(); err != nil {
			t.Fatal(number, err)
		}
	}
	x.refused("one more", send(), protocol.StatusOverloaded)
	if n := x.p.Stats(); x.p.pending != minNodePending || n.PendingBytes != x.p.pending ||
		x.p.nodePending[1] != x.p.pending {
		t.Fatalf("%d bytes wait, %d of the node; %+v", x.p.pending, x.p.nodePending[1], n)
	}
	if err := x.p.Reply(x.m, 1, &protocol.ProcessReply{Session: s[2], Name: []byte("p"),
		Epoch: x.epoch(), To: s[0], Number: 1}, &x.out); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Error("one was answered:", err)
	}
	config.MaxBytes = 1 << 40
	x.apply(shard.Command{Kind: shard.CmdNodePut,
		Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 3, Config: config})})
	if err := send(); err != nil {
		t.Error("with a larger quota:", err)
	}
	config.MaxBytes = 1 << 20
	x.apply(shard.Command{Kind: shard.CmdNodePut,
		Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 4, Config: config})})
	x.refused("with the quota as before", send(), protocol.StatusOverloaded)
	low = number // all but the last are given up
	if err := send(); err != nil || x.p.pending != 1<<20 {
		t.Errorf("the others were given up: %v, %d bytes wait", err, x.p.pending)
	}
	x.p.Stop()
	if x.p.pending != 0 || len(x.p.nodePending) != 0 {
		t.Errorf("%d bytes are counted after the end, %v", x.p.pending, x.p.nodePending)
	}
}

// TestMessagesAreResent: each some seconds those that have not confirmed are told again, and relays
// of rounds that are over go.
func TestMessagesAreResent(t *testing.T) {
	x := newProcessHarness(t, 3)
	s := x.sessions
	x.confirm(s[1], protocol.StepPrepared)
	if x.p.Idle() {
		t.Fatal("a new leader has nothing to do")
	}
	x.p.Tick(1, x.m, &x.out)
	if !x.p.Idle() {
		t.Fatal("there is something to do behind the pass")
	}
	x.expect("after an election", fmt.Sprintf("0:%d 2:%d", process.EventPrepare, process.EventPrepare))
	x.p.Tick(ResendEvery-1, x.m, &x.out)
	x.expect("too early", "")
	x.p.Tick(ResendEvery, x.m, &x.out)
	x.expect("some seconds later", fmt.Sprintf("0:%d 2:%d", process.EventPrepare, process.EventPrepare))
	x.confirm(s[0], protocol.StepPrepared)
	x.confirm(s[2], protocol.StepPrepared)
	if err := x.p.Request(x.m, 1, &protocol.ProcessRequest{
		Session: s[1], Name: []byte("p"), Epoch: x.epoch(), Number: 1,
		Low: 1, To: []uint64{s[1]}, Payload: []byte("me"),
	}, &x.out); err != nil {
		t.Fatal(err)
	}
	x.expect("to itself", "1<1:1:me")
	if x.p.Idle() {
		t.Fatal("nothing to do with a message under way")
	}
	x.must(shard.CmdProcessComplete,
		&protocol.ProcessComplete{Head: x.head(s[0]), Name: []byte("p"), Epoch: x.epoch()})
	x.p.Tick(2*ResendEvery, x.m, &x.out)
	x.expect("complete", fmt.Sprintf("1:%d 2:%d", process.EventComplete, process.EventComplete))
	x.confirm(s[1], protocol.StepCompleted)
	x.confirm(s[2], protocol.StepCompleted)
	x.confirm(s[0], protocol.StepCompleted)
	x.p.Tick(3*ResendEvery, x.m, &x.out)
	x.expect("settled", "")
	if n := x.p.Stats(); n.Relays != 0 || n.Requests != 1 {
		t.Fatalf("%+v", n)
	}
}

// TestCancelIsResent: while a process waits for its next round, the members of the one that was
// cancelled are told so again.
func TestCancelIsResent(t *testing.T) {
	x := newProcessHarness(t, 3)
	x.p.Tick(1, x.m, &x.out)
	x.out = ProcessOut{}
	x.must(shard.CmdProcessFail,
		&protocol.ProcessFail{Session: x.sessions[2], Name: []byte("p"), Epoch: x.epoch(), Text: "not now"})
	v, err := x.m.Processes().Find(1, []byte("p"))
	if err != nil || v.Phase() != protocol.PhaseWaiting {
		t.Fatalf("%v; the process is in phase %v", err, v.Phase())
	}
	x.p.Tick(ResendEvery+1, x.m, &x.out)
	x.expect("some seconds later", fmt.Sprintf("0:%[1]d 1:%[1]d 2:%[1]d", process.EventCancel))
}

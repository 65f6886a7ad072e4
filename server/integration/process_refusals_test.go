package integration

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
)

// TestProcessBadInput: what is wrong is answered with a sentence, and nothing stays of it.
func TestProcessBadInput(t *testing.T) {
	t.Parallel()
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
		uint64(protocol.ProcessBucket(999, name, s.Config.Buckets)), &protocol.ProcessWatch{Node: 999, Name: name})
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

// TestProcessOldEpoch: nothing of a round that is over is taken, and only the coordinator completes
// one.
func TestProcessOldEpoch(t *testing.T) {
	t.Parallel()
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

// TestProcessRights: members need use, readers read, operators admin; a missing right tells nothing
// of what there is.
func TestProcessRights(t *testing.T) {
	t.Parallel()
	var may atomic.Uint32
	may.Store(uint32(auth.RightRead))
	s := start(t, func(c *server.Config) {
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

package integration

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// memberClient is a member with a connection of its own that does what it is told and nothing more.
type memberClient struct {
	*raw
	node    uint64
	name    string
	session uint64
	n       uint64
}

func newMemberClient(t *testing.T, s *instance, name string, n uint64) *memberClient {
	t.Helper()
	c := connect(t, s)
	p := &memberClient{raw: c, node: c.node(), name: name, n: n}
	p.session = c.session(p.node, n).Session
	return p
}

func (p *memberClient) bucket() uint64 {
	return uint64(protocol.ProcessBucket(p.node, []byte(p.name), p.s.Config.Buckets))
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

// pair is two players whose round is open for messages.
func pair(t *testing.T, s *instance) (a, b *memberClient, epoch uint64) {
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

func connHas(s *instance, session uint64) bool { return s.Bindings.Conn(session) != nil }

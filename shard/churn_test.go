package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// churn makes batches of random commands of every kind, for tests that need a machine in a busy,
// odd state rather than a particular one.
type churn struct {
	r     *rand.Rand
	m     *Machine
	out   Events
	index uint64
	time  uint64
	term  uint64

	sessions []scriptSession // home sessions and remote sessions, ended ones too
	nodes    uint64
	creates  int
	names    int
}

const churnBuckets = 8

// newChurn uses the machine, in which most semaphores grow old soon if the seed is even.
func newChurn(seed uint64, m *Machine) *churn {
	x := &churn{r: rand.New(rand.NewPCG(seed, 1)), m: m, nodes: 2, names: 8}
	if seed%2 == 0 {
		setRing(m, 3)
	}
	x.takeOver()
	x.apply(
		Command{Kind: CmdBuckets,
			Body: AppendBuckets(nil, BucketsBody{Total: churnBuckets, Count: churnBuckets - 2})},
		Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()})},
		Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: 2, Revision: 1, Config: scriptConfig()})},
	)
	return x
}

// setRing gives a machine so many places for its newest semaphores.
func setRing(m *Machine, places int) {
	newest := slices.Collect(m.semaphores.allNewest())
	for _, s := range newest {
		m.semaphores.remove(s)
	}
	m.semaphores.ring, m.semaphores.next = make([]*semaphore, places), 0
	for _, s := range newest {
		m.semaphores.add(s)
	}
}

func (x *churn) entry(commands ...Command) []byte {
	x.index++
	b := AppendHeader(nil, Header{Format: 1, Epoch: x.term << 16, Seq: x.index, LogTime: x.time, Wall: x.time})
	for _, c := range commands {
		b = AppendCommand(b, c)
	}
	return b
}

func (x *churn) apply(commands ...Command) []byte {
	entry := x.entry(commands...)
	x.out.Reset()
	x.m.Apply(x.index, entry, &x.out)
	for i := range x.out.List {
		if e := &x.out.List[i]; e.Kind == EventReply && commands[e.Command].Kind == CmdSessionStart &&
			e.Session != 0 {
			x.sessions = append(x.sessions,
				scriptSession{id: e.Session, node: e.Node, epoch: e.Epoch, seq: new(uint64)})
		}
	}
	return entry
}

func (x *churn) takeOver() []byte {
	x.term++
	return x.apply(Command{Kind: CmdTakeOver})
}

// step applies one random batch and returns it.
func (x *churn) step() []byte {
	switch {
	case x.r.IntN(3) == 0:
		x.time += x.r.Uint64N(50)
	case x.r.IntN(80) == 0:
		x.time += x.r.Uint64N(15_000)
	case x.r.IntN(500) == 0:
		x.time += Retention
	}
	if x.r.IntN(60) == 0 {
		return x.takeOver()
	}
	commands := make([]Command, x.r.IntN(6))
	for i := range commands {
		commands[i] = x.command()
	}
	return x.apply(commands...)
}

func (x *churn) name() []byte {
	return fmt.Appendf(nil, "%s/%d", []string{"sem", "sem", "eph"}[x.r.IntN(3)], x.r.IntN(x.names))
}

func (x *churn) data() []byte { return []byte([]string{"", "a", "b", "some longer data"}[x.r.IntN(4)]) }

func (x *churn) timeout() uint64 {
	return []uint64{0, 10, 1000, 60_000, protocol.Forever}[x.r.IntN(5)]
}

// command makes a random command; most are requests on sessions.
func (x *churn) command() Command {
	if len(x.sessions) < 3 || x.r.IntN(25) == 0 {
		return x.newSession()
	}
	// Young sessions are used most.
	n := min(len(x.sessions), 12)
	a := &x.sessions[len(x.sessions)-1-x.r.IntN(n)]
	request := func(kind CommandKind, m protocol.Message) Command {
		return Command{Kind: kind, Node: a.node, Epoch: a.epoch, Sender: "c", Body: protocol.AppendBody(nil, m)}
	}
	*a.seq++
	head := protocol.Head{Session: a.id, Seq: *a.seq, Low: *a.seq - x.r.Uint64N(min(*a.seq, 4))}
	if x.r.IntN(10) == 0 {
		head.Seq -= x.r.Uint64N(min(head.Seq, 4)) // sent again
	}
	if x.r.IntN(8) == 0 {
		name := fmt.Appendf(nil, "p-%d", x.r.IntN(6))
		switch epoch := 1 + x.r.Uint64N(20); x.r.IntN(6) {
		case 0:
			return request(CmdProcessLeave, &protocol.ProcessLeave{Head: head, Name: name})
		case 1:
			return request(CmdProcessConfirm, &protocol.ProcessConfirm{Session: a.id, Name: name,
				Epoch: epoch, Step: protocol.ProcessStep(1 + x.r.IntN(2))})
		case 2:
			return request(CmdProcessComplete, &protocol.ProcessComplete{Head: head, Name: name, Epoch: epoch})
		default:
			return request(CmdProcessJoin, &protocol.ProcessJoin{Head: head, Name: name,
				Key: []string{"", "k"}[x.r.IntN(2)], Data: x.data(),
				Options: protocol.ProcessOptions{RoundTimeout: 1000, Return: 1000}})
		}
	}
	if x.r.IntN(8) == 0 {
		kind, m := x.track(a.id, head)
		return request(kind, m)
	}
	switch p := x.r.IntN(100); {
	case p < 50:
		count := 1 + x.r.Uint64N(3)
		name := x.name()
		ephemeral := bytes.HasPrefix(name, []byte("eph")) != (x.r.IntN(30) == 0)
		if ephemeral && x.r.IntN(2) == 0 {
			count = protocol.Forever
		}
		return request(CmdAcquire, &protocol.Acquire{
			Head: head, Name: name, Count: count, Timeout: x.timeout(), Data: x.data(), Ephemeral: ephemeral,
		})
	case p < 66:
		return request(CmdRelease, &protocol.Release{Head: head, Name: x.name()})
	case p < 76:
		return request(CmdCreate,
			&protocol.Create{Head: head, Name: x.name(), Limit: 1 + x.r.Uint64N(4), Data: x.data()})
	case p < 79:
		return request(CmdUpdate, &protocol.Update{Head: head, Name: x.name(), Data: x.data()})
	case p < 82:
		return request(CmdResize, &protocol.Resize{Head: head, Name: x.name(), Limit: 1 + x.r.Uint64N(5)})
	case p < 85:
		return request(CmdDelete, &protocol.Delete{Head: head, Name: x.name(), Force: x.r.IntN(2) == 0})
	case p < 88:
		return request(CmdSessionStop, &protocol.SessionStop{Session: a.id, Epoch: a.epoch})
	case p < 91:
		if x.r.IntN(4) > 0 {
			a.epoch++
		}
		return request(CmdSessionAttach, &protocol.SessionAttach{
			Session: a.id, Node: a.node, Epoch: a.epoch, Key: make([]byte, 16), Timeout: x.r.Uint64N(20_000),
			Description: string(x.data()), Nonce: 1 + x.r.Uint64N(2),
		})
	case p < 94:
		return Command{Kind: CmdDetach, Body: AppendDetach(nil, DetachBody{Sessions: []DetachItem{{Session: a.id, Epoch: a.epoch, LastContact: x.time}}})}
	case p < 96:
		return Command{Kind: CmdRemoteEnded, Body: AppendRemoteEnded(nil, RemoteEndedBody{[]RemoteEnd{{Session: a.id}}})}
	case p < 97:
		return Command{Kind: CmdRemoteUpdate,
			Body: AppendRemoteUpdate(nil, RemoteUpdateBody{Session: a.id, Epoch: a.epoch, Description: "seen"})}
	case p < 98:
		c := scriptConfig()
		c.GracePeriod = 2000 + x.r.Uint64N(20_000)
		return Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{a.node, x.index, c, x.r.Uint64N(1000)})}
	case p < 99 && x.r.IntN(4) == 0:
		drop := 1 + x.r.Uint64N(x.nodes)
		return Command{Kind: CmdNodeDrop, Body: AppendNodeDrop(nil, NodeDropBody{drop})}
	case x.r.IntN(4) > 0:
		return Command{Kind: CmdBuckets,
			Body: AppendBuckets(nil, BucketsBody{Total: 8, First: uint32(x.r.IntN(6)), Count: 1})}
	default:
		x.nodes++
		return Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{x.nodes, 1, scriptConfig(), 0})}
	}
}

// track makes a request on one of a few tracks. Registrations are most, so that sessions that end
// have instances; incarnations are small numbers.
func (x *churn) track(session uint64, head protocol.Head) (CommandKind, protocol.Message) {
	name := fmt.Appendf(nil, "s/t-%d", x.r.IntN(4))
	id := fmt.Sprintf("i-%d", x.r.IntN(6))
	location := []string{"SAS", "MAN"}[x.r.IntN(2)]
	incarnation := 1 + x.r.Uint64N(12)
	config := func() protocol.TrackConfig {
		return protocol.TrackConfig{
			Source: []protocol.TrackSource{protocol.SourceTSO, protocol.SourcePublished,
				protocol.SourceExternal}[x.r.IntN(3)],
			Locations: []protocol.LocationConfig{{Name: "SAS"},
				{Name: "MAN", Delay: x.r.Uint64N(200)}}[:1+x.r.IntN(2)], StallTimeout: 500, AutoDemote: true,
		}
	}
	switch p := x.r.IntN(40); {
	case p < 14:
		return CmdTrackRegister, &protocol.TrackRegister{
			Head: head, Name: name, ID: id, Location: location, Role: protocol.TrackInstanceRole(1 + x.r.IntN(2)),
			Meta: string(x.data()), Takeover: x.r.IntN(2) == 0,
		}
	case p < 24:
		poll := &protocol.TrackPoll{Session: session, Name: name, ID: id, Incarnation: incarnation}
		if x.r.IntN(2) == 0 {
			poll.Report = protocol.UpdateReport{Seq: x.index, Current: 1 + x.r.Uint64N(30),
				Target: 1 + x.r.Uint64N(30), Code: "OK", Attempts: 1}
		}
		return CmdTrackPoll, poll
	case p < 30:
		return CmdTrackCreate, &protocol.TrackCreate{Head: head, Name: name, Config: config()}
	case p < 32:
		return CmdTrackAdvance, &protocol.TrackAdvance{Head: head, Name: name, Version: 1 + x.r.Uint64N(30)}
	case p < 34:
		return CmdTrackPublish, &protocol.TrackPublish{Head: head, Name: name, Payload: x.data()}
	case p < 36:
		return CmdTrackUnregister, &protocol.TrackUnregister{Head: head, Name: name, ID: id, Incarnation: incarnation}
	case p < 37:
		return CmdTrackAlter,
			&protocol.TrackAlter{Head: head, Name: name, Revision: 1 + x.r.Uint64N(3), Config: config()}
	case p < 39:
		return CmdTrackAdmin, &protocol.TrackAdmin{Head: head, Name: name, Verb: protocol.TrackVerb(1 + x.r.IntN(8)),
			Locations: []string{location}, Version: 1, ID: id}
	default:
		return CmdTrackDelete, &protocol.TrackDelete{Head: head, Name: name, Force: x.r.IntN(2) == 0}
	}
}

// newSession starts a session, or makes a remote session up.
func (x *churn) newSession() Command {
	node := x.nodes - x.r.Uint64N(2)
	x.creates++
	if x.r.IntN(2) == 0 {
		x.sessions = append(x.sessions, scriptSession{id: protocol.MakeSessionID(0, 6, uint64(x.creates)),
			node: node, epoch: 1, seq: new(uint64)})
	}
	m := protocol.SessionStart{
		Node: node, CreateID: fmt.Appendf(nil, "%16d", x.creates), Key: make([]byte, 16),
		Timeout: x.r.Uint64N(20_000), Description: string(x.data()), Nonce: 1,
	}
	return Command{Kind: CmdSessionStart, Node: node, Sender: "client", Body: protocol.AppendBody(nil, &m)}
}

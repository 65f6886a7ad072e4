package shard

import (
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// Processes in the world of moves. The model of one is who joined, in which order, and has neither
// left, nor been evicted, nor ended. What each member was told is kept for it as an SDK would, so
// that it can be compared with what the others were told: epochs rise, through moves too, a
// coordinator is one in each epoch, and no epoch is complete for one and cancelled for another.

var moveTestProcesses = [][]byte{[]byte("alpha"), []byte("b"), []byte("gamma.3"), []byte("delta-4")}

// modelProcess is a process as the world knows it.
type modelProcess struct {
	members      []uint64 // in order of joining
	epoch        uint64   // the highest that anyone was told
	coordinators map[uint64]uint64
	completed    map[uint64]bool
	notified     map[uint64]*modelMember
}

// modelMember is what a session was told of a process.
type modelMember struct {
	epoch       uint64 // the highest it was told to prepare
	open        bool
	coordinates bool
	completes   bool
}

func (x *moveTest) processOf(name []byte) *modelProcess {
	if x.processes == nil {
		x.processes = map[string]*modelProcess{}
	}
	p := x.processes[string(name)]
	if p == nil {
		p = &modelProcess{coordinators: map[uint64]uint64{}, completed: map[uint64]bool{},
			notified: map[uint64]*modelMember{}}
		x.processes[string(name)] = p
	}
	return p
}

func (p *modelProcess) without(id uint64) bool {
	i := slices.Index(p.members, id)
	if i < 0 {
		return false
	}
	p.members = slices.Delete(p.members, i, i+1)
	delete(p.notified, id)
	return true
}

// receiveRound takes what a shard told members.
func (x *moveTest) receiveRound(e *Event) {
	p, q := x.processOf(e.Name), e.Process
	if slices.Contains(x.ended, e.Session) {
		x.t.Fatalf("session %x has ended and is told %+v", e.Session, q)
	}
	p.epoch = max(p.epoch, q.Epoch)
	m := p.notified[e.Session]
	if m == nil {
		m = &modelMember{}
		p.notified[e.Session] = m
	}
	switch q.Kind {
	case process.EventPrepare:
		if was := p.coordinators[q.Epoch]; was != 0 && was != q.Coordinator {
			x.t.Fatalf("epoch %d of %s has coordinators %x and %x", q.Epoch, e.Name, was, q.Coordinator)
		}
		p.coordinators[q.Epoch] = q.Coordinator
		if q.Epoch < m.epoch {
			x.t.Fatalf("session %x is told to prepare epoch %d of %s after %d", e.Session, q.Epoch, e.Name, m.epoch)
		}
		if q.Epoch > m.epoch {
			if m.open && (q.CompletedEpoch == m.epoch) != p.completed[m.epoch] {
				x.t.Fatalf("session %x: epoch %d of %s is over, completed %d",
					e.Session, m.epoch, e.Name, q.CompletedEpoch)
			}
			*m = modelMember{epoch: q.Epoch, open: true}
			x.count("round started")
		}
	case process.EventCoordinate:
		if q.Epoch == m.epoch && m.open {
			m.coordinates = true
		}
	case process.EventCancel:
		if p.completed[q.Epoch] {
			x.t.Fatalf("epoch %d of %s was completed and is cancelled", q.Epoch, e.Name)
		}
		m.open = false
		x.count("round cancelled")
	case process.EventComplete:
		p.completed[q.Epoch] = true
		m.completes = true
	case process.EventRemoved:
		x.count("evicted")
	}
}

// member sends something of a member.
func (x *moveTest) member() error {
	if len(x.clients) == 0 {
		return nil
	}
	c := x.clients[x.r.IntN(len(x.clients))]
	name := moveTestProcesses[x.r.IntN(len(moveTestProcesses))]
	p := x.processOf(name)
	m := p.notified[c.id]
	joined := slices.Contains(p.members, c.id)
	var body protocol.Message
	var kind CommandKind
	h := protocol.Head{Session: c.id, Seq: c.seq + 1, Low: c.low}
	switch n := x.r.IntN(20); {
	case !joined && n < 12:
		kind, body = CmdProcessJoin, &protocol.ProcessJoin{Head: h, Name: name, Data: []byte{byte(c.id)}, Options: protocol.ProcessOptions{
			RoundTimeout: []uint64{0, 4000}[x.r.IntN(2)], Debounce: []uint64{0, 1000}[x.r.IntN(2)],
		}}
	case !joined:
		return nil
	case n == 0:
		kind, body = CmdProcessLeave, &protocol.ProcessLeave{Head: h, Name: name}
	case n == 1:
		kind, body = CmdProcessEvict, &protocol.ProcessEvict{Node: 1, Name: name, Session: c.id, Text: "x"}
	case n == 2:
		kind, body = CmdProcessForce, &protocol.ProcessForceRound{Node: 1, Name: name}
	case m == nil || m.epoch == 0:
		return nil
	case n == 3:
		kind, body = CmdProcessFail, &protocol.ProcessFail{Session: c.id, Name: name, Epoch: m.epoch, Text: "x"}
	case m.coordinates && n < 12:
		kind, body =
			CmdProcessComplete, &protocol.ProcessComplete{Head: h, Name: name, Epoch: m.epoch, Result: []byte("r")}
	case m.completes:
		kind, body = CmdProcessConfirm,
			&protocol.ProcessConfirm{Session: c.id, Name: name, Epoch: m.epoch, Step: protocol.StepCompleted}
	default:
		kind, body = CmdProcessConfirm,
			&protocol.ProcessConfirm{Session: c.id, Name: name, Epoch: m.epoch, Step: protocol.StepPrepared}
	}
	return x.sendMember(c, name, Command{Kind: kind, Node: 1, Epoch: c.epoch, Body: protocol.AppendBody(nil, body)},
		kind == CmdProcessJoin || kind == CmdProcessLeave ||
			kind == CmdProcessComplete)
}

func (x *moveTest) sendMember(c *modelClient, name []byte, cmd Command, numbered bool) error {
	p := x.processOf(name)
	i, ok := x.serving(protocol.ProcessBucket(1, name, moveTestBuckets))
	if !ok {
		for k := range x.shards {
			if e := x.command(k, cmd); e.Status != protocol.StatusWrongShard {
				return fmt.Errorf("shard %d answers for a process that no shard serves: %s", k, show(e))
			}
		}
		x.count("member refused while frozen")
		return nil
	}
	x.catchUp(false)
	joined := slices.Contains(p.members, c.id)
	e := x.command(i, cmd)
	x.logf("shard %d: session %x, %s: kind %d -> %s", i, c.id, name, cmd.Kind, show(e))
	if numbered {
		if again := x.command(i, cmd); again.Status != e.Status || again.OrderID != e.OrderID ||
			cmd.Kind == CmdProcessLeave && again.Result != e.Result {
			return fmt.Errorf("the same number is answered %s, then %s", show(e), show(again))
		}
		c.seq++
		x.count("member request sent again")
	}
	switch cmd.Kind {
	case CmdProcessJoin:
		if e.Status != protocol.StatusOK || joined {
			return fmt.Errorf("join: %s", show(e))
		}
		p.members = append(p.members, c.id)
		if len(p.members) > 2 {
			x.count("three members")
		}
	case CmdProcessLeave, CmdProcessEvict:
		if e.Status != protocol.StatusOK || !p.without(c.id) {
			return fmt.Errorf("leave: %s", show(e))
		}
	case CmdProcessComplete:
		if e.Status == protocol.StatusOK {
			x.count("round completed")
		}
	}
	x.catchUp(false)
	return nil
}

// sameProcesses compares members, when no move is under way and nothing is left over.
func (x *moveTest) sameProcesses() error {
	count := 0
	for _, s := range x.shards {
		s.m.Processes().From(0, nil, func(ProcessView) bool {
			count++
			return true
		})
	}
	for _, name := range moveTestProcesses {
		p := x.processOf(name)
		for _, id := range x.ended {
			if p.without(id) {
				x.count("member ended")
			}
		}
		m := x.shards[x.owner[protocol.ProcessBucket(1, name, moveTestBuckets)]].m
		v, err := m.Processes().Find(1, name)
		if err != nil {
			if len(p.members) > 0 {
				return fmt.Errorf("process %s with %x is lost", name, p.members)
			}
			continue
		}
		count--
		if got := v.object.process().LiveSessions(nil); !slices.Equal(got, p.members) {
			return fmt.Errorf("process %s has members %x, want %x", name, got, p.members)
		}
		if v.Epoch() < p.epoch {
			return fmt.Errorf("process %s has epoch %d, its members were told of %d", name, v.Epoch(), p.epoch)
		}
		for _, id := range p.members { // an SDK that syncs
			events, known := m.Processes().Resend(v, id, nil)
			if !known {
				return fmt.Errorf("process %s does not know its member %x", name, id)
			}
			for i := range events {
				x.receiveRound(&events[i])
			}
		}
	}
	if count != 0 {
		return fmt.Errorf("%d processes more than there were made", count)
	}
	return nil
}

// stillIn is the state of all processes and tracks in a run's copies.
func stillIn(m *Machine, v *bucketMove) (all string) {
	for b := v.run.First; b < v.run.First+v.run.Count; b++ {
		for _, objects := range m.buckets[b].objects {
			list, _ := keyedFrom(maps.Values(objects), nil)
			for _, x := range list {
				all += string(x.name) + string(x.state.Append(nil))
			}
		}
	}
	return all
}

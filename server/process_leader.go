package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// Bounds of what members' messages wait in before the shard's goroutine takes them. Beyond them a message is OVERLOADED, and sent again.
const (
	maxMemberMessages = 4096
	maxMemberBytes    = 16 << 20
)

const (
	processTick         = 100 * time.Millisecond // of leader.Processes
	idleTick            = time.Second            // of one that has nothing to do
	slowPrepareAfter    = 10 * time.Second       // of a member, until it is logged
	slowCheckPeriod     = 5 * time.Second        // between two looks for slow members
	maxScannedProcesses = 10_000                 // processes in one look at them
)

// processLeader is the leader's part of coordination processes at a shard host: messages between members, and what members are told again. One goroutine does all of it, in the
// order in which requests came, so that neither an event loop nor the log waits for a broadcast to be written to many connections.
type processLeader struct {
	host        *shardHost
	wake        chan struct{}
	leaderships atomic.Uint64 // beginnings and ends of this replica's leadership: it leads while the number is odd
	counts      processCounts

	queue struct {
		sync.Mutex
		list   []memberMessage
		bytes  int
		closed bool
	}

	mu    sync.Mutex // held around each use of lead, and before the machine
	relay *leader.Processes

	// Of the goroutine.
	seenLeaderships uint64 // of leaderships
	out             leader.ProcessOut
	outbox          *outbox
	messages        processMessages
	slow            slowMembers
}

// memberMessage is a sync, message or reply of a member, as it came.
type memberMessage struct {
	conn      *conn
	id        uint64
	kind      protocol.Kind
	node      uint64
	epoch     uint64 // attach epoch
	body      []byte
	confirmed bool // a read barrier lies behind it
}

// processMessages is scratch memory.
type processMessages struct {
	sync    protocol.ProcessSync
	request protocol.ProcessRequest
	reply   protocol.ProcessReply
	round   roundWriter
	message protocol.ProcessMessage
}

func newProcessLeader(d *shardHost) *processLeader {
	return &processLeader{host: d, wake: make(chan struct{}, 1), relay: leader.NewProcesses(relay.Limits{}), outbox: d.server.newOutbox(), slow: slowMembers{known: make(map[string]uint64)}}
}

// add takes what a member sent. OK: it is answered by the goroutine.
func (p *processLeader) add(m memberMessage) protocol.Status {
	q := &p.queue
	q.Lock()
	defer q.Unlock()
	switch {
	case q.closed:
		return protocol.StatusUnavailable
	case len(q.list) >= maxMemberMessages || q.bytes+len(m.body) > maxMemberBytes:
		return protocol.StatusOverloaded
	}
	q.list = append(q.list, m)
	q.bytes += len(m.body)
	p.notify()
	return protocol.StatusOK
}

func (p *processLeader) take(spare []memberMessage) []memberMessage {
	q := &p.queue
	q.Lock()
	defer q.Unlock()
	list := q.list
	q.list, q.bytes = spare[:0], 0
	return list
}

func (p *processLeader) run(ctx context.Context) {
	tick := time.NewTimer(idleTick)
	defer tick.Stop()
	idle := true
	var list []memberMessage
	for {
		due := false
		select {
		case <-ctx.Done():
			p.close()
			return
		case <-p.wake:
		case <-tick.C:
			due = true
		}
		p.followLeadership()
		list = p.take(list)
		for i := range list {
			p.serve(&list[i])
		}
		clear(list)
		if due {
			p.tick()
		}
		if due || len(list) > 0 {
			p.outbox.flush()
		}
		if now := p.idle(); due || now != idle {
			idle = now
			if idle {
				tick.Reset(idleTick)
			} else {
				tick.Reset(processTick)
			}
		}
	}
}

// close answers what waits: the shard does not run here any more.
func (p *processLeader) close() {
	p.queue.Lock()
	p.queue.closed = true
	p.queue.Unlock()
	for _, m := range p.take(nil) {
		p.outbox.fail(m.conn, m.kind, m.id, protocol.StatusUnavailable, "the shard stops running here; fetch the map and send again")
	}
	p.outbox.flush()
}

func (p *processLeader) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.relay.Idle()
}

// leadershipChanged is told, in log order, that the replica begins to lead or ends to.
func (p *processLeader) leadershipChanged() {
	p.leaderships.Add(1)
	p.notify()
}

func (p *processLeader) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// followLeadership begins and ends the leader's part with the leadership.
func (p *processLeader) followLeadership() {
	reigns := p.leaderships.Load()
	if reigns == p.seenLeaderships {
		return
	}
	p.seenLeaderships = reigns
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading() {
		p.relay.Start(p.now())
	} else {
		p.relay.Stop()
	}
}

func (p *processLeader) leading() bool { return p.seenLeaderships%2 == 1 }

func (p *processLeader) now() uint64 { return uint64(p.host.server.clock.Now() / time.Millisecond) }

// serve answers one message, and carries on what comes of it.
func (p *processLeader) serve(m *memberMessage) {
	d := p.host
	defer d.server.guard("process", func() {
		m.conn.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect; reconnect and send again")
	})
	if !p.leading() {
		m.conn.rejectSubmit(p.outbox, d, m.kind, m.id, protocol.StatusUnavailable)
		return
	}
	var err error
	p.with(func(machine *shard.Machine) { err = p.step(machine, m) })
	switch {
	case err == nil:
		p.outbox.reply(m.conn, m.kind, m.id, nil)
	case protocol.StatusOf(err) == protocol.StatusNotFound && !m.confirmed:
		p.retryBehindBarrier(*m)
	default:
		p.outbox.failError(m.conn, m.kind, m.id, err)
	}
	p.deliver()
}

// retryBehindBarrier has a message looked at again behind a read barrier. A leader that is deposed and does not know it does no harm but by saying that there is no such process or member:
// that ends a membership.
func (p *processLeader) retryBehindBarrier(m memberMessage) {
	d := p.host
	m.confirmed = true
	d.raft.Barrier(func(ok bool) {
		st := protocol.StatusUnavailable
		if ok {
			st = p.add(m)
		}
		if st != protocol.StatusOK {
			o := d.server.borrowOutbox()
			defer d.server.returnOutbox(o)
			m.conn.rejectSubmit(o, d, m.kind, m.id, st)
		}
	})
}

// with runs f with lead and the machine in hand.
func (p *processLeader) with(f func(*shard.Machine)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host.raft.View(f)
}

// step is one call of leader.Processes. mu is held.
func (p *processLeader) step(machine *shard.Machine, m *memberMessage) error {
	var session uint64
	var err error
	x := &p.messages
	switch m.kind {
	case protocol.KindProcessSync:
		err, session = x.sync.DecodeBody(m.body), x.sync.Session
	case protocol.KindProcessRequest:
		err, session = x.request.DecodeBody(m.body), x.request.Session
	default:
		err, session = x.reply.DecodeBody(m.body), x.reply.Session
	}
	if err != nil {
		return err
	}
	if machine.TakenOver(session, m.epoch) {
		return protocol.Errorf(protocol.StatusBadSession, "session was attached again since; attach it here, or present its newer ticket")
	}
	switch m.kind {
	case protocol.KindProcessSync:
		return p.relay.Sync(machine, m.node, &x.sync, &p.out)
	case protocol.KindProcessRequest:
		return p.relay.Request(machine, m.node, &x.request, &p.out)
	}
	return p.relay.Reply(machine, m.node, &x.reply, &p.out)
}

// tick tells again what is due.
func (p *processLeader) tick() {
	defer p.host.server.guard("process tick", nil)
	if !p.leading() {
		return
	}
	p.with(func(machine *shard.Machine) { p.relay.Tick(p.now(), machine, &p.out) })
	p.deliver()
	p.logSlowMembers()
}

// deliver writes what a call has given to the connections of members. What finds none, or a full one, is lost: it comes again when the member syncs, or the sender sends it again.
func (p *processLeader) deliver() {
	for i := range p.out.Rounds {
		p.host.notifyMember(p.outbox, &p.messages.round, &p.out.Rounds[i])
	}
	for i := range p.out.Messages {
		m := &p.out.Messages[i]
		c := p.host.server.bindings.conn(m.To)
		if c == nil {
			continue
		}
		m.Message(&p.messages.message)
		if !p.host.Send(c.ID(), protocol.AppendFrame(nil, protocol.KindProcessMessage, 0, p.host.id, &p.messages.message), true) {
			p.counts.undelivered.Add(1)
		}
	}
	p.out.Reset()
	p.messages.message.Payload = nil
}

// roundWriter writes rounds to members, for one goroutine.
type roundWriter struct {
	protocol.ProcessRound
	list    []protocol.ProcessMember // of the last round that was written
	encoded []byte                   // the same
}

// AppendBody writes the round with the list that is encoded.
func (w *roundWriter) AppendBody(b []byte) []byte { return w.AppendShared(b, w.encoded) }

// take makes an event the round that AppendBody writes. A list is never changed in place, and all that are told of a round share it.
func (w *roundWriter) take(e *shard.Event) {
	shard.ProcessRound(e, &w.ProcessRound)
	list := e.Process.Members
	if w.encoded != nil && len(list) == len(w.list) && (len(list) == 0 || &list[0] == &w.list[0]) {
		return
	}
	w.list, w.encoded = list, protocol.AppendProcessMembers(w.encoded[:0], list)
}

// notifyMember writes an EventProcess to its member's connection, if there is one here. A list of members may be long, and comes again some seconds later: it is not for a connection
// that has much to read already. Everything else is short.
func (d *shardHost) notifyMember(o *outbox, w *roundWriter, e *shard.Event) {
	c := d.server.bindings.conn(e.Session)
	if c == nil {
		return
	}
	w.take(e)
	if len(w.list) == 0 {
		o.event(c, protocol.KindProcessRound, 0, d.id, w)
	} else if !d.Send(c.ID(), protocol.AppendFrame(nil, protocol.KindProcessRound, 0, d.id, w), true) {
		d.processes.counts.undelivered.Add(1)
	}
	w.Result = nil
}

// slowMembers remembers which rounds were complained of.
type slowMembers struct {
	at    time.Duration
	known map[string]uint64 // epoch by node and name
}

// logSlowMembers logs members that take long to prepare, once a round: the round waits for them.
func (p *processLeader) logSlowMembers() {
	d := p.host
	now := d.server.clock.Now()
	if now-p.slow.at < slowCheckPeriod {
		return
	}
	p.slow.at = now
	known := make(map[string]uint64)
	logTime := d.raft.LogTime()
	d.raft.View(func(m *shard.Machine) {
		left := maxScannedProcesses
		m.ProcessesFrom(0, nil, func(v shard.ProcessView) bool {
			left--
			if v.Phase() != protocol.PhasePreparing {
				return left > 0
			}
			started, sessions := v.Preparing(nil)
			if logTime < started+uint64(slowPrepareAfter/time.Millisecond) {
				return left > 0
			}
			key := delivery.NameKey(v.Node(), v.Name())
			if p.slow.known[key] != v.Epoch() {
				path, _ := d.server.nodePath(v.Node())
				d.server.log.Warn("members do not prepare, the round waits for them", "shard", d.id, "node", path, "process", string(v.Name()), "epoch", v.Epoch(),
					"members", len(sessions), "session", sessions[0])
			}
			known[key] = v.Epoch()
			return left > 0
		})
	})
	p.slow.known = known
}

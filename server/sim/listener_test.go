package sim

import (
	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

func (r *replica) pong(p pong) {
	w := r.w
	k := w.conns[p.Conn]
	if k == nil || !k.open {
		return
	}
	sent, ok := k.pings[p.Ping]
	if !ok {
		w.fail("a pong to a ping that was not sent")
	}
	w.counts["pong"]++
	c := k.c
	w.sendToClient(c, func() {
		if c.conn == k && c.validity != nil && k.session == c.session {
			if w.o.CountFromReply {
				sent = w.clock(c)
			}
			c.validity.Renewed(sent)
		}
	})
}

// request sends a command to a replica. The reply comes when the replica has applied it, if ever.
func (r *replica) request(c *client, k uint64, cmd shard.Command, done func(shard.Event)) {
	w := r.w
	copies := 1
	if k == 0 && w.fault(DuplicateMessage, c.n, 0.05) {
		copies = 2
	}
	answer := func(x shard.Event) { w.sendToClient(c, func() { done(x) }) }
	for range copies {
		if !w.reachable(c) || w.fault(LoseMessage, c.n, 0.02) {
			continue
		}
		w.after(w.delay(c.n), func() {
			r.call(func() {
				if !r.leading {
					answer(shard.Event{Status: protocol.StatusUnavailable})
					return
				}
				if r.attachRelaxed(k, cmd, answer) {
					answer = func(shard.Event) {}
				}
				e := logEntry{bytes: r.batch(r.leaderEpoch, cmd), from: r, life: r.life, conn: k, reply: answer}
				switch {
				case w.now < r.isolatedUntil || w.fault(LoseProposal, r.n, 0.03):
				case w.fault(DelayProposal, r.n, 0.1):
					w.after(w.pick(DelayProposal, r.n, 8_000), func() { r.s.enter(e) })
				default:
					r.s.enter(e)
				}
			})
		})
	}
}

// attachRelaxed answers an attach ahead of the log, under the conditions of the server
// (server/request/session.go).
func (r *replica) attachRelaxed(k uint64, cmd shard.Command, answer func(shard.Event)) bool {
	w := r.w
	if cmd.Kind != shard.CmdSessionAttach || w.conns[k] == nil {
		return false
	}
	config, ok := r.m.Nodes().Config(node)
	began, fresh := r.leader.Fresh()
	var x protocol.SessionAttach
	bad := x.DecodeBody(cmd.Body) != nil
	v, found := r.m.Sessions().Home(x.Session)
	switch {
	case !ok || config.AttachConsistency != protocol.Relaxed || !found || bad:
		return false
	case !fresh || r.clock()-began >= config.GracePeriod:
		return false
	case !leader.MayAttachUnlogged(&v, &x, max(r.m.LogTime(), r.leader.LogTime(r.clock())), r.clock()-began):
		return false
	}
	w.counts["relaxed attach"]++
	answer(shard.Event{Status: protocol.StatusOK, Session: x.Session, Epoch: x.Epoch, Timeout: v.Timeout, Grace: config.GracePeriod})
	return true
}

// deliverResult sends a result to the client, if this is the replica it talks to.
func (r *replica) deliverResult(x shard.Event) {
	w := r.w
	c := w.sessions[x.Session]
	if c == nil || c.lastAsked[placeOf(r.s.id)] != r {
		return
	}
	w.sendToClient(c, func() {
		for i := range c.slots {
			t := &c.slots[i]
			switch {
			case semaphores[i].name != string(x.Name):
			case x.Kind == shard.EventLeaseLost:
				if t.held == x.OrderID {
					t.held = 0
				}
			case t.wait && t.seq == x.Seq:
				t.wait = false
				if x.Status == protocol.StatusOK && x.State == protocol.Acquired {
					t.held, t.count = x.OrderID, t.wanted
					w.counts["granted later"]++
				}
			}
		}
	})
}

// notifyEnded notifies a client that its session has ended, and notifyMoved that its home moves, on
// the connections of this replica.
func (r *replica) notifyEnded(x shard.Event) {
	w := r.w
	c := w.sessions[x.Session]
	if c != nil && c.conn != nil && c.conn.r == r {
		w.sendToClient(c, func() { c.validity.Ended(sessionstate.EndedByServer) })
	}
}

func (r *replica) notifyMoved(first, count uint32) {
	w := r.w
	for _, id := range sorted(w.conns) {
		k := w.conns[id]
		if b := protocol.SessionBucket(k.session); k.r != r || !k.open || k.session == 0 || b < first || b-first >= count {
			continue
		}
		w.counts["notified of a move"]++
		w.after(w.delay(k.c.n), func() { w.connLost(k) })
	}
}

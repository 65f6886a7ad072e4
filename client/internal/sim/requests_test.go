package sim

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// origin is where a command comes from.
type origin struct {
	k        *conn
	kind     protocol.Kind
	id       uint64
	unlogged uint64 // session of a relaxed attach, which was answered
}

// submit hands a request to the shard that owns its bucket. The reply comes when the replica has
// applied it, if ever.
func (in *instance) submit(k *conn, h protocol.Header, epoch uint64) {
	o := &origin{k: k, kind: h.Kind, id: h.ID}
	switch r := in.replicaOf(h.Arg); {
	case r == nil:
		in.rejectElsewhere(k, h)
	case !r.leading:
		r.rejectSubmit(o)
	case in.w.moves(r.s, h.Arg) && !r.isActive(h.Arg):
		r.reject(o, protocol.StatusWrongShard, protocol.RefusalNone, "")
	default:
		r.enterRequest(o, shard.Command{Node: node, Epoch: epoch, Body: h.Body})
	}
}

// enterRequest brings a request into the log: now, late or never. One that is lost is refused when
// that is certain. The requests of one leadership keep their order: clients rely on it.
func (r *replica) enterRequest(o *origin, cmd shard.Command) {
	w := r.w
	cmd.Kind = shard.CommandKind(o.kind)
	e := logEntry{bytes: r.batch(r.leaderEpoch, cmd), from: r, life: r.life, origin: o}
	if w.now < r.isolatedUntil || w.fault(LoseProposal, r.n, 0.03) {
		life := r.life
		w.afterOrEnd(1_000+w.pick(LoseProposal, r.n, 4_000), func() {
			if r.life == life {
				r.call(func() { r.rejectSubmit(o) })
			}
		})
		return
	}
	if w.fault(DelayProposal, r.n, 0.02) {
		r.late.until = max(r.late.until, w.now+w.pick(DelayProposal, r.n, 8_000))
	}
	q := r.late
	if q.until <= w.now {
		r.s.enter(e)
		return
	}
	q.list = append(q.list, e)
	w.afterOrEnd(q.until-w.now, q.enter)
}

// lateRequests are the requests of a leadership that enter the log late, and in order.
type lateRequests struct {
	s     *raftGroup
	list  []logEntry
	until uint64
}

func (q *lateRequests) enter() {
	if q.s.w.now < q.until && !q.s.w.faultsOver {
		return
	}
	list := q.list
	q.list, q.until = nil, 0
	for _, e := range list {
		q.s.enter(e)
	}
}

func (r *replica) isActive(bucket uint64) bool {
	_, active := r.m.Bucket(uint32(bucket))
	return active
}

// rejectElsewhere answers a request for a bucket of a shard that is not here.
func (in *instance) rejectElsewhere(k *conn, h protocol.Header) {
	f := protocol.Failure{MapVersion: in.known.version}
	if h.Arg < buckets {
		f.Shard = in.known.owner[h.Arg]
	}
	k.fail(h.Kind, h.ID, protocol.StatusWrongShard, f)
}

// rejectSubmit answers a request that the shard did not take.
func (r *replica) rejectSubmit(o *origin) {
	status := protocol.StatusUnavailable
	if r.knownLeader != nil && r.knownLeader != r {
		status = protocol.StatusWrongShard
	}
	r.reject(o, status, protocol.RefusalNone, "")
}

// reject answers a request with an error. With WRONG_SHARD the client is told who leads.
func (r *replica) reject(o *origin, status protocol.Status, refusal protocol.Refusal, message string) {
	k := o.k
	if o.unlogged != 0 {
		r.unloggedAttachFailed(o, status)
		return
	}
	f := protocol.Failure{Refusal: refusal, Message: message}
	if status == protocol.StatusWrongShard {
		f.Master, f.Term = r.leaderInstance()
		f.Shard, f.MapVersion = r.s.id, r.known.version
	}
	k.fail(o.kind, o.id, status, f)
}

// unloggedAttachFailed takes back a relaxed attach that the log did not take.
func (r *replica) unloggedAttachFailed(o *origin, status protocol.Status) {
	if !o.k.open {
		return
	}
	if b := o.k.binding(o.unlogged); b != nil {
		r.unbind(b)
	}
	if status == protocol.StatusSessionExpired {
		o.k.event(protocol.KindSessionEnded, &protocol.SessionEnded{Session: o.unlogged, Reason: protocol.EndExpired})
	} else {
		o.k.close("the shard could not log an attach of this connection")
	}
}

// answer answers a request whose command was applied.
func (r *replica) answer(o *origin, x *shard.Event) {
	switch {
	case x.Status != protocol.StatusOK:
		r.reject(o, x.Status, x.Refusal, x.Text)
		return
	case o.unlogged != 0:
		return
	}
	var m protocol.Message
	switch o.kind {
	case protocol.KindSessionStart, protocol.KindSessionAttach:
		m = &protocol.SessionReply{
			Session: x.Session, Epoch: x.Epoch, Shard: r.s.id, Timeout: x.Timeout, Grace: x.Grace, Node: x.Node,
			Ticket: ticket(x.Session, x.Epoch),
		}
	case protocol.KindAcquire:
		m = &protocol.AcquireReply{State: x.State, OrderID: x.OrderID, Grant: o.k.c.grant(x.Grant)}
	case protocol.KindRelease:
		transferred := x.Result == 1
		if transferred {
			r.w.counts["transferred"]++
		}
		m = &protocol.ReleaseReply{Released: x.Flag, Transferred: transferred}
	}
	o.k.reply(o.kind, o.id, m)
}

// sessionAttached binds a session that the log has attached.
func (r *replica) sessionAttached(o *origin, x *shard.Event) {
	w := r.w
	if x.Epoch > 1 {
		w.counts["attached again"]++
	}
	conn := uint64(0)
	if o != nil && o.k.open {
		conn = o.k.id
		r.bind(&binding{k: o.k, session: x.Session, epoch: x.Epoch, home: r})
	} else {
		r.attachedElsewhere(x.Session, x.Epoch)
	}
	r.leader.Attached(r.clock(), conn, x.Session, x.Epoch, x.Timeout, x.Text)
}

// deliverResult sends a result to the connection that the session was bound on last, or had when it
// ended.
func (r *replica) deliverResult(x *shard.Event) {
	k := r.ended[x.Session]
	if list := r.bound[x.Session]; len(list) > 0 {
		k = list[0].k
	} else if x.Status != protocol.StatusSessionExpired {
		return
	}
	if k == nil {
		return
	}
	switch x.Kind {
	case shard.EventLeaseLost:
		k.event(protocol.KindLeaseLost, &protocol.LeaseLost{
			Session: x.Session, Name: x.Name, OrderID: x.OrderID, Message: x.Text, Cause: x.Cause,
		})
		return
	case shard.EventLeasePreempted:
		r.deliverPreempted(k, x)
		return
	}
	if x.State == protocol.Acquired {
		r.w.counts["granted later"]++
	}
	k.event(protocol.KindAcquireResult, &protocol.AcquireResult{
		Session: x.Session, Seq: x.Seq, Status: x.Status, State: x.State, OrderID: x.OrderID, Grant: k.c.grant(x.Grant),
		Message: x.Text,
	})
}

package sim

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// serve is what an instance does with a frame of a client. It follows server/request and
// server/session.
func (in *instance) serve(k *conn, h protocol.Header) {
	switch h.Kind {
	case protocol.KindPing:
		in.ping(k, h.ID)
	case protocol.KindMap:
		var m protocol.MapRequest
		in.decode(&m, h)
		k.reply(h.Kind, h.ID, in.mapReply(m.Known))
	case protocol.KindNodeDescribe:
		k.reply(h.Kind, h.ID, &protocol.NodeInfo{ID: node, Path: nodePath, Tier: in.w.tier, Config: in.w.nodeConfig()})
	case protocol.KindSessionStart:
		in.startSession(k, h)
	case protocol.KindSessionAttach:
		in.attachSession(k, h)
	case protocol.KindSessionStop:
		in.stopSession(k, h)
	case protocol.KindPresentTicket:
		in.presentTicket(k, h)
	case protocol.KindCreate:
		var m protocol.Create
		in.decode(&m, h)
		in.request(k, h, m.Session)
	case protocol.KindAcquire:
		var m protocol.Acquire
		in.decode(&m, h)
		in.request(k, h, m.Session)
	case protocol.KindRelease:
		var m protocol.Release
		in.decode(&m, h)
		in.request(k, h, m.Session)
	default:
		in.w.fail("a client sends a message of kind %d", h.Kind)
	}
}

func (in *instance) decode(m interface {
	protocol.Message
	protocol.Validator
}, h protocol.Header) {
	err := m.DecodeBody(h.Body)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		in.w.fail("a client sends a request of kind %d that is refused: %v", h.Kind, err)
	}
}

// ping answers for the connection, and has the homes of its sessions renew them. A home whose log
// may not have a relaxed attach of the connection yet is asked once it has.
func (in *instance) ping(k *conn, id uint64) {
	k.send(protocol.KindPong, id, 0, nil)
	for _, r := range k.homes() {
		if in.w.o.PongUnasked {
			k.send(protocol.KindPong, id, r.s.id, nil)
			continue
		}
		if k.waiting == nil {
			k.waiting = map[*replica]uint64{}
		}
		k.waiting[r] = id
	}
	k.askWaiting(in)
}

func (k *conn) homes() (list []*replica) {
	for _, b := range k.bindings() {
		if b.home != nil && !slices.Contains(list, b.home) {
			list = append(list, b.home)
		}
	}
	return list
}

// askWaiting asks the homes for pongs whose logs have all attaches of the connection. It does so
// behind what is under way.
func (k *conn) askWaiting(in *instance) {
	if len(k.waiting) == 0 || !k.open {
		return
	}
	unlogged := map[*replica]bool{}
	for _, b := range k.bindings() {
		unlogged[b.home] = unlogged[b.home] || b.unlogged
	}
	life := in.life
	for _, r := range k.homes() {
		ping, waits := k.waiting[r]
		if !waits || unlogged[r] {
			continue
		}
		delete(k.waiting, r)
		in.w.after(0, func() {
			in.call(func() {
				if k.open && in.life == life {
					r.leader.Ping(r.clock(), k.id, ping)
					r.execute()
				}
			})
		})
	}
}

func (r *replica) pong(p pong) {
	if k := r.w.conns[p.Conn]; k != nil && k.open {
		r.w.counts["pong"]++
		k.send(protocol.KindPong, p.Ping, r.s.id, nil)
	}
}

func (in *instance) startSession(k *conn, h protocol.Header) {
	var m protocol.SessionStart
	in.decode(&m, h)
	if m.Path != "" {
		m.Node, m.Path = node, ""
		h.Body = m.AppendBody(nil)
	}
	if h.Arg == protocol.HomeOfCreateID {
		h.Arg = uint64(protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), buckets))
	}
	in.submit(k, h, 0)
}

func (in *instance) attachSession(k *conn, h protocol.Header) {
	in.debugReq(k, h)
	var m protocol.SessionAttach
	in.decode(&m, h)
	if r := in.replicaOf(h.Arg); r == nil || !r.attachRelaxed(k, h, &m) {
		in.submit(k, h, 0)
	}
}

// attachRelaxed answers an attach ahead of the log, under the conditions of server/request.
func (r *replica) attachRelaxed(k *conn, h protocol.Header, m *protocol.SessionAttach) bool {
	config, ok := r.m.Nodes().Config(node)
	if !ok || !r.leading || config.AttachConsistency != protocol.Relaxed {
		return false
	}
	began, fresh := r.leader.Fresh()
	v, found := r.m.Sessions().Home(m.Session)
	now := r.clock()
	switch {
	case !found || !bytes.Equal(v.Key[:], m.Key):
		return false
	case !fresh || now-began >= config.GracePeriod:
		return false
	case !leader.MayAttachUnlogged(&v, m, max(r.m.LogTime(), r.leader.LogTime(now)), now-began):
		return false
	}
	r.w.counts["relaxed attach"]++
	r.enterRequest(&origin{k: k, kind: h.Kind, id: h.ID, unlogged: m.Session}, shard.Command{Node: node, Body: h.Body})
	r.bind(&binding{k: k, session: m.Session, epoch: m.Epoch, home: r, unlogged: true})
	k.reply(h.Kind, h.ID, &protocol.SessionReply{
		Session: m.Session, Epoch: m.Epoch, Shard: r.s.id, Timeout: m.Timeout, Grace: config.GracePeriod, Node: node,
		Ticket: ticket(m.Session, m.Epoch),
	})
	return true
}

func (in *instance) stopSession(k *conn, h protocol.Header) {
	var m protocol.SessionStop
	in.decode(&m, h)
	b := k.binding(m.Session)
	switch {
	case b == nil:
		in.rejectUnbound(k, h, m.Session)
	case in.replicaOf(h.Arg) != nil:
		in.w.counts["stop sent"]++
		in.submit(k, h, b.epoch)
	default:
		if b.home == nil {
			in.unbind(b)
		}
		in.rejectElsewhere(k, h)
	}
}

// ticket proves a session. The simulation's clients forge none.
func ticket(session, epoch uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, session), epoch)
}

func (in *instance) presentTicket(k *conn, h protocol.Header) {
	var m protocol.PresentTicket
	in.decode(&m, h)
	b := &binding{k: k, session: binary.BigEndian.Uint64(m.Ticket), epoch: binary.BigEndian.Uint64(m.Ticket[8:])}
	newest := uint64(0)
	for _, have := range in.bound[b.session] {
		newest = max(newest, have.epoch)
	}
	r := in.replicaOf(uint64(protocol.SessionBucket(b.session)))
	switch {
	case newest > b.epoch:
		k.fail(h.Kind, h.ID, protocol.StatusBadSession, protocol.Failure{})
	case r != nil && r.m.Sessions().Ended(b.session):
		k.fail(h.Kind, h.ID, protocol.StatusSessionExpired, protocol.Failure{})
	default:
		in.bind(b)
		k.reply(h.Kind, h.ID, nil)
	}
}

// request is a request on a session.
func (in *instance) request(k *conn, h protocol.Header, session uint64) {
	in.debugReq(k, h)
	if b := k.binding(session); b != nil {
		in.submit(k, h, b.epoch)
	} else {
		in.rejectUnbound(k, h, session)
	}
}

// rejectUnbound answers a request on a session that is not bound to the connection.
func (in *instance) rejectUnbound(k *conn, h protocol.Header, session uint64) {
	status := protocol.StatusBadSession
	r := in.replicaOf(uint64(protocol.SessionBucket(session)))
	if slices.Contains(k.ended, session) || r != nil && r.m.Sessions().Ended(session) {
		status = protocol.StatusSessionExpired
	}
	in.w.counts["not bound"]++
	k.fail(h.Kind, h.ID, status, protocol.Failure{})
}

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
		r.reject(o, protocol.StatusWrongShard)
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
	r.reject(o, status)
}

// reject answers a request with an error. With WRONG_SHARD the client is told who leads.
func (r *replica) reject(o *origin, status protocol.Status) {
	k := o.k
	if o.unlogged != 0 {
		r.unloggedAttachFailed(o, status)
		return
	}
	f := protocol.Failure{}
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
		r.reject(o, x.Status)
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
		m = &protocol.AcquireReply{State: x.State, OrderID: x.OrderID}
	case protocol.KindRelease:
		m = &protocol.ReleaseReply{Released: x.Flag}
	}
	r.w.debugf("  answer conn %d id %d: %+v", o.k.id, o.id, m)
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
	if x.Kind == shard.EventLeaseLost {
		k.event(protocol.KindLeaseLost, &protocol.LeaseLost{Session: x.Session, Name: x.Name, OrderID: x.OrderID, Message: x.Text})
		return
	}
	if x.State == protocol.Acquired {
		r.w.counts["granted later"]++
	}
	r.w.debugf("  result conn %d session %s: %d %v %v %d", k.id, sessionName(x.Session), x.Seq, x.Status, x.State, x.OrderID)
	k.event(protocol.KindAcquireResult, &protocol.AcquireResult{
		Session: x.Session, Seq: x.Seq, Status: x.Status, State: x.State, OrderID: x.OrderID, Message: x.Text,
	})
}

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
	case protocol.KindWatch:
		in.watch(k, h)
	case protocol.KindUnwatch:
		in.unwatch(k, h)
	case protocol.KindCreate:
		var m protocol.Create
		in.decode(&m, h)
		in.request(k, h, m.Session)
	case protocol.KindAlter:
		var m protocol.Alter
		in.decode(&m, h)
		in.request(k, h, m.Session)
	case protocol.KindAcquire:
		var m protocol.Acquire
		in.decode(&m, h)
		if k.c.plain { // its engine is that of today
			m.Options = nil
			h.Body = m.AppendBody(nil)
		}
		in.request(k, h, m.Session)
	case protocol.KindRelease:
		var m protocol.Release
		in.decode(&m, h)
		in.request(k, h, m.Session)
	default:
		in.w.fail("a client sends a message of kind %d", h.Kind)
	}
}

func (in *instance) decode(m protocol.Message, h protocol.Header) {
	err := protocol.DecodeBody(m, h.Body)
	if err == nil {
		err = protocol.Validate(m)
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
		h.Body = protocol.AppendBody(nil, &m)
	}
	if h.Arg == protocol.HomeOfCreateID {
		h.Arg = uint64(protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), buckets))
	}
	in.submit(k, h, 0)
}

func (in *instance) attachSession(k *conn, h protocol.Header) {
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

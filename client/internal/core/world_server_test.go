package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelSession is a session at its home.
type modelSession struct {
	id, epoch uint64
	create    [protocol.KeyLen]byte
	on        *worldConn // nil: detached
	deadline  time.Duration
	ended     bool
	killed    bool // its client learns that after the others
	low       uint64
	answers   map[uint64]protocol.Message // by number: those of releases and ended acquires
}

// modelName is a semaphore with one unit, and its queue; the first entry holds it.
type modelName struct{ queue []modelEntry }

type modelEntry struct {
	s          *modelSession
	seq, order uint64
	modelBound
}

func homeShard(session uint64) uint64 { return shardOfBucket(uint64(protocol.SessionBucket(session))) }

func shardOfBucket(bucket uint64) uint64 { return bucket/(worldBuckets/worldShards) + 1 }

// end ends a session: what it holds is free.
func (w *world) end(s *modelSession, reason protocol.EndReason) {
	s.ended = true
	w.counts["ended"]++
	for _, name := range worldNames {
		w.remove(name, s, protocol.StatusSessionExpired)
	}
	if s.on != nil {
		s.on.event(protocol.KindSessionEnded, &protocol.SessionEnded{Session: s.id, Reason: reason})
	}
}

// remove takes a session's entry out of a queue; the first one left is granted.
func (w *world) remove(name string, s *modelSession, status protocol.Status) bool {
	n := w.names[name]
	if n == nil {
		return false
	}
	i := slices.IndexFunc(n.queue, func(x modelEntry) bool { return x.s == s })
	if i < 0 {
		return false
	}
	was := n.queue[i]
	n.queue = slices.Delete(n.queue, i, i+1)
	w.holderChanged(name)
	defer w.updatePreemption(name)
	if i > 0 {
		w.result(name, was, &protocol.AcquireResult{Session: s.id, Seq: was.seq, Status: status})
	} else if len(n.queue) > 0 {
		w.startHold(name, &n.queue[0])
		next := n.queue[0]
		w.result(name, next, &protocol.AcquireResult{Session: next.s.id, Seq: next.seq, State: protocol.Acquired,
			OrderID: next.order, Grant: w.grantOf(&next)})
	}
	return true
}

// result goes where the session is bound at the shard's leader, if anywhere.
func (w *world) result(name string, x modelEntry, m *protocol.AcquireResult) {
	w.effects[effect{x.s.id, x.seq}] = w.log(shardOfName(name)).last()
	w.notify(name, x, protocol.KindAcquireResult, m)
}

func (w *world) notify(name string, x modelEntry, kind protocol.Kind, m protocol.Message) {
	leader := w.leaders[shardOfName(name)]
	for _, c := range w.clients {
		for _, k := range slices.Backward(c.conns) {
			if k.instance == leader && k.bound[x.s.id] == x.s.epoch {
				k.event(kind, m)
				return
			}
		}
	}
}

func shardOfName(name string) uint64 {
	return shardOfBucket(uint64(protocol.Bucket(7, []byte(name), worldBuckets)))
}

// serve is an instance: it processes one frame.
func (k *worldConn) serve(h protocol.Header) {
	w := k.c.w
	refuse := func(status protocol.Status, f protocol.Failure) {
		k.send(h.Kind|protocol.KindReply, h.ID, uint64(status), &f)
	}
	answer := func(m protocol.Message) { k.send(h.Kind|protocol.KindReply, h.ID, 0, m) }
	for _, s := range w.started { // whatever is heard on its connection keeps a session
		if s.on == k && !s.ended && w.leaders[homeShard(s.id)] == k.instance {
			s.deadline = w.now + worldTimeout
		}
	}
	if k.plantedAnswer(h) {
		return
	}
	shard := shardOfBucket(h.Arg)
	if h.Kind != protocol.KindMap && h.Kind != protocol.KindPing && h.Kind != protocol.KindPresentTicket &&
		h.Kind != protocol.KindNodeDescribe && h.Kind != protocol.KindWatch && h.Kind != protocol.KindUnwatch &&
		h.Kind != protocol.KindDescribe {
		if h.Arg == protocol.HomeOfCreateID {
			var m protocol.SessionStart
			_ = protocol.DecodeBody(&m, h.Body)
			shard = shardOfBucket(uint64(protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), worldBuckets)))
		}
		if w.leaders[shard] != k.instance {
			refuse(protocol.StatusWrongShard, protocol.Failure{
				Shard: shard, Master: w.leaders[shard], Term: w.terms[shard], MapVersion: w.version,
			})
			return
		}
		if w.chance(60) {
			refuse(protocol.StatusUnavailable, protocol.Failure{})
			return
		}
	}
	switch h.Kind {
	case protocol.KindMap:
		answer(w.mapReply())
	case protocol.KindNodeDescribe:
		answer(&protocol.NodeInfo{ID: 7, Config: protocol.NodeConfig{GracePeriod: uint64(worldGrace.Milliseconds())}})
	case protocol.KindWatch, protocol.KindProcessWatch:
		k.openStream(h, refuse, answer)
	case protocol.KindUnwatch:
		var m protocol.Unwatch
		_ = protocol.DecodeBody(&m, h.Body)
		k.streams = slices.DeleteFunc(k.streams, func(st *modelStream) bool { return st.id == m.WatchID })
		answer(&protocol.Empty{})
	case protocol.KindDescribe:
		k.describe(h, refuse, answer)
	case protocol.KindPing:
		k.send(protocol.KindPong, h.ID, 0, nil)
		homes := map[uint64]bool{}
		for _, s := range w.started {
			if home := homeShard(s.id); s.on == k && !s.ended && w.leaders[home] == k.instance && !homes[home] {
				homes[home] = true
				k.send(protocol.KindPong, h.ID, home, nil)
			}
		}
	case protocol.KindPresentTicket:
		var m protocol.PresentTicket
		_ = protocol.DecodeBody(&m, h.Body)
		var id, epoch uint64
		_, _ = fmt.Sscanf(string(m.Ticket), "%d %d", &id, &epoch)
		if s := w.sessions[id]; s == nil || s.ended || s.epoch != epoch {
			refuse(protocol.StatusBadSession, protocol.Failure{})
			return
		}
		k.bound[id] = epoch
		answer(&protocol.Empty{})
	case protocol.KindSessionStart:
		var m protocol.SessionStart
		_ = protocol.DecodeBody(&m, h.Body)
		k.startSession(&m, refuse, answer)
	case protocol.KindSessionAttach:
		var m protocol.SessionAttach
		_ = protocol.DecodeBody(&m, h.Body)
		s := w.sessions[m.Session]
		switch {
		case s == nil || s.ended:
			refuse(protocol.StatusSessionExpired, protocol.Failure{})
		case m.Epoch < s.epoch: // the same is a repeat
			refuse(protocol.StatusBadSession, protocol.Failure{})
		default:
			w.counts["attached again"]++
			s.epoch = m.Epoch
			k.attach(s)
			answer(s.reply())
		}
	case protocol.KindSessionStop:
		var m protocol.SessionStop
		_ = protocol.DecodeBody(&m, h.Body)
		s := w.sessions[m.Session]
		switch {
		case s == nil || s.ended:
			refuse(protocol.StatusSessionExpired, protocol.Failure{})
		case m.Epoch != s.epoch:
			refuse(protocol.StatusBadSession, protocol.Failure{})
		default:
			w.end(s, protocol.EndStopped)
			answer(&protocol.Empty{})
		}
	case protocol.KindAcquire:
		var m protocol.Acquire
		_ = m.DecodeBody(h.Body)
		k.request(shard, m.Head, refuse, answer, func(s *modelSession) protocol.Message { return w.acquire(s, &m) })
	case protocol.KindRelease:
		var m protocol.Release
		_ = m.DecodeBody(h.Body)
		k.request(shard, m.Head, refuse, answer, func(s *modelSession) protocol.Message { return w.release(s, &m) })
	}
}

func (w *world) mapReply() *protocol.MapReply {
	m := &protocol.MapReply{Version: w.version, Tiers: []protocol.MapTier{{Buckets: worldBuckets}}}
	for i := range uint64(worldInstances) {
		m.Instances = append(m.Instances, protocol.MapInstance{ID: i + 1, Address: fmt.Sprint("i", i+1)})
	}
	for s := range uint64(worldShards) {
		m.Shards = append(m.Shards, protocol.MapShard{
			ID: s + 1, Master: w.leaders[s+1], Term: w.terms[s+1], Replicas: []uint64{1, 2, 3},
		})
		m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: worldBuckets / worldShards, Shard: s + 1})
	}
	return m
}

func (s *modelSession) reply() *protocol.SessionReply {
	return &protocol.SessionReply{
		Session: s.id, Epoch: s.epoch, Shard: homeShard(s.id), Timeout: uint64(worldTimeout.Milliseconds()),
		Grace: uint64(worldGrace.Milliseconds()), Node: 7, Ticket: fmt.Appendf(nil, "%d %d", s.id, s.epoch),
	}
}

func (k *worldConn) startSession(
	m *protocol.SessionStart, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message),
) {
	w := k.c.w
	bucket := protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), worldBuckets)
	for _, s := range w.started {
		if s.create == [protocol.KeyLen]byte(m.CreateID) { // the same start
			if s.ended {
				refuse(protocol.StatusSessionExpired, protocol.Failure{})
				return
			}
			k.attach(s)
			answer(s.reply())
			return
		}
	}
	s := &modelSession{
		id: protocol.MakeSessionID(0, uint16(bucket), uint64(len(w.started))+1), epoch: 1, create: [protocol.KeyLen]byte(m.CreateID),
		answers: map[uint64]protocol.Message{},
	}
	w.sessions[s.id] = s
	w.started = append(w.started, s)
	w.counts["started"]++
	k.attach(s)
	answer(s.reply())
}

// attach binds a session to the connection, and no other one.
func (k *worldConn) attach(s *modelSession) {
	w := k.c.w
	if s.on != nil && s.on != k {
		s.on.event(protocol.KindTakenOver, &protocol.TakenOver{Session: s.id, Epoch: s.epoch})
	}
	for _, c := range w.clients {
		for _, other := range c.conns {
			delete(other.bound, s.id)
		}
	}
	k.bound[s.id] = s.epoch
	s.on, s.deadline = k, w.now+worldTimeout
}

// request is a numbered request: it takes effect once.
func (k *worldConn) request(
	shard uint64, head protocol.Head, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message),
	do func(*modelSession) protocol.Message,
) {
	s := k.c.w.sessions[head.Session]
	switch {
	case s == nil || s.ended:
		refuse(protocol.StatusSessionExpired, protocol.Failure{})
		return
	case k.bound[s.id] != s.epoch:
		refuse(protocol.StatusBadSession, protocol.Failure{})
		return
	}
	s.low = max(s.low, head.Low)
	m := do(s)
	l := k.c.w.log(shard)
	l.applied[k.instance] = l.last() // who answers has applied it
	k.c.w.effects[effect{s.id, head.Seq}] = l.last()
	if f, refused := m.(*protocol.Failure); refused {
		refuse(protocol.StatusPreconditionFailed, *f)
		return
	}
	answer(m)
}

func (w *world) acquire(s *modelSession, m *protocol.Acquire) protocol.Message {
	n := w.names[string(m.Name)]
	if n == nil {
		n = &modelName{}
		w.names[string(m.Name)] = n
	}
	state := func(i int) protocol.Message {
		if i == 0 {
			return &protocol.AcquireReply{State: protocol.Acquired, OrderID: n.queue[0].order, Grant: w.grantOf(&n.queue[0])}
		}
		return &protocol.AcquireReply{State: protocol.Queued, OrderID: n.queue[i].order,
			Grant: w.grantOf(&n.queue[i])}
	}
	i := slices.IndexFunc(n.queue, func(x modelEntry) bool { return x.s == s })
	switch {
	case i >= 0 && n.queue[i].seq == m.Seq:
		return state(i) // a question
	case s.answers[m.Seq] != nil || m.Seq < s.low: // it was answered, and ended, or was given up
		return &protocol.AcquireReply{State: protocol.NotAcquired}
	case w.boundRefusal(m, n, i) != nil:
		return w.boundRefusal(m, n, i)
	case i >= 0: // set again
		n.queue[i].seq = m.Seq
		w.setBound(string(m.Name), &n.queue[i], m.Options)
		return state(i)
	}
	s.answers[m.Seq] = &protocol.AcquireReply{State: protocol.NotAcquired}
	if len(n.queue) > 0 && m.Timeout == 0 {
		return &protocol.AcquireReply{State: protocol.NotAcquired}
	}
	w.orders++
	n.queue = append(n.queue, modelEntry{s: s, seq: m.Seq, order: w.orders, modelBound: boundAsked(m.Options)})
	if len(n.queue) == 1 {
		w.startHold(string(m.Name), &n.queue[0])
	}
	w.holderChanged(string(m.Name))
	defer w.updatePreemption(string(m.Name))
	return state(len(n.queue) - 1)
}

func (w *world) release(s *modelSession, m *protocol.Release) protocol.Message {
	if was := s.answers[m.Seq]; was != nil {
		return was
	}
	n := w.names[string(m.Name)]
	if m.OrderID != 0 && (n == nil || !slices.ContainsFunc(n.queue, func(x modelEntry) bool { return x.s == s && x.order == m.OrderID })) {
		return &protocol.ReleaseReply{}
	}
	reply := &protocol.ReleaseReply{Released: w.remove(string(m.Name), s, protocol.StatusAborted)}
	s.answers[m.Seq] = reply
	return reply
}

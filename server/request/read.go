package request

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
)

// readItem is one describe or list on its way to a shard's machine.
type readItem struct {
	conn   *Client
	id     uint64
	kind   protocol.Kind
	arm    bool // a describe that arms a one-shot watch: read and registration belong to one index
	body   []byte
	strict bool // asked for, or found: the node's configuration, no fresh enough state, an index not reached yet
	scope  readScope
	epoch  uint64 // of polls alone, which go to the log if reading is not enough: under which their session is attached
}

// readScope is the part of a read that is needed before the machine is asked.
type readScope struct {
	node    uint64
	want    protocol.Consistency
	index   uint64 // the client has seen this index; 0: none
	shard   uint64 // that the client means; 0: any
	session uint64 // that is described

	bySession bool // the session's tier counts, not the node's
}

// scopeOf is the scope of a read of a node. index and shard may be 0.
func scopeOf(node uint64, want protocol.Consistency, index, shard uint64) readScope {
	return readScope{node: node, want: want, index: index, shard: shard}
}

// readKind describes the answer of a describe or list. Its row in the table of request kinds has
// it.
type readKind struct {
	buffer func() readBuffer       // makes memory, for the connection and behind a barrier
	scope  func(request) readScope // nil: of requests on a session
	// answer reads from the machine into the reply. False and no error: the request goes to the
	// log.
	answer func(reading, request, protocol.Message) (bool, error)
	later  bool // it is answered when the result is there, and does not go to the log
}

// readBuffer is memory for one read of a kind.
type readBuffer struct {
	request request
	reply   protocol.Message
}

// readBuffers has memory for each kind that has come.
type readBuffers [protocol.NumKinds]readBuffer

func (b *readBuffers) of(kind protocol.Kind, k *readKind) *readBuffer {
	if b[kind].request == nil {
		b[kind] = k.buffer()
	}
	return &b[kind]
}

// reading is a read that is answered from a machine.
type reading struct {
	*readBatch
	m  *shard.Machine
	it *readItem
}

// answered is a kind of read that the machine always answers.
func answered[Q, R any, PQ interface {
	*Q
	request
}, PR interface {
	*R
	protocol.Message
}](answer func(reading, PQ, PR) error) *readKind {
	return &readKind{
		buffer: func() readBuffer { return readBuffer{PQ(new(Q)), PR(new(R))} },
		answer: func(x reading, q request, out protocol.Message) (bool, error) {
			return true, answer(x, q.(PQ), out.(PR))
		},
	}
}

// answeredLater is a kind of read that somebody else answers, if it is no error.
func answeredLater[Q any, PQ interface {
	*Q
	request
}](take func(reading, PQ) error) *readKind {
	return &readKind{
		buffer: func() readBuffer { return readBuffer{request: PQ(new(Q))} },
		answer: func(x reading, q request, _ protocol.Message) (bool, error) { return false, take(x, q.(PQ)) },
		later:  true,
	}
}

// readRow is the row of requests that describe or list.
func readRow[Q, R any, PQ interface {
	*Q
	request
}, PR interface {
	*R
	protocol.Message
}](scope func(PQ) readScope, answer func(reading, PQ, PR) error) requestKind {
	k := answered(answer)
	k.scope = func(q request) readScope { return scope(q.(PQ)) }
	return requestKind{charge: chargeAsk, handle: read, read: k}
}

// readOfSession has a request on a session wait for a barrier, whatever its node's consistency.
func readOfSession(c *Client, p *cycle, h protocol.Header, t target) {
	p.queueRead(t.shard, readItem{conn: c, id: h.ID, kind: h.Kind, body: h.Body, strict: true,
		scope: readScope{node: t.node}, epoch: t.binding.Epoch})
}

// readKinds are the requests that describe and list.
func readKinds() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindDescribe: readRow(
			func(q *protocol.Describe) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, 0) },
			func(x reading, q *protocol.Describe, out *protocol.DescribeReply) error {
				err := x.m.Semaphores().Describe(q, out)
				if err == nil && x.it.arm {
					err = Arm(x.it.conn, x.host, x.m, q)
				}
				return err
			}),
		protocol.KindSemaphoreHistory: readRow(
			func(q *protocol.SemaphoreHistory) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, 0) },
			func(x reading, q *protocol.SemaphoreHistory, out *protocol.SemaphoreHistoryReply) error {
				return x.m.Semaphores().History(q, out)
			}),
		protocol.KindList: readRow(
			func(q *protocol.List) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, q.Shard) },
			func(x reading, q *protocol.List, out *protocol.ListReply) error { return x.m.Semaphores().List(q, out) }),
		protocol.KindSessionDescribe: readRow(
			func(q *protocol.SessionDescribe) readScope {
				// An older replica does not know a new session, and would say that it has expired.
				return readScope{node: q.Node, want: protocol.Strict, session: q.Session,
					bySession: len(q.CreateID) == 0}
			},
			func(x reading, q *protocol.SessionDescribe, out *protocol.SessionInfo) error {
				err := x.m.Sessions().Describe(q, out)
				if err == nil {
					out.Remaining = remaining(out, x.logTimeBehind(x.m))
				}
				return err
			}),
		protocol.KindSessionList: readRow(
			func(q *protocol.SessionList) readScope { return scopeOf(q.Node, protocol.Strict, 0, q.Shard) },
			func(x reading, q *protocol.SessionList, out *protocol.SessionListReply) error {
				err := x.m.Sessions().List(q, out)
				if err == nil {
					behind := x.logTimeBehind(x.m)
					for i := range out.Sessions {
						out.Sessions[i].Remaining = remaining(&out.Sessions[i], behind)
					}
				}
				return err
			}),
		protocol.KindSessionObjects: readRow(
			func(q *protocol.SessionObjects) readScope { return scopeOf(q.Node, protocol.Strict, 0, q.Shard) },
			func(x reading, q *protocol.SessionObjects, out *protocol.SessionObjectsReply) error {
				return x.m.Sessions().Objects(q, out)
			}),
		protocol.KindProcessDescribe: readRow(
			func(q *protocol.ProcessDescribe) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, 0) },
			func(x reading, q *protocol.ProcessDescribe, out *protocol.ProcessStatus) error {
				return x.m.Processes().Describe(q, out)
			}),
		protocol.KindProcessList: readRow(
			func(q *protocol.ProcessList) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, q.Shard) },
			func(x reading, q *protocol.ProcessList, out *protocol.ProcessListReply) error {
				return x.m.Processes().List(q, out)
			}),
		protocol.KindTrackDescribe: readRow(
			func(q *protocol.TrackDescribe) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, 0) },
			func(x reading, q *protocol.TrackDescribe, out *protocol.TrackStatus) error {
				return x.m.Tracks().Describe(q, x.host.Replica().LogTime(), out)
			}),
		protocol.KindTrackHistory: readRow(
			func(q *protocol.TrackHistory) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, 0) },
			func(x reading, q *protocol.TrackHistory, out *protocol.TrackHistoryReply) error {
				return x.m.Tracks().History(q, x.host.Replica().LogTime(), out)
			}),
		protocol.KindTrackList: readRow(
			func(q *protocol.TrackList) readScope { return scopeOf(q.Node, q.Consistency, q.MinIndex, q.Shard) },
			func(x reading, q *protocol.TrackList, out *protocol.TrackListReply) error {
				return x.m.Tracks().List(q, x.host.Replica().LogTime(), out)
			}),
	}
}

// readBatch is the reads for one shard from one pass over a connection's bytes. Those that may be
// answered from memory are, at the end of the pass; the others wait for a barrier together.
type readBatch struct {
	host     Shard
	items    []readItem
	arming   bool // one of them arms a watch
	buffers  *readBuffers
	toSubmit []readItem // polls that change something; they are handed on when the machine is let go

	began, waited time.Duration // clock: when the reads came that wait for a barrier; how long they waited
	logTime       uint64        // when they came
}

// errAnswersPending refuses a read for a client that does not take its answers.
func errAnswersPending(s *Server) *protocol.Error {
	return protocol.Errorf(protocol.StatusOverloaded,
		"answers wait to be read, more than the limit of %d outgoing bytes; read them first", s.transport.SoftBound())
}

// maxReadBytes bounds the bytes of answers encoded under one hold of the machine's lock: the log
// waits meanwhile.
const maxReadBytes = 512 << 10

// read checks a read and puts it on its shard's list of this pass.
func read(c *Client, p *cycle, h protocol.Header, _ target) {
	k := c.server.kinds[h.Kind].read
	m := p.requests[h.Kind]
	if m == nil {
		m = k.buffer().request
		p.requests[h.Kind] = m
	}
	if !p.decode(c, h, m) {
		return
	}
	var (
		about = k.scope(m)
		tier  = c.server.Routes().tierOf(about.node)
		arm   bool
		alien uint64 // a session that is not bound here
		bad   *protocol.Error
	)
	if about.bySession {
		tier = protocol.SessionTier(about.session)
	}
	if m, ok := m.(*protocol.Describe); ok {
		arm = m.Flags&(protocol.WatchData|protocol.WatchOwners) != 0 && len(m.Cursor) == 0
		if arm {
			if bad = c.server.cfg.Limits.Memory(); bad != nil {
				c.server.cfg.Metrics.MemoryRefused.Inc()
			} else if b := c.Binding(m.Session); b == nil { // the watch belongs to the session
				alien = m.Session
			} else if b.Node != m.Node {
				bad = protocol.Errorf(protocol.StatusBadSession,
					"session belongs to another coordination node; watch with a session of this one")
			}
		}
	}
	if right := c.allowed(auth.RightRead, about.node); right != nil {
		bad = right
	}
	if bad == nil && alien != 0 {
		rejectUnbound(c, p.out, h.Kind, h.ID, alien)
		return
	}
	if bad == nil && c.OverSoftBound() {
		bad = errAnswersPending(c.server)
	}
	if bad != nil {
		p.reject(c, h, bad)
		return
	}
	if !chargeQuota(c, p, h, about.node) {
		return
	}
	if about.bySession && rejectWithoutHome(c, p.out, h.Kind, h.ID, about.session) {
		return
	}
	d := c.server.Routes().Shard(tier, h.Arg)
	if d == nil || (about.shard != 0 && about.shard != d.ID()) {
		p.out.rejectElsewhere(c, h, tier)
		return
	}
	p.queueRead(d, readItem{conn: c, id: h.ID, kind: h.Kind, arm: arm, body: h.Body,
		strict: about.want == protocol.Strict, scope: about})
}

// queueRead puts a read on its shard's list of this pass. The lists outlive a shard as it is hosted
// here: another replica may take its place, within a pass too.
func (p *cycle) queueRead(d Shard, it readItem) {
	l := p.byID[d.ID()]
	if l == nil || len(l.items) > 0 && l.host != d {
		l = &readBatch{buffers: new(readBuffers)}
		p.byID[d.ID()] = l
	}
	if len(l.items) == 0 {
		l.host = d
		p.reads = append(p.reads, l)
	}
	l.arming = l.arming || it.arm
	l.items = append(l.items, it)
}

// serveReads answers the reads that may come from memory, and has the others wait for a barrier. It
// is called while the bytes of the pass are there.
func (p *cycle) serveReads() {
	for i, l := range p.reads {
		p.reads[i] = nil
		l.serve(p.out)
		switch {
		case len(l.items) == 0:
		case l.host.Replica().Leading():
			p.waitForBarrier(l)
		default: // a barrier would fail, and take its time
			for i := range l.items {
				it := &l.items[i]
				it.conn.RejectSubmit(p.out, l.host, it.kind, it.id, protocol.StatusUnavailable)
			}
		}
		clear(l.items)
		l.items, l.arming, l.host = l.items[:0], false, nil
	}
	p.reads = p.reads[:0]
}

// serve answers the reads that may be RELAXED now, and keeps the rest.
func (r *readBatch) serve(o *Outbox) {
	relaxed := false
	for i := range r.items {
		relaxed = relaxed || !r.items[i].strict
	}
	if !relaxed {
		return
	}
	keep := r.items[:0]
	look := func(m *shard.Machine) {
		now := r.host.Requests().server.cfg.Clock.Now() // with the machine in hand, once for all reads
		for i := range r.items {
			it := &r.items[i] // keep never grows past it
			if it.strict || !r.relaxed(m, now, it) {
				it.strict = true
				keep = append(keep, *it)
				continue
			}
			// Answers of one pass are written at its end: reads that come in one segment must not
			// add up to the bound at which the client counts as slow.
			if it.conn.OverSoftBound() {
				o.FailError(it.conn, it.kind, it.id, errAnswersPending(it.conn.server))
				continue
			}
			r.answer(o, m, it)
		}
	}
	if r.arming {
		r.host.Replica().Exclusive(look)
	} else {
		r.host.Replica().View(look)
	}
	clear(r.items[len(keep):])
	r.items = keep
}

// relaxed reports whether a read may be answered from this machine as it is: the request or the
// node wants no more, the machine was up to date less than the node's grace period ago, and it has
// the index the client has seen.
func (r *readBatch) relaxed(m *shard.Machine, now time.Duration, it *readItem) bool {
	cfg, ok := m.Nodes().Config(it.scope.node)
	if !ok {
		// Whether the node is missing is a question like any other: the barrier decides.
		return false
	}
	want := it.scope.want
	if want == protocol.ConsistencyDefault {
		want = cfg.ReadConsistency
	}
	return want == protocol.Relaxed && m.AppliedIndex() >= it.scope.index &&
		r.host.Replica().FreshAt(now, time.Duration(cfg.GracePeriod)*time.Millisecond)
}

// answer reads from the machine and replies.
func (r *readBatch) answer(o *Outbox, m *shard.Machine, it *readItem) (size int) {
	k := r.host.Requests().server.kinds[it.kind].read
	b := r.buffers.of(it.kind, k)
	if err := protocol.DecodeBody(b.request, it.body); err != nil { // it was decoded before, when it came
		o.FailError(it.conn, it.kind, it.id, err)
		return 0
	}
	answered, err := k.answer(reading{r, m, it}, b.request, b.reply)
	if err != nil {
		e := asError(err)
		o.RejectByShard(it.conn, r.host, it.kind, it.id, e.Status, e.Refusal, e.Message)
		return 0
	}
	if k.later {
		return 0
	}
	if !answered {
		r.toSubmit = append(r.toSubmit, *it)
		return 0
	}
	before := it.conn.Waiting()
	if r.waited != 0 {
		o.Took(it.kind, r.waited)
	}
	o.Reply(it.conn, it.kind, it.id, b.reply)
	return max(0, it.conn.Waiting()-before)
}

// logTimeBehind is how long the machine has heard nothing of the time: the log of an idle shard is
// silent.
func (r *readBatch) logTimeBehind(m *shard.Machine) uint64 {
	return max(r.host.Replica().LogTime(), m.LogTime()) - m.LogTime()
}

// remaining returns the time that a detached session has left.
func remaining(s *protocol.SessionInfo, behind uint64) uint64 {
	return s.Remaining - min(s.Remaining, behind)
}

// Arm registers the one-shot watch of a describe that was just read in the same Exclusive. The
// reply goes out before any event of the watch. The session was bound to the connection when the
// request came in; since then it may have ended, or been attached elsewhere, and then its events
// must not be sent here.
func Arm(c *Client, host Shard, m *shard.Machine, d *protocol.Describe) error {
	hub := host.Hubs().Semaphores
	if !c.Watch(host.Hubs()) {
		return nil // closed: no client is left
	}
	if err := hub.OneShot(c.ID(), d.Session, d.Node, d.Name, d.Flags, d.WatchID,
		m.Nodes().MaxWatchers(d.Node)); err != nil {
		return err
	}
	// Closing a connection or moving its session removes its watches. If that happened before this
	// watch was added, it is noticed here.
	if !c.Has(d.Session) {
		hub.SessionUnbound(c.ID(), d.Session, false)
		return c.UnboundError(d.Session) // the machine is in hand
	}
	return nil
}

// waitForBarrier has the reads of a list wait for a barrier that begins now. The bodies are copied:
// the connection's bytes are gone by then.
func (p *cycle) waitForBarrier(l *readBatch) {
	size := 0
	for i := range l.items {
		size += len(l.items[i].body)
	}
	own := &readBatch{host: l.host, items: make([]readItem, len(l.items)), arming: l.arming, began: p.now,
		logTime: l.host.Replica().LogTime()}
	arena := make([]byte, 0, size)
	for i, it := range l.items {
		start := len(arena)
		arena = append(arena, it.body...)
		it.body = arena[start:len(arena):len(arena)]
		own.items[i] = it
	}
	l.host.Replica().Barrier(own.afterBarrier)
}

// afterBarrier answers the list. It runs on the shard's barrier goroutine, and with ok false on
// any: each barrier that is asked for after the end of that goroutine has one of its own.
func (r *readBatch) afterBarrier(ok bool) {
	d := r.host
	o := d.Requests().out
	if ok {
		defer o.Flush()
	} else {
		o = d.Requests().server.BorrowOutbox()
		defer d.Requests().server.ReturnOutbox(o)
	}
	defer d.Requests().server.Guard("read", func() {
		for i := range r.items {
			r.items[i].conn.Close(transport.Immediate, protocol.StatusInternal,
				"the server met a defect while reading; reconnect")
		}
	})
	if !ok {
		for i := range r.items {
			it := &r.items[i]
			it.conn.RejectSubmit(o, d, it.kind, it.id, protocol.StatusUnavailable)
		}
		return
	}
	r.buffers = d.Requests().buffers
	r.waited = max(1, d.Requests().server.cfg.Clock.Now()-r.began)
	for next := 0; next < len(r.items); {
		look := func(m *shard.Machine) {
			for size := 0; next < len(r.items) && size < maxReadBytes; next++ {
				it := &r.items[next]
				if it.conn.OverSoftBound() {
					o.FailError(it.conn, it.kind, it.id, errAnswersPending(d.Requests().server))
					continue
				}
				size += r.answer(o, m, it)
			}
		}
		if r.arming {
			d.Replica().Exclusive(look)
		} else {
			d.Replica().View(look)
		}
		r.submitPolls(o)
	}
}

package server

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// readItem is one describe or list on its way to a shard's machine.
type readItem struct {
	conn   *conn
	id     uint64
	kind   protocol.Kind
	arm    bool // a describe that arms a one-shot watch: read and registration belong to one index
	body   []byte
	strict bool // asked for, or found: the node's configuration, no fresh enough state, an index not reached yet

	// Of polls of tracks alone, which go to the log if reading is not enough: the session's node, and the epoch under which it is attached.
	node, epoch uint64
}

// readList is the reads that one pass over a connection's bytes gathered for one shard. Those that may be answered from memory are, at the end of the pass; the
// others wait for a barrier together.
type readList struct {
	desk    *desk
	items   []readItem
	arming  bool // one of them arms a watch
	message *readMessages
	toLog   []readItem // polls that change something; they are handed on when the machine is let go
}

// readMessages is scratch memory for serving reads.
type readMessages struct {
	describe protocol.Describe
	list     protocol.List
	sdesc    protocol.SessionDescribe
	slist    protocol.SessionList
	pdesc    protocol.ProcessDescribe
	plist    protocol.ProcessList
	tdesc    protocol.TrackDescribe
	thistory protocol.TrackHistory
	tlist    protocol.TrackList
	poll     protocol.TrackPoll

	describeReply protocol.DescribeReply
	listReply     protocol.ListReply
	sinfo         protocol.SessionInfo
	slistReply    protocol.SessionListReply
	pstatus       protocol.ProcessStatus
	plistReply    protocol.ProcessListReply
	tstatus       protocol.TrackStatus
	thistoryReply protocol.TrackHistoryReply
	tlistReply    protocol.TrackListReply
	pollReply     protocol.TrackPollReply
}

// answersWait refuses a read for a client that does not take its answers.
func answersWait(s *Server) *protocol.Error {
	return protocol.Errorf(protocol.StatusOverloaded, "answers wait to be read, more than the limit of %d outgoing bytes; read them first", s.outSoft())
}

// readChunk bounds the bytes of answers encoded under one hold of the machine's lock: the log waits meanwhile.
const readChunk = 512 << 10

// read checks a read and puts it on its shard's list of this pass.
func (c *conn) read(p *pass, h protocol.Header) {
	var (
		node  uint64
		tier  uint8
		arm   bool
		bad   *protocol.Error
		want  protocol.Consistency
		asked uint64 // the shard the client means, 0 for any
	)
	switch h.Kind {
	case protocol.KindDescribe:
		m := &p.msg.describe
		if !p.decode(c, h, m) {
			return
		}
		node, want = m.Node, m.Consistency
		arm = m.Flags&(protocol.WatchData|protocol.WatchOwners) != 0 && len(m.Cursor) == 0
		if arm {
			// The watch belongs to the session, so the session must be proved here, and be one of the node.
			if b := c.bound(m.Session); b == nil {
				bad = c.notBound(m.Session)
			} else if b.node != m.Node {
				bad = protocol.Errorf(protocol.StatusBadSession, "session belongs to another coordination node; watch with a session of this one")
			}
		}
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindList:
		m := &p.msg.list
		if !p.decode(c, h, m) {
			return
		}
		node, want, asked = m.Node, m.Consistency, m.Shard
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindSessionDescribe:
		m := &p.msg.sdesc
		if !p.decode(c, h, m) {
			return
		}
		node, tier = m.Node, protocol.SessionTier(m.Session)
	case protocol.KindSessionList:
		m := &p.msg.slist
		if !p.decode(c, h, m) {
			return
		}
		node, asked = m.Node, m.Shard
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindProcessDescribe:
		m := &p.msg.process.describe
		if !p.decode(c, h, m) {
			return
		}
		node, want = m.Node, m.Consistency
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindTrackDescribe:
		m := &p.msg.track.describe
		if !p.decode(c, h, m) {
			return
		}
		node, want = m.Node, m.Consistency
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindProcessList:
		m := &p.msg.process.list
		if !p.decode(c, h, m) {
			return
		}
		node, want, asked = m.Node, m.Consistency, m.Shard
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindTrackHistory:
		m := &p.msg.track.history
		if !p.decode(c, h, m) {
			return
		}
		node, want = m.Node, m.Consistency
		tier = c.srv.mapNow().tierOf(node)
	case protocol.KindTrackList:
		m := &p.msg.track.list
		if !p.decode(c, h, m) {
			return
		}
		node, want, asked = m.Node, m.Consistency, m.Shard
		tier = c.srv.mapNow().tierOf(node)
	}
	if right := c.allowed(RightRead, node); right != nil {
		bad = right
	}
	if bad == nil && c.out.waiting() > c.srv.outSoft() {
		bad = answersWait(c.srv)
	}
	if bad != nil {
		p.out.failErr(c, h.Kind, h.ID, bad)
		return
	}
	d := c.srv.mapNow().desk(tier, h.Arg)
	if d == nil || (asked != 0 && asked != d.id) {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusWrongShard, "this instance does not serve that shard's bucket; fetch the map")
		return
	}
	p.readSoon(d, readItem{conn: c, id: h.ID, kind: h.Kind, arm: arm, body: h.Body, strict: want == protocol.Strict})
}

// readSoon puts a read on its shard's list of this pass.
func (p *pass) readSoon(d *desk, it readItem) {
	l := p.byID[d.id]
	if l == nil {
		l = &readList{desk: d, message: new(readMessages)}
		p.byID[d.id] = l
	}
	if len(l.items) == 0 {
		p.reads = append(p.reads, l)
	}
	l.arming = l.arming || it.arm
	l.items = append(l.items, it)
}

// serveReads answers the reads that may come from memory, and has the others wait for a barrier. It is called while the bytes of the pass are there.
func (p *pass) serveReads() {
	for i, l := range p.reads {
		p.reads[i] = nil
		l.serve(p.out)
		switch {
		case len(l.items) == 0:
		case l.desk.rep.Leading():
			p.behindBarrier(l)
		default: // a barrier would fail, and take its time
			for i := range l.items {
				it := &l.items[i]
				it.conn.turnedAway(p.out, l.desk, it.kind, it.id, protocol.StatusUnavailable)
			}
		}
		clear(l.items)
		l.items, l.arming = l.items[:0], false
	}
	p.reads = p.reads[:0]
}

// serve answers what may be answered RELAXED now, and keeps the rest.
func (l *readList) serve(o *outbox) {
	relaxed := false
	for i := range l.items {
		relaxed = relaxed || !l.items[i].strict
	}
	if !relaxed {
		return
	}
	keep := l.items[:0]
	look := func(m *shard.Machine) {
		now := l.desk.srv.clock.Now() // with the machine in hand, once for all reads
		for _, it := range l.items {
			if it.strict || !l.relaxed(m, now, &it) {
				it.strict = true
				keep = append(keep, it)
				continue
			}
			// Answers of one pass are written at its end: reads that come in one segment must not add up to the bound at which the client counts as slow.
			if it.conn.out.waiting() > it.conn.srv.outSoft() {
				o.failErr(it.conn, it.kind, it.id, answersWait(it.conn.srv))
				continue
			}
			l.answer(o, m, &it)
		}
	}
	if l.arming {
		l.desk.rep.Exclusive(look)
	} else {
		l.desk.rep.View(look)
	}
	clear(l.items[len(keep):])
	l.items = keep
}

// relaxed says whether a read may be answered from this machine as it is: the request or the node wants no more, the machine was up to date less than the
// node's grace period ago, and it has the index the client has seen.
func (l *readList) relaxed(m *shard.Machine, now time.Duration, it *readItem) bool {
	var (
		node  uint64
		want  protocol.Consistency
		index uint64
	)
	msg := l.message
	switch it.kind {
	case protocol.KindDescribe:
		_ = msg.describe.DecodeBody(it.body)
		node, want, index = msg.describe.Node, msg.describe.Consistency, msg.describe.MinIndex
	case protocol.KindList:
		_ = msg.list.DecodeBody(it.body)
		node, want, index = msg.list.Node, msg.list.Consistency, msg.list.MinIndex
	case protocol.KindSessionDescribe:
		_ = msg.sdesc.DecodeBody(it.body)
		node = msg.sdesc.Node
	case protocol.KindSessionList:
		_ = msg.slist.DecodeBody(it.body)
		node = msg.slist.Node
	case protocol.KindProcessDescribe:
		_ = msg.pdesc.DecodeBody(it.body)
		node, want, index = msg.pdesc.Node, msg.pdesc.Consistency, msg.pdesc.MinIndex
	case protocol.KindProcessList:
		_ = msg.plist.DecodeBody(it.body)
		node, want, index = msg.plist.Node, msg.plist.Consistency, msg.plist.MinIndex
	case protocol.KindTrackDescribe:
		_ = msg.tdesc.DecodeBody(it.body)
		node, want, index = msg.tdesc.Node, msg.tdesc.Consistency, msg.tdesc.MinIndex
	case protocol.KindTrackHistory:
		_ = msg.thistory.DecodeBody(it.body)
		node, want, index = msg.thistory.Node, msg.thistory.Consistency, msg.thistory.MinIndex
	case protocol.KindTrackList:
		_ = msg.tlist.DecodeBody(it.body)
		node, want, index = msg.tlist.Node, msg.tlist.Consistency, msg.tlist.MinIndex
	}
	cfg, ok := m.Node(node)
	if !ok {
		// Whether the node is missing is a question like any other: the barrier decides.
		return false
	}
	if want == protocol.ConsistencyDefault {
		want = cfg.ReadConsistency
	}
	return want == protocol.Relaxed && m.AppliedIndex() >= index && l.desk.rep.FreshAt(now, time.Duration(cfg.GracePeriod)*time.Millisecond)
}

// answer reads from the machine and replies.
func (l *readList) answer(o *outbox, m *shard.Machine, it *readItem) (size int) {
	var (
		err   error
		reply protocol.Message
		msg   = l.message
	)
	switch it.kind {
	case protocol.KindDescribe:
		if err = msg.describe.DecodeBody(it.body); err == nil {
			if err = m.Describe(&msg.describe, &msg.describeReply); err == nil && it.arm {
				err = l.arm(it)
			}
		}
		reply = &msg.describeReply
	case protocol.KindList:
		if err = msg.list.DecodeBody(it.body); err == nil {
			err = m.List(&msg.list, &msg.listReply)
		}
		reply = &msg.listReply
	case protocol.KindSessionDescribe:
		if err = msg.sdesc.DecodeBody(it.body); err == nil {
			if err = m.SessionDescribe(&msg.sdesc, &msg.sinfo); err == nil {
				msg.sinfo.Remaining = remaining(&msg.sinfo, l.behind(m))
			}
		}
		reply = &msg.sinfo
	case protocol.KindSessionList:
		if err = msg.slist.DecodeBody(it.body); err == nil {
			if err = m.SessionList(&msg.slist, &msg.slistReply); err == nil {
				behind := l.behind(m)
				for i := range msg.slistReply.Sessions {
					s := &msg.slistReply.Sessions[i]
					s.Remaining = remaining(s, behind)
				}
			}
		}
		reply = &msg.slistReply
	case protocol.KindProcessDescribe:
		if err = msg.pdesc.DecodeBody(it.body); err == nil {
			err = m.DescribeProcess(&msg.pdesc, &msg.pstatus)
		}
		reply = &msg.pstatus
	case protocol.KindProcessList:
		if err = msg.plist.DecodeBody(it.body); err == nil {
			err = m.ListProcesses(&msg.plist, &msg.plistReply)
		}
		reply = &msg.plistReply
	case protocol.KindTrackDescribe:
		if err = msg.tdesc.DecodeBody(it.body); err == nil {
			err = m.DescribeTrack(&msg.tdesc, l.desk.rep.LogTime(), &msg.tstatus)
		}
		reply = &msg.tstatus
	case protocol.KindTrackHistory:
		if err = msg.thistory.DecodeBody(it.body); err == nil {
			err = m.TrackHistory(&msg.thistory, l.desk.rep.LogTime(), &msg.thistoryReply)
		}
		reply = &msg.thistoryReply
	case protocol.KindTrackList:
		if err = msg.tlist.DecodeBody(it.body); err == nil {
			err = m.ListTracks(&msg.tlist, &msg.tlistReply)
		}
		reply = &msg.tlistReply
	case protocol.KindTrackPoll:
		if err = msg.poll.DecodeBody(it.body); err == nil && !l.peek(m, it) {
			l.toLog = append(l.toLog, *it)
			return 0
		}
		reply = &msg.pollReply
	}
	if err != nil {
		o.failErr(it.conn, it.kind, it.id, err)
		return 0
	}
	before := it.conn.out.waiting()
	o.reply(it.conn, it.kind, it.id, reply)
	return max(0, it.conn.out.waiting()-before)
}

// behind is how long the machine has heard nothing of the time: the log of an idle shard is silent.
func (l *readList) behind(m *shard.Machine) uint64 {
	return max(l.desk.rep.LogTime(), m.LogTime()) - m.LogTime()
}

// remaining is what is left of a detached session's time.
func remaining(s *protocol.SessionInfo, behind uint64) uint64 {
	return s.Remaining - min(s.Remaining, behind)
}

// arm registers the one-shot watch of a describe that was just read in the same Exclusive. The reply goes out before anything the watch may say. The session
// was bound to the connection when the request came in; since then it may have ended, or been attached elsewhere, and nothing may be told to it here any more.
func (l *readList) arm(it *readItem) error {
	d, c, hub := &l.message.describe, it.conn, l.desk.hub
	if !c.watches(l.desk) {
		return nil // closed: nobody is there to be told
	}
	if err := hub.OneShot(c.id, d.Session, d.Node, d.Name, d.Flags, d.WatchID); err != nil {
		return err
	}
	// Whoever takes the session from the connection, or closes that, looks for watches afterwards; if it did so before there was this one, it shows here.
	if !c.has(d.Session) {
		hub.SessionLeft(c.id, d.Session, false)
		return c.unbound(d.Session) // the machine is in hand
	}
	return nil
}

// behindBarrier has the reads of a list wait for a barrier that begins now. The bodies are copied: the connection's bytes are gone by then.
func (p *pass) behindBarrier(l *readList) {
	size := 0
	for i := range l.items {
		size += len(l.items[i].body)
	}
	own := &readList{desk: l.desk, items: make([]readItem, len(l.items)), arming: l.arming}
	arena := make([]byte, 0, size)
	for i, it := range l.items {
		start := len(arena)
		arena = append(arena, it.body...)
		it.body = arena[start:len(arena):len(arena)]
		own.items[i] = it
	}
	l.desk.rep.Barrier(own.afterBarrier)
}

// afterBarrier answers the list. It runs on the shard's barrier goroutine.
func (l *readList) afterBarrier(ok bool) {
	d := l.desk
	o := d.readOut
	defer o.flush()
	defer d.srv.guard("read", func() {
		for i := range l.items {
			l.items[i].conn.end(endHard, protocol.StatusInternal, "the server met a defect while reading; reconnect")
		}
	})
	if !ok {
		for i := range l.items {
			it := &l.items[i]
			it.conn.turnedAway(o, d, it.kind, it.id, protocol.StatusUnavailable)
		}
		return
	}
	l.message = d.readMessages
	for next := 0; next < len(l.items); {
		look := func(m *shard.Machine) {
			for size := 0; next < len(l.items) && size < readChunk; next++ {
				it := &l.items[next]
				if it.conn.out.waiting() > d.srv.outSoft() {
					o.failErr(it.conn, it.kind, it.id, answersWait(d.srv))
					continue
				}
				size += l.answer(o, m, it)
			}
		}
		if l.arming {
			d.rep.Exclusive(look)
		} else {
			d.rep.View(look)
		}
		l.handOn(o)
	}
}

package leader

import (
	"encoding/binary"
	"errors"
)

// Messages between the leaders of two shards. Each has one byte of version, one of kind, then
// fields in a fixed order. All fields are uvarints, except that a description is a length and
// bytes. A reader ignores a message of another version, an unknown kind, and bytes after the last
// field that it knows.
//
//	to the home    subscribe       which of these sessions are alive; register me for them
//	               heartbeat       do you know me? acknowledges updates
//	from the home  subscribeReply  about sessions [first, first+count) of a request: those that are
//	                               not listed are as the subscriber knows them
//	               heartbeatReply
//	               notify          updates: sessions that ended, were attached or were detached
//
// Every message names the subscriber's leadership (epoch) and its attempt. A message from the home
// names the home's leadership too.
//
// Version history
//
//	1  first version
const messageVersion = 1

const (
	kindSubscribe      = 1
	kindHeartbeat      = 2
	kindSubscribeReply = 3
	kindHeartbeatReply = 4
	kindNotify         = 5
)

// maxMessageOverhead is more than a message has besides its sessions.
const maxMessageOverhead = 80

type sessionState uint64

const (
	stateUnchanged sessionState = 0 // as the subscriber knows it; never on the wire
	stateAttached  sessionState = 1 // with epoch and description
	stateEnded     sessionState = 2 // final
	stateRetry     sessionState = 3 // this shard does not own the home bucket under the named epoch

	// stateDetached is stateAttached for a detached session: another session may take the ids of
	// its instances.
	stateDetached sessionState = 4
)

type subscribeMsg struct {
	epoch, attempt, request uint64
	sessions                []subscribeEntry
}

// subscribeEntry.known is the attach epoch whose description the subscriber has. It is 0 for a
// session that is detached there, so that the reply says when it is attached.
type subscribeEntry struct{ session, bucketEpoch, known uint64 }

// heartbeatMsg.sentAt comes back in the reply. nextUpdate acknowledges all updates before it.
type heartbeatMsg struct{ epoch, attempt, sentAt, nextUpdate uint64 }

type subscribeReply struct {
	homeEpoch, epoch, attempt, request, first, count uint64
	sessions                                         []sessionStatus
}

type heartbeatReply struct {
	homeEpoch, epoch, attempt, sentAt uint64
	known                             bool
}

type notifyMsg struct {
	homeEpoch, epoch, attempt, firstUpdate uint64
	sessions                               []sessionStatus
}

// sessionStatus is a session's state in a reply or notification. stateAttached and stateDetached
// have an epoch and a description.
type sessionStatus struct {
	session     uint64
	state       sessionState
	epoch       uint64
	description string
}

func (e *sessionStatus) alive() bool { return e.state == stateAttached || e.state == stateDetached }

// size is at least the number of bytes in a message.
func (e *sessionStatus) size() int {
	if !e.alive() {
		return 10 + 1
	}
	return 10 + 1 + 10 + 3 + len(e.description)
}

func appendUvarints(b []byte, v ...uint64) []byte {
	for _, x := range v {
		b = binary.AppendUvarint(b, x)
	}
	return b
}

func (m subscribeMsg) append(b []byte) []byte {
	b = appendUvarints(append(b, messageVersion, kindSubscribe), m.epoch, m.attempt, m.request, uint64(len(m.sessions)))
	for _, e := range m.sessions {
		b = appendUvarints(b, e.session, e.bucketEpoch, e.known)
	}
	return b
}

func (m heartbeatMsg) append(b []byte) []byte {
	return appendUvarints(append(b, messageVersion, kindHeartbeat), m.epoch, m.attempt, m.sentAt, m.nextUpdate)
}

func (m subscribeReply) append(b []byte) []byte {
	b = appendUvarints(append(b, messageVersion, kindSubscribeReply), m.homeEpoch, m.epoch, m.attempt, m.request, m.first, m.count)
	return appendStatuses(b, m.sessions)
}

func (m heartbeatReply) append(b []byte) []byte {
	known := uint64(0)
	if m.known {
		known = 1
	}
	return appendUvarints(append(b, messageVersion, kindHeartbeatReply), m.homeEpoch, m.epoch, m.attempt, m.sentAt, known)
}

func (m notifyMsg) append(b []byte) []byte {
	b = appendUvarints(append(b, messageVersion, kindNotify), m.homeEpoch, m.epoch, m.attempt, m.firstUpdate)
	return appendStatuses(b, m.sessions)
}

func appendStatuses(b []byte, entries []sessionStatus) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = appendUvarints(b, e.session, uint64(e.state))
		if e.alive() {
			b = appendUvarints(b, e.epoch, uint64(len(e.description)))
			b = append(b, e.description...)
		}
	}
	return b
}

var errMalformed = errors.New("malformed message of a peer shard; check that all instances run compatible versions")

// messageReader reads fields; after a malformed one all are 0 and bad is set.
type messageReader struct {
	b   []byte
	bad bool
}

func (r *messageReader) next() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of elements that must be followed by at least size bytes each, so that a
// length alone allocates nothing.
func (r *messageReader) count(size, limit int) int {
	v := r.next()
	if v > uint64(limit) || v > uint64(len(r.b)/size) {
		r.b, r.bad = nil, true
		return 0
	}
	return int(v)
}

func (r *messageReader) text(limit int) string {
	n := r.count(1, limit)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *messageReader) subscribe() subscribeMsg {
	m := subscribeMsg{epoch: r.next(), attempt: r.next(), request: r.next()}
	m.sessions = make([]subscribeEntry, r.count(3, MaxRequestSessions))
	for i := range m.sessions {
		m.sessions[i] = subscribeEntry{r.next(), r.next(), r.next()}
	}
	return m
}

func (r *messageReader) heartbeat() heartbeatMsg {
	return heartbeatMsg{epoch: r.next(), attempt: r.next(), sentAt: r.next(), nextUpdate: r.next()}
}

func (r *messageReader) subscribeReply() subscribeReply {
	m := subscribeReply{homeEpoch: r.next(), epoch: r.next(), attempt: r.next(), request: r.next(), first: r.next(), count: r.next()}
	if m.first > MaxRequestSessions || m.count > MaxRequestSessions {
		r.bad = true
	}
	m.sessions = r.statuses()
	return m
}

func (r *messageReader) heartbeatReply() heartbeatReply {
	return heartbeatReply{homeEpoch: r.next(), epoch: r.next(), attempt: r.next(), sentAt: r.next(), known: r.next() == 1}
}

func (r *messageReader) notify() notifyMsg {
	m := notifyMsg{homeEpoch: r.next(), epoch: r.next(), attempt: r.next(), firstUpdate: r.next()}
	m.sessions = r.statuses()
	return m
}

func (r *messageReader) statuses() []sessionStatus {
	list := make([]sessionStatus, r.count(2, maxNotifySessions))
	for i := range list {
		e := &list[i]
		e.session, e.state = r.next(), sessionState(r.next())
		switch e.state {
		case stateAttached, stateDetached:
			e.epoch, e.description = r.next(), r.text(maxDescription)
		case stateEnded, stateRetry:
		default:
			r.bad = true
		}
	}
	return list
}

// Receive handles a message of the leader of shard from. Malformed messages are counted and
// ignored.
func (l *Leader) Receive(now, from uint64, msg []byte, st State) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if err := l.receive(from, msg, st); err != nil {
		l.stats.Malformed++
	}
}

func (l *Leader) receive(from uint64, msg []byte, st State) error {
	if len(msg) < 2 {
		return errMalformed
	}
	if msg[0] != messageVersion {
		return nil
	}
	r := messageReader{b: msg[2:]}
	switch msg[1] {
	case kindSubscribe:
		if m := r.subscribe(); !r.bad {
			l.receiveSubscribe(from, &m)
		}
	case kindHeartbeat:
		if m := r.heartbeat(); !r.bad {
			l.receiveHeartbeat(from, &m)
		}
	case kindSubscribeReply:
		if m := r.subscribeReply(); !r.bad {
			l.receiveSubscribeReply(from, &m, st)
		}
	case kindHeartbeatReply:
		if m := r.heartbeatReply(); !r.bad {
			l.receiveHeartbeatReply(from, &m)
		}
	case kindNotify:
		if m := r.notify(); !r.bad {
			l.receiveNotify(from, &m, st)
		}
	}
	if r.bad {
		return errMalformed
	}
	return nil
}

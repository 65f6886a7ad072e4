package leader

import (
	"errors"

	"github.com/signalbox-dev/signalbox/protocol/varint"
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

var errMalformed = errors.New("malformed message of another shard's leader; check that all instances run compatible versions")

// message is implemented by pointers to the messages. Each lists its fields once, for both
// directions.
type message interface {
	kind() byte
	fields(c *codec)
}

func (*subscribeMsg) kind() byte   { return kindSubscribe }
func (*heartbeatMsg) kind() byte   { return kindHeartbeat }
func (*subscribeReply) kind() byte { return kindSubscribeReply }
func (*heartbeatReply) kind() byte { return kindHeartbeatReply }
func (*notifyMsg) kind() byte      { return kindNotify }

func (m *subscribeMsg) fields(c *codec) {
	c.uints(&m.epoch, &m.attempt, &m.request)
	codeList(c, &m.sessions, MaxRequestSessions, func(c *codec, e *subscribeEntry) {
		c.uints(&e.session, &e.bucketEpoch, &e.known)
	})
}

func (m *heartbeatMsg) fields(c *codec) { c.uints(&m.epoch, &m.attempt, &m.sentAt, &m.nextUpdate) }

func (m *subscribeReply) fields(c *codec) {
	c.uints(&m.homeEpoch, &m.epoch, &m.attempt, &m.request, &m.first, &m.count)
	if m.first > MaxRequestSessions || m.count > MaxRequestSessions {
		c.in.Fail()
	}
	codeList(c, &m.sessions, maxNotifySessions, (*codec).status)
}

func (m *heartbeatReply) fields(c *codec) {
	known := uint64(0)
	if m.known {
		known = 1
	}
	c.uints(&m.homeEpoch, &m.epoch, &m.attempt, &m.sentAt, &known)
	m.known = known == 1
}

func (m *notifyMsg) fields(c *codec) {
	c.uints(&m.homeEpoch, &m.epoch, &m.attempt, &m.firstUpdate)
	codeList(c, &m.sessions, maxNotifySessions, (*codec).status)
}

// codec appends fields to out, or reads them from in.
type codec struct {
	reading bool
	out     []byte
	in      varint.Reader
}

func encode(m message) []byte {
	c := codec{out: []byte{messageVersion, m.kind()}}
	m.fields(&c)
	return c.out
}

// decode reads the fields of m, and reports whether they are well-formed.
func decode(fields []byte, m message) bool {
	c := codec{reading: true, in: varint.Reader{Rest: fields}}
	m.fields(&c)
	return !c.in.Failed
}

func (c *codec) uints(numbers ...*uint64) {
	if c.reading {
		c.in.Uints(numbers...)
		return
	}
	for _, n := range numbers {
		c.out = varint.Append(c.out, *n)
	}
}

// codeList codes a list of at most limit elements. A length that the message is too short for
// allocates nothing.
func codeList[T any](c *codec, list *[]T, limit int, element func(c *codec, e *T)) {
	if c.reading {
		*list = make([]T, c.in.Count(limit))
	} else {
		c.out = varint.Append(c.out, uint64(len(*list)))
	}
	for i := range *list {
		element(c, &(*list)[i])
	}
}

func (c *codec) status(e *sessionStatus) {
	state := uint64(e.state)
	c.uints(&e.session, &state)
	e.state = sessionState(state)
	switch {
	case e.alive() && c.reading:
		c.uints(&e.epoch)
		e.description = string(c.in.Bytes(maxDescription))
	case e.alive():
		c.uints(&e.epoch)
		c.out = varint.AppendBytes(c.out, e.description)
	case e.state != stateEnded && e.state != stateRetry:
		c.in.Fail()
	}
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
	ok := true
	switch fields := msg[2:]; msg[1] {
	case kindSubscribe:
		var m subscribeMsg
		if ok = decode(fields, &m); ok {
			l.receiveSubscribe(from, &m)
		}
	case kindHeartbeat:
		var m heartbeatMsg
		if ok = decode(fields, &m); ok {
			l.receiveHeartbeat(from, &m)
		}
	case kindSubscribeReply:
		var m subscribeReply
		if ok = decode(fields, &m); ok {
			l.receiveSubscribeReply(from, &m, st)
		}
	case kindHeartbeatReply:
		var m heartbeatReply
		if ok = decode(fields, &m); ok {
			l.receiveHeartbeatReply(from, &m)
		}
	case kindNotify:
		var m notifyMsg
		if ok = decode(fields, &m); ok {
			l.receiveNotify(from, &m, st)
		}
	}
	if !ok {
		return errMalformed
	}
	return nil
}

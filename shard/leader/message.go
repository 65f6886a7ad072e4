package leader

import (
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard"
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
	ending      protocol.Ending // of stateEnded, in a notification
}

func (s *sessionStatus) alive() bool { return s.state == stateAttached || s.state == stateDetached }

// size is at least the number of bytes in a message.
func (s *sessionStatus) size() int {
	if !s.alive() {
		return 10 + 1 + 2 + 20
	}
	return 10 + 1 + 10 + 3 + len(s.description)
}

var errMalformed = errors.New(
	"malformed message of another shard's leader; check that all instances run compatible versions")

// message is implemented by pointers to the messages. Each lists its fields once, for both
// directions.
type message interface {
	kind() byte
	fields(f *varint.Fields)
}

func (*subscribeMsg) kind() byte   { return kindSubscribe }
func (*heartbeatMsg) kind() byte   { return kindHeartbeat }
func (*subscribeReply) kind() byte { return kindSubscribeReply }
func (*heartbeatReply) kind() byte { return kindHeartbeatReply }
func (*notifyMsg) kind() byte      { return kindNotify }

func (m *subscribeMsg) fields(f *varint.Fields) {
	f.Uint(&m.epoch, &m.attempt, &m.request)
	varint.List(f, &m.sessions, MaxRequestSessions, func(e *subscribeEntry, f *varint.Fields) {
		f.Uint(&e.session, &e.bucketEpoch, &e.known)
	})
}

func (m *heartbeatMsg) fields(f *varint.Fields) {
	f.Uint(&m.epoch, &m.attempt, &m.sentAt, &m.nextUpdate)
}

func (s *subscribeReply) fields(f *varint.Fields) {
	f.Uint(&s.homeEpoch, &s.epoch, &s.attempt, &s.request, &s.first, &s.count)
	if s.first > MaxRequestSessions || s.count > MaxRequestSessions {
		f.Fail()
	}
	varint.List(f, &s.sessions, maxNotifySessions, (*sessionStatus).fields)
}

func (h *heartbeatReply) fields(f *varint.Fields) {
	known := uint64(0)
	if h.known {
		known = 1
	}
	f.Uint(&h.homeEpoch, &h.epoch, &h.attempt, &h.sentAt, &known)
	h.known = known == 1
}

func (m *notifyMsg) fields(f *varint.Fields) {
	f.Uint(&m.homeEpoch, &m.epoch, &m.attempt, &m.firstUpdate)
	varint.List(f, &m.sessions, maxNotifySessions, (*sessionStatus).fields)
}

func encode(m message) []byte {
	return varint.Encode([]byte{messageVersion, m.kind()}, m.fields)
}

// decode reads the fields of m, and reports whether they are well-formed. Later versions may append
// fields.
func decode(fields []byte, m message) bool {
	r := varint.Reader{Rest: fields}
	varint.Decode(&r, m.fields)
	return !r.Failed
}

func (s *sessionStatus) fields(f *varint.Fields) {
	state := uint64(s.state)
	f.Uint(&s.session, &state)
	s.state = sessionState(state)
	switch {
	case s.alive():
		f.Uint(&s.epoch)
		f.Text(&s.description, maxDescription)
	case s.state == stateEnded:
		shard.EndingFields(f, &s.ending)
	case s.state != stateRetry:
		f.Fail()
	}
}

// handle decodes a message and gives it to its handler. It is false if the message is malformed.
func handle[M any, P interface {
	*M
	message
}](fields []byte, receive func(*M)) bool {
	m := new(M)
	ok := decode(fields, P(m))
	if ok {
		receive(m)
	}
	return ok
}

package lead

import (
	"encoding/binary"
	"errors"
)

// Messages between the leaders of two shards. Each is one byte of version, one of kind, then fields in order, all of them uvarints but descriptions, which
// are length and bytes. A reader ignores a message of another version or an unknown kind, and bytes after the last field it knows.
//
//	guest to home  ask     which of these sessions live, and subscribe me to them
//	               beat    are you there, do you know me, and this is how far I have your news
//	home to guest  answer  about the entries [first, first+count) of a question: those that are not listed live as the asker knows them
//	               life    the answer to a beat
//	               news    unasked: sessions that ended, were attached or were detached
//
// Every message names the guest's leadership and its attempt, every one to a guest the home's leadership too.
//
// Version history
//
//	1  first version
const peerVersion = 1

const (
	peerAsk    = 1
	peerBeat   = 2
	peerAnswer = 3
	peerLife   = 4
	peerNews   = 5
)

// maxHead is more than what a message has besides its entries.
const maxHead = 80

type verdict uint64

const (
	verdictNone  verdict = 0 // as the asker knows it; never on the wire
	verdictAlive verdict = 1 // under this attach epoch, with this description
	verdictGone  verdict = 2 // for ever
	verdictRetry verdict = 3 // this shard does not own the home bucket under the epoch that was named

	// verdictDetached: as verdictAlive, and the session is detached. Another session may take the
	// ids of its instances.
	verdictDetached verdict = 4
)

type askMsg struct {
	guest, link, question uint64
	entries               []askEntry
}

// askEntry: known is the attach epoch whose description the guest has. It is 0 for a session that
// the guest's shard has as detached, so that the answer says when it is attached.
type askEntry struct{ session, bucketEpoch, known uint64 }

// beatMsg: stamp comes back in the life; told is the number of the next news expected.
type beatMsg struct{ guest, link, stamp, told uint64 }

type answerMsg struct {
	home, guest, link, question, first, count uint64
	entries                                   []entry
}

type lifeMsg struct {
	home, guest, link, stamp uint64
	known                    bool
}

type newsMsg struct {
	home, guest, link, first uint64
	entries                  []entry
}

// entry of an answer or of news. Epoch and description with verdictAlive and verdictDetached only.
type entry struct {
	session     uint64
	verdict     verdict
	epoch       uint64
	description string
}

func (e *entry) alive() bool { return e.verdict == verdictAlive || e.verdict == verdictDetached }

// size is at least what the entry takes in a message.
func (e *entry) size() int {
	if !e.alive() {
		return 10 + 1
	}
	return 10 + 1 + 10 + 3 + len(e.description)
}

func fields(b []byte, v ...uint64) []byte {
	for _, x := range v {
		b = binary.AppendUvarint(b, x)
	}
	return b
}

func (m askMsg) append(b []byte) []byte {
	b = fields(append(b, peerVersion, peerAsk), m.guest, m.link, m.question, uint64(len(m.entries)))
	for _, e := range m.entries {
		b = fields(b, e.session, e.bucketEpoch, e.known)
	}
	return b
}

func (m beatMsg) append(b []byte) []byte {
	return fields(append(b, peerVersion, peerBeat), m.guest, m.link, m.stamp, m.told)
}

func (m answerMsg) append(b []byte) []byte {
	b = fields(append(b, peerVersion, peerAnswer), m.home, m.guest, m.link, m.question, m.first, m.count)
	return appendEntries(b, m.entries)
}

func (m lifeMsg) append(b []byte) []byte {
	known := uint64(0)
	if m.known {
		known = 1
	}
	return fields(append(b, peerVersion, peerLife), m.home, m.guest, m.link, m.stamp, known)
}

func (m newsMsg) append(b []byte) []byte {
	b = fields(append(b, peerVersion, peerNews), m.home, m.guest, m.link, m.first)
	return appendEntries(b, m.entries)
}

func appendEntries(b []byte, entries []entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = fields(b, e.session, uint64(e.verdict))
		if e.alive() {
			b = fields(b, e.epoch, uint64(len(e.description)))
			b = append(b, e.description...)
		}
	}
	return b
}

var errPeer = errors.New("malformed message of a peer shard; check that all instances run compatible versions")

// peerReader reads fields; after the first malformed one all are 0 and bad is set.
type peerReader struct {
	b   []byte
	bad bool
}

func (r *peerReader) next() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a length that at least size bytes per unit must follow, so that nothing is allocated on the word of a peer.
func (r *peerReader) count(size, limit int) int {
	v := r.next()
	if v > uint64(limit) || v > uint64(len(r.b)/size) {
		r.b, r.bad = nil, true
		return 0
	}
	return int(v)
}

func (r *peerReader) text(limit int) string {
	n := r.count(1, limit)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *peerReader) ask() askMsg {
	m := askMsg{guest: r.next(), link: r.next(), question: r.next()}
	m.entries = make([]askEntry, r.count(3, MaxAsk))
	for i := range m.entries {
		m.entries[i] = askEntry{r.next(), r.next(), r.next()}
	}
	return m
}

func (r *peerReader) beat() beatMsg {
	return beatMsg{guest: r.next(), link: r.next(), stamp: r.next(), told: r.next()}
}

func (r *peerReader) answer() answerMsg {
	m := answerMsg{home: r.next(), guest: r.next(), link: r.next(), question: r.next(), first: r.next(), count: r.next()}
	if m.first > MaxAsk || m.count > MaxAsk {
		r.bad = true
	}
	m.entries = r.entries()
	return m
}

func (r *peerReader) life() lifeMsg {
	return lifeMsg{home: r.next(), guest: r.next(), link: r.next(), stamp: r.next(), known: r.next() == 1}
}

func (r *peerReader) news() newsMsg {
	m := newsMsg{home: r.next(), guest: r.next(), link: r.next(), first: r.next()}
	m.entries = r.entries()
	return m
}

func (r *peerReader) entries() []entry {
	list := make([]entry, r.count(2, maxTellEntries))
	for i := range list {
		e := &list[i]
		e.session, e.verdict = r.next(), verdict(r.next())
		switch e.verdict {
		case verdictAlive, verdictDetached:
			e.epoch, e.description = r.next(), r.text(maxDescription)
		case verdictGone, verdictRetry:
		default:
			r.bad = true
		}
	}
	return list
}

// Receive takes a message of the leader of shard from. Any bytes are safe; malformed ones are counted and ignored.
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
		return errPeer
	}
	if msg[0] != peerVersion {
		return nil
	}
	r := peerReader{b: msg[2:]}
	switch msg[1] {
	case peerAsk:
		if m := r.ask(); !r.bad {
			l.heardAsk(from, &m)
			if plantAskUnproved {
				l.askFly, l.askWait = append(l.askFly, l.askWait...), nil
				l.answerAsks(st)
			}
		}
	case peerBeat:
		if m := r.beat(); !r.bad {
			l.heardBeat(from, &m)
		}
	case peerAnswer:
		if m := r.answer(); !r.bad {
			l.heardAnswer(from, &m, st)
		}
	case peerLife:
		if m := r.life(); !r.bad {
			l.heardLife(from, &m)
		}
	case peerNews:
		if m := r.news(); !r.bad {
			l.heardNews(from, &m, st)
		}
	}
	if r.bad {
		return errPeer
	}
	return nil
}

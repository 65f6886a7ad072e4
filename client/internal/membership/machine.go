package membership

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Options of a member. Zeroes take the defaults.
type Options struct {
	// RetryMin and RetryMax bound the wait before something unanswered is sent again; it doubles
	// each time. Defaults 50 ms and 5 s.
	RetryMin, RetryMax time.Duration
	// MaxProcessFailures is how many messages in a row may fail in the handler before the round is
	// reported failed. Default 0: any number.
	MaxProcessFailures int
	// Seed of the jitter, which is up to a half of each wait.
	Seed uint64
}

// What a caller did wrong, or too late.
var (
	ErrRoundOver      = errors.New("round is over")
	ErrNotCoordinator = errors.New("only the coordinator completes a round")
	ErrNotReady       = errors.New("not all members are prepared; complete the round from coordinate or later")
	ErrNotPrepared    = errors.New("round is not prepared here; return an error from prepare to fail it")
	ErrReplied        = errors.New("message was replied to already")
	ErrRequestGone    = errors.New("no such message in this round")
	ErrTooLarge       = errors.New("payload is too large")
	ErrNoReceiver     = errors.New("message has no receiver, or one that is not a member of the round, or one twice")
	// ErrNotMember is why a membership ended without an event that says so.
	ErrNotMember = errors.New("session is no member of the process any more")
	// ErrReplaced and ErrEvicted are why a session that lives is no member any more.
	ErrReplaced = errors.New("another session joined with this member's key")
	ErrEvicted  = errors.New("evicted by an operator")
)

// Round is what a member knows of a round. It does not change, except that Result is set before the
// round's Complete runs.
type Round struct {
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session
	Attempt     uint64
	Token       uint64 // fencing token for effects outside
	Members     []protocol.ProcessMember
	Resumed     bool   // the member came back to a round that the others have completed
	Result      []byte // nil also where the member learned that the round is complete by hearing of a newer one
}

// Member is the one with the session, or nil.
func (r *Round) Member(session uint64) *protocol.ProcessMember {
	for i := range r.Members {
		if r.Members[i].Session == session {
			return &r.Members[i]
		}
	}
	return nil
}

// Machine is one membership. It ends once; a session that joins again has a new one.
//
// Invariant: of each round that was prepared with success one Complete or one Cancel runs, and none
// of another. Invariant: jobs of a round that is over are its end and cancelled messages only, and
// stand before those of newer rounds. Invariant: every send is due, or in flight, and belongs to
// the round that is open, but for sync.
type Machine struct {
	session uint64
	options Options
	rng     uint64

	epoch        uint64 // the highest heard of
	round        *round // the one of that epoch, or nil: it is over, or nothing of it was taken in
	jobs         []Job
	runningRound *round // whose callback runs; nil: none, or Terminate
	running      bool
	pending      []*pendingSend // in order of their making
	lastSendID   uint64
	lastMessage  uint64 // last message
	ready        Ready
	ended        error // why the membership is over
}

// round is a Round in work.
type round struct {
	Round
	previousEpoch uint64 // the epoch heard of before
	prepared      bool   // Prepare has run with success
	failed        bool
	coordinated   bool // Coordinate was asked for
	completing    bool // the coordinator completes it
	over          bool // its end is known
	completed     bool // its end is that it is complete
	endQueued     bool // the jobs of its end were made
	endRan        bool // Complete or Cancel has run
	requests      []*sentRequest
	senders       map[uint64]*messageSender // by session; never walked
	failures      int
}

// sentRequest is a message of this member that lacks answers.
type sentRequest struct {
	number       uint64
	missing      []uint64
	answers      []Answer
	send         *pendingSend
	sinceKnown   bool          // since is known
	since        time.Duration // about when it was sent
	reportedSlow bool          // it was in Ready.Slow
}

// Answer is a reply, and whose.
type Answer struct {
	From    uint64
	Payload []byte
}

// messageSender is another member, as far as its messages go.
type messageSender struct {
	low     uint64
	handled map[uint64]*handledMessage // by number
}

// handledMessage is a message that runs, or ran with success.
type handledMessage struct {
	replied bool
	payload []byte
}

// pendingSend is something that is sent until it is answered.
type pendingSend struct {
	Send
	inFlight bool
	due      time.Duration
	wait     time.Duration
	sent     bool
}

// Send is one message to the server, of the kind. Its fields are those of the protocol's message.
type Send struct {
	ID      uint64 // for Answered
	Kind    protocol.Kind
	Epoch   uint64
	Step    protocol.ProcessStep
	Text    string
	To      []uint64
	Number  uint64
	Low     uint64
	Refused bool
	Payload []byte // or result
}

// Ready lists the work to do now.
type Ready struct {
	Sends      []Send
	Superseded []uint64 // epochs whose context ends now
	Repeated   int      // of Sends, those that were sent before
	Slow       []Slow
}

// Slow is a message that lacks answers for SlowAfter. It is reported once.
type Slow struct {
	Epoch   uint64
	Number  uint64
	Missing []uint64 // sessions
}

// SlowAfter is how long answers may take before a message is reported slow.
const SlowAfter = 10 * time.Second

// New makes the machine of a session that has joined, or is about to.
func New(session uint64, o Options) *Machine {
	if o.RetryMin <= 0 {
		o.RetryMin = 50 * time.Millisecond
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 5 * time.Second
	}
	o.RetryMax = max(o.RetryMax, o.RetryMin)
	return &Machine{session: session, options: o, rng: o.Seed}
}

// Ended is why the membership is over, or nil.
func (m *Machine) Ended() error { return m.ended }

// Epoch is the highest epoch received.
func (m *Machine) Epoch() uint64 { return m.epoch }

// Take returns what is to be done, once.
func (m *Machine) Take() Ready {
	r := m.ready
	m.ready = Ready{}
	return r
}

// Next is when Tick has something to do, if ever.
func (m *Machine) Next() (at time.Duration, ok bool) {
	at = math.MaxInt64
	for _, d := range m.pending {
		if !d.inFlight && d.due < at {
			at, ok = d.due, true
		}
	}
	return at, ok
}

// Tick sends what is due.
func (m *Machine) Tick(now time.Duration) {
	for _, d := range m.pending {
		if !d.inFlight && d.due <= now {
			m.send(d)
		}
	}
}

// Connected reports that the connection to the shard's leader is new, or that the session was
// attached again. Events that were sent meanwhile may be lost, and so may messages that the server
// had taken.
func (m *Machine) Connected(now time.Duration) {
	if m.ended != nil {
		return
	}
	m.sync(now)
	for _, d := range m.pending {
		if d.Kind != protocol.KindProcessSync {
			d.due, d.wait = now, m.options.RetryMin
		}
	}
	m.Tick(now)
}

// Answered is the outcome of a send.
func (m *Machine) Answered(now time.Duration, s Send, status protocol.Status) {
	i := slices.IndexFunc(m.pending, func(d *pendingSend) bool { return d.ID == s.ID })
	if i < 0 {
		return // nobody wants it any more
	}
	d := m.pending[i]
	d.inFlight = false
	switch {
	case status == protocol.StatusNotFound && s.Kind == protocol.KindProcessSync:
		m.End(now, 0, ErrNotMember)
		return
	// taken is not answered: the relay may forget
	case status == protocol.StatusOK && s.Kind == protocol.KindProcessRequest,
		status.Retryable(), MayCome(status):
		m.scheduleRetry(now, d)
		return
	case status == protocol.StatusPreconditionFailed && s.Kind == protocol.KindProcessRequest:
		m.scheduleRetry(now, d) // a receiver has gone: a round without it is on its way
		m.sync(now)
		return
	}
	m.removeSend(d)
	switch status {
	case protocol.StatusOK:
	case protocol.StatusAborted, protocol.StatusNotFound, protocol.StatusPreconditionFailed:
		if r := m.round; s.Kind == protocol.KindProcessFail && status == protocol.StatusPreconditionFailed && r != nil {
			r.failed = false // it is decided complete
		}
		m.sync(now) // the server knows more
	default: // it will never be taken
		if s.Kind == protocol.KindProcessRequest {
			m.GiveUp(s.Number)
		}
	}
	m.Tick(now)
}

// MayCome says of the status of a refused send that what it lacked may come later: a right,
// credentials, the session's next attach. Nothing else would send it again: the round would stay as
// it is. A session that was taken over ends, and with it the membership.
func MayCome(s protocol.Status) bool {
	return s == protocol.StatusForbidden || s == protocol.StatusUnauthenticated || s == protocol.StatusBadSession
}

// End reports that the membership is over: the session left or ended. An open round is complete if
// its epoch was completed, and cancelled otherwise.
func (m *Machine) End(now time.Duration, decided uint64, why error) {
	if m.ended != nil {
		return
	}
	m.supersede(decided)
	m.ended, m.pending = why, nil
	m.jobs = append(m.jobs, Job{Kind: JobTerminate})
}

func (m *Machine) addSend(s Send) *pendingSend {
	d := m.addPending(s)
	m.send(d)
	return d
}

// addPending has something sent later.
func (m *Machine) addPending(s Send) *pendingSend {
	m.lastSendID++
	s.ID = m.lastSendID
	d := &pendingSend{Send: s, wait: m.options.RetryMin}
	m.pending = append(m.pending, d)
	return d
}

func (m *Machine) send(d *pendingSend) {
	d.inFlight = true
	if d.sent {
		m.ready.Repeated++
	}
	d.sent = true
	if d.Kind == protocol.KindProcessRequest {
		a := m.round.request(d.Number)
		d.To, d.Low = slices.Clone(a.missing), m.round.requests[0].number
	}
	m.ready.Sends = append(m.ready.Sends, d.Send)
}

func (m *Machine) scheduleRetry(now time.Duration, d *pendingSend) {
	if d.Kind == protocol.KindProcessRequest {
		m.checkSlow(now, m.round.request(d.Number))
	}
	m.rng += 0x9e3779b97f4a7c15 // splitmix64
	z := m.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	d.due = now + d.wait/2 + time.Duration(z%uint64(d.wait/2+1))
	d.wait = min(2*d.wait, m.options.RetryMax)
}

// checkSlow reports a message that lacks answers for long: what is unanswered is sent again and
// again, and comes by here.
func (m *Machine) checkSlow(now time.Duration, a *sentRequest) {
	switch {
	case !a.sinceKnown:
		a.sinceKnown, a.since = true, now
	case !a.reportedSlow && now-a.since >= SlowAfter:
		a.reportedSlow = true
		m.ready.Slow = append(m.ready.Slow, Slow{Epoch: m.round.Epoch, Number: a.number, Missing: slices.Clone(a.missing)})
	}
}

func (m *Machine) removeSend(d *pendingSend) {
	m.pending = slices.DeleteFunc(m.pending, func(x *pendingSend) bool { return x == d })
}

// sync asks for what this member has not confirmed, once at a time.
func (m *Machine) sync(now time.Duration) {
	for _, d := range m.pending {
		if d.Kind == protocol.KindProcessSync {
			if !d.inFlight {
				d.due = now
			}
			return
		}
	}
	m.addSend(Send{Kind: protocol.KindProcessSync, Epoch: m.epoch})
}

// confirm confirms that a step was done. A confirmation that is on its way says it, too.
func (m *Machine) confirm(epoch uint64, step protocol.ProcessStep) {
	for _, d := range m.pending {
		if d.Kind == protocol.KindProcessConfirm && d.Epoch == epoch && d.Step == step {
			return
		}
	}
	m.addSend(Send{Kind: protocol.KindProcessConfirm, Epoch: epoch, Step: step})
}

// Fail reports for the handler that the round failed: it is tried again with a new epoch. A
// repeated call does nothing.
func (m *Machine) Fail(epoch uint64, why error) error {
	r := m.round
	switch {
	case m.ended != nil || r == nil || r.Epoch != epoch || r.over:
		return ErrRoundOver
	case !r.prepared:
		return ErrNotPrepared
	}
	m.fail(r, why)
	return nil
}

func (m *Machine) fail(r *round, why error) {
	if r.over || r.failed || r.completing {
		return
	}
	r.failed = true
	text := strings.ToValidUTF8(why.Error(), "?") // else the server takes it for a mistake, and the round does not fail
	if len(text) > protocol.MaxProcessText {
		text = strings.ToValidUTF8(text[:protocol.MaxProcessText], "")
	}
	m.addSend(Send{Kind: protocol.KindProcessFail, Epoch: r.Epoch, Text: text})
}

package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// answerTimeout is how long a SessionStart waits for the cluster before it is answered
	// UNAVAILABLE. SDKs give up after 1 to 5 s by themselves.
	answerTimeout = 10 * time.Second
	// stopTimeout bounds a stop whose client waits for the answer, and before it the wait for the
	// requests that came first.
	stopTimeout = 10 * time.Second
	// maxRestoreTries is how often a restore is tried while others restore the same session.
	maxRestoreTries = 5
)

// nativeOptions are those of the native session for a client's timeout.
func (c *cluster) nativeOptions(timeout time.Duration, description string) []client.SessionOption {
	return []client.SessionOption{
		client.Timeout(gateway.NativeTimeout(timeout)), client.KeepAlive(gateway.KeepAlive(timeout)),
		client.Description(description),
		client.OnState(func(s client.State) {
			if s == client.Detached {
				go c.checkToken()
			}
		}),
	}
}

// checkToken finds out whether sessions are detached because their token was revoked, and ends
// their streams then. Their clients come again with the token that they have by now, and restore
// their sessions: these are their identity's, and not the token's.
func (c *cluster) checkToken() {
	if !c.checking.CompareAndSwap(false, true) {
		return
	}
	defer c.checking.Store(false)
	ctx, cancel := context.WithTimeout(c.g.ctx, answerTimeout)
	defer cancel()
	_, err := c.Client.ServerInfo(ctx)
	if !gateway.IsUnauthenticated(err) {
		return
	}
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()
	for _, s := range all {
		s.fail(err)
	}
}

// start is a SessionStart that was checked.
type start struct {
	host        string // of the client
	path        string // of the cluster
	session     uint64 // 0: a new one
	isNew       bool   // session was started for this, and its client does not know it yet
	timeout     time.Duration
	description string
	seqNo       uint64
	key         gateway.Key
}

// session is a native session that this gateway keeps attached for its client.
type session struct {
	c       *cluster
	native  *client.Session
	host    string // of the client
	path    string // of the node, at the cluster
	id      uint64
	key     gateway.Key
	timeout time.Duration // the client's

	mu     sync.Mutex
	stream *stream     // or nil
	timer  *time.Timer // runs while there is no stream
	left   func()      // set with timer: the session does not count any more as one without a stream
}

// open starts or restores a session. ctx is the stream's: if it ends first, the session begins
// without a stream.
func (c *cluster) open(ctx context.Context, st start) (*session, error) {
	if st.session == 0 {
		return c.startSession(ctx, st)
	}
	return c.restoreSession(ctx, st)
}

func (c *cluster) startSession(ctx context.Context, st start) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	n, err := c.Client.Node(ctx, st.path)
	if err != nil {
		return nil, err
	}
	native, err := gateway.Start(ctx, n, st.key, c.nativeOptions(st.timeout, st.description)...)
	if err != nil {
		return nil, err
	}
	if st.seqNo == 0 {
		return c.adopt(native, st), nil
	}
	// The cluster must know seq_no, to refuse lower ones.
	st.session, st.isNew = native.ID(), true
	s, err := c.restoreSession(ctx, st)
	if err != nil { // stop it under its first epoch; if the attach comes before, runRestore does
		go func() { _ = native.Close(c.g.ctx) }()
	}
	return s, err
}

// restoring is an attach in progress: of a restore, or of a start with a seq_no.
type restoring struct {
	done chan struct{} // closed when session or err is set

	mu      sync.Mutex
	left    bool // nobody waits for it any more
	session *session
	err     error
}

var errWrongKey = protocol.Errorf(protocol.StatusBadSession, "the protection key is not this session's")

var errLate = protocol.Errorf(protocol.StatusUnavailable, "the cluster did not answer within %s; try again",
	answerTimeout)

// restoreSession attaches an existing session. The attach goes on until the cluster has answered,
// also when the client has given up: it may have been carried out, and then the session must end
// with its timeout and not live as long as this gateway. Each session has one such attach at a
// time. A key that is not the session's is refused here if this gateway knows better: strangers
// must not delay the client, or the session's end.
func (c *cluster) restoreSession(ctx context.Context, st start) (*session, error) {
	if !c.isKey(st.session, st.key) {
		return nil, errWrongKey
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r := &restoring{done: make(chan struct{})}
	for {
		c.mu.Lock()
		before := c.restoring[st.session]
		if before == nil {
			c.restoring[st.session] = r
		}
		c.mu.Unlock()
		if before == nil {
			break
		}
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, errLate
		}
	}
	go c.runRestore(ctx, r, st)
	select {
	case <-r.done:
		return r.session, r.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.done: // in the same moment
		return r.session, r.err
	default:
	}
	r.left = true
	return nil, errLate
}

// runRestore restores a session. What comes before the attach ends with ctx, the client's wait. It
// changes nothing, and clients that name any ids while the cluster is down leave nothing behind.
func (c *cluster) runRestore(ctx context.Context, r *restoring, st start) {
	var s *session
	n, err := c.Client.Node(ctx, st.path)
	if err == nil {
		var native *client.Session
		if native, err = c.attach(ctx, c.g.ctx, n, st.session, st); err == nil {
			s = c.adopt(native, st)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.err = s, err
	switch {
	case !r.left || s == nil:
	case st.isNew: // nobody knows its id
		go func() { _ = s.stop() }()
	default:
		s.leave()
	}
	c.mu.Lock()
	delete(c.restoring, st.session)
	c.mu.Unlock()
	close(r.done)
}

// attach takes a session over under the epoch that follows from seq_no and from the epoch that the
// session has. Others may restore it at the same time: then it looks again. asked bounds the looks,
// and ctx the attach itself.
func (c *cluster) attach(asked, ctx context.Context, n *client.Node, id uint64, st start) (*client.Session, error) {
	var last uint64
	for try := 1; ; try++ {
		info, err := admin.OfNode(n).DescribeSession(asked, id)
		if err != nil {
			return nil, err
		}
		if try > 1 && info.Epoch == last {
			return nil, errWrongKey
		}
		last = info.Epoch
		epoch, number, err := nextEpoch(last, st.seqNo)
		if err != nil {
			return nil, err
		}
		native, err := gateway.Attach(ctx, n,
			gateway.Takeover{Session: id, Key: st.key, Epoch: epoch, FirstNumber: number},
			c.nativeOptions(st.timeout, st.description)...)
		if err == nil || protocol.StatusOf(err) != protocol.StatusBadSession || try == maxRestoreTries {
			return native, err
		}
	}
}

// adopt keeps a session attached from now on. A session with the same id was taken over by it.
func (c *cluster) adopt(native *client.Session, st start) *session {
	s := &session{c: c, native: native, host: st.host, path: st.path, id: native.ID(), key: st.key, timeout: st.timeout}
	c.mu.Lock()
	c.sessions[s.id] = s
	c.mu.Unlock()
	c.g.metrics.sessions.Add(1)
	context.AfterFunc(native.Context(), s.over)
	return s
}

// isKey is false if this gateway keeps the session attached, and its key is another one.
func (c *cluster) isKey(id uint64, key gateway.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	return s == nil || subtle.ConstantTimeCompare(s.key[:], key[:]) == 1
}

// over is called when the session has ended, or belongs to somebody else.
func (s *session) over() {
	s.c.mu.Lock()
	if s.c.sessions[s.id] == s {
		delete(s.c.sessions, s.id)
	}
	s.c.mu.Unlock()
	s.c.g.metrics.sessions.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.left()
	}
}

// serve is called once, with the session's stream.
func (s *session) serve(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = st
}

// fail ends the session's stream, if there is one.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream.fail(err)
	}
}

// leave is called once, when the session's stream is gone: its client has the session's timeout to
// restore it, here or at another gateway. A restore makes another session, and ends this one.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = nil
	if s.native.Err() == nil {
		s.timer, s.left = time.AfterFunc(s.timeout, s.expire), s.c.g.left.begin(s.host)
	}
}

// expire stops a session whose client did not return. The restore that is in progress comes first,
// and none that begins later.
func (s *session) expire() {
	s.c.mu.Lock()
	restoring := s.c.restoring[s.id]
	s.c.mu.Unlock()
	if restoring != nil {
		select {
		case <-restoring.done:
		case <-s.c.g.ctx.Done():
			return // the cluster has the session now, and its client restores it elsewhere
		}
	}
	if s.native.Err() != nil {
		return
	}
	s.c.g.metrics.expired.Add(1)
	s.c.g.cfg.Logger.Debug("session expired", "session", s.id)
	_ = s.stop()
}

// stop ends the session. It goes on in the background after an error.
func (s *session) stop() error {
	ctx, cancel := context.WithTimeout(s.c.g.ctx, stopTimeout)
	defer cancel()
	return s.native.Close(ctx)
}

// healthy reports whether a message may be sent that lets the client believe in the session for its
// timeout from now on.
func (s *session) healthy() bool { return s.native.Remaining() >= s.timeout }

// An attach epoch is seq_no x 2^24 + n, so that the cluster orders attaches by seq_no, whichever
// gateway they come from. n orders the attaches under one seq_no, and goes on when seq_no rises:
//
//	bits 63..24  seq_no of the client's SessionStart
//	bits 23..6   which holder this is: rises with each restore
//	bits  5..0   attaches of this holder that may have been applied: again by itself after a lost
//	             connection, and once to stop; above 63 they count in the bits above
//
// A holder's requests are numbered from 2^40 times its number on, so that they are above all that
// the holder before can have used. The holder's number has 18 bits, and does not begin again when
// seq_no rises: lower request numbers would repeat answers of earlier requests. So a session has
// maxHolders restores at most. The rest of the 18 bits belongs to the last holder's own attaches,
// which must not run into seq_no.
const (
	seqNoShift  = 24
	holderShift = 6
	numberShift = 40

	lastHolder = 1<<(seqNoShift-holderShift) - 1
	maxHolders = lastHolder - 1<<10

	// maxSeqNo is the largest seq_no that an epoch has room for.
	maxSeqNo = 1 << 39
)

// nextEpoch is the epoch and the first request number of the next holder of a session, after a
// holder with the epoch last. Errors: BadSession, if last is of a higher seq_no, or if the session
// has had all its holders.
func nextEpoch(last, seqNo uint64) (epoch, firstNumber uint64, err error) {
	if last>>seqNoShift > seqNo {
		return 0, 0, protocol.Errorf(protocol.StatusBadSession,
			"seq_no %d is lower than %d, the session's last one; a later stream has it", seqNo, last>>seqNoShift)
	}
	holder := (last>>holderShift)&lastHolder + 1
	if holder > maxHolders {
		return 0, 0, protocol.Errorf(protocol.StatusBadSession,
			"the session was restored %d times, the most that may be; start another one", maxHolders)
	}
	return seqNo<<seqNoShift | holder<<holderShift, holder<<numberShift + 1, nil
}

// maxProtectionKey is the longest key of a client, in bytes.
const maxProtectionKey = 16

// sessionKey is the session's key at the cluster. Clients choose keys of 0 to 16 bytes, and the
// cluster wants 16.
func sessionKey(protectionKey []byte) (gateway.Key, error) {
	if len(protectionKey) > maxProtectionKey {
		return gateway.Key{}, protocol.Errorf(protocol.StatusBadRequest,
			"the protection key is %d bytes long; at most %d are allowed", len(protectionKey), maxProtectionKey)
	}
	sum := sha256.Sum256(append([]byte("signalbox-ydb protection key\x00"), protectionKey...))
	return gateway.Key(sum[:len(gateway.Key{})]), nil
}

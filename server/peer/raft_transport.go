package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// RaftTransport returns the factory of the raft engine's transport. The engine's raft address must
// be the advertised one. One engine may use it at a time.
func (t *Transport) RaftTransport() config.TransportFactory { return raftTransportFactory{t} }

type raftTransportFactory struct{ m *Transport }

// Create is called by the engine when it opens.
func (f raftTransportFactory) Create(
	cfg config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler,
) raftio.ITransport {
	return &raftTransport{m: f.m, address: normalize(cfg.RaftAddress), messages: messages, chunks: chunks}
}

// Validate reports whether an address is valid.
func (f raftTransportFactory) Validate(address string) bool { return checkAddress(address) == nil }

// engine receives raft messages. mu is held for reading during a delivery, so that a closed engine
// gets none.
type engine struct {
	mu        sync.RWMutex
	transport *raftTransport
}

type raftTransport struct {
	m        *Transport
	address  string
	messages raftio.MessageHandler
	chunks   raftio.ChunkHandler
}

func (t *raftTransport) Name() string { return "signalbox peer transport" }

func (t *raftTransport) Start() error {
	if t.address != t.m.cfg.Advertise {
		return fmt.Errorf("raft address %s is not the advertised address %s; give both the same", t.address,
			t.m.cfg.Advertise)
	}
	e := &t.m.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.transport != nil {
		return errors.New("another raft engine uses this transport")
	}
	e.transport = t
	return nil
}

func (t *raftTransport) Close() error {
	e := &t.m.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.transport == t {
		e.transport = nil
	}
	return nil
}

// sharedConn is the connection for all raft messages to one peer. The engine's senders to the peer
// share it.
type sharedConn struct {
	m      *Transport
	target string
	ready  chan struct{} // closed when c or err is set
	c      *conn
	err    error
	users  int // guarded by the transport's mu
}

// GetConnection returns a sender of the engine to a peer. It does not connect. Neither it nor the
// sender fails if the peer is unreachable: the engine would then send nothing to that address for
// up to 1.5 s, from any sender and for any shard. That would happen even if an idle sender notices
// a broken connection seconds later, when the peer is long back. Messages that cannot be sent are
// dropped, which raft allows.
func (t *raftTransport) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	return &raftSender{m: t.m, ctx: ctx, target: normalize(target)}, nil
}

// errRecentlyUnreachable: the last dial failed a moment ago.
var errRecentlyUnreachable = errors.New("the instance was not reached a moment ago")

const (
	// dialRetry is the pause after a failed dial: the longest wait for a peer that comes back.
	dialRetry = 100 * time.Millisecond
	// dialPatience bounds a dial. A peer behind a cut does not answer; the next dial begins soon
	// after the cut has healed.
	dialPatience = 1500 * time.Millisecond
)

// acquireConn makes the caller a user of the connection to a peer, and dials one if necessary.
func (t *Transport) acquireConn(ctx context.Context, target string) (*sharedConn, error) {
	t.mu.Lock()
	if t.stopped {
		t.mu.Unlock()
		return nil, errTransportClosed
	}
	if until, ok := t.nextDial[target]; ok {
		if time.Now().Before(until) {
			t.mu.Unlock()
			return nil, errRecentlyUnreachable
		}
		delete(t.nextDial, target)
	}
	l := t.sharedConns[target]
	mine := l == nil || l.closed()
	if mine {
		l = &sharedConn{m: t, target: target, ready: make(chan struct{})}
		t.sharedConns[target] = l
	}
	l.users++
	t.mu.Unlock()
	if mine {
		l.dial(ctx)
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
		l.release()
		return nil, ctx.Err()
	}
	if l.err != nil {
		l.release()
		return nil, l.err
	}
	return l, nil
}

// closed: the connection is closed and will be forgotten.
func (s *sharedConn) closed() bool {
	select {
	case <-s.ready:
		return s.err != nil || s.c.closed()
	default:
		return false
	}
}

func (s *sharedConn) dial(ctx context.Context) {
	dialling, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := s.m.dial(dialling, s.target, purposeRaft)
	if err == nil && !s.m.start(func() { s.run(ctx, c) }) {
		c.closeDialed()
		err = errTransportClosed
	}
	s.c, s.err = c, err
	close(s.ready)
	if err == nil {
		return
	}
	s.forget()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.nextDial[s.target] = time.Now().Add(dialRetry)
}

// run watches the connection until it breaks, its last user leaves or the engine closes.
func (s *sharedConn) run(ctx context.Context, c *conn) {
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer c.close()
		_, _, _, _ = c.next(nil) // keep-alives only
	})
	c.keepAlive()
	reading.Wait()
	s.forget()
	c.closeDialed()
}

// forget makes the next user dial.
func (s *sharedConn) forget() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.sharedConns[s.target] == s {
		delete(s.m.sharedConns, s.target)
	}
}

func (s *sharedConn) release() {
	s.m.mu.Lock()
	s.users--
	last := s.users == 0
	if last && s.m.sharedConns[s.target] == s {
		delete(s.m.sharedConns, s.target)
	}
	s.m.mu.Unlock()
	if !last {
		return
	}
	<-s.ready
	if s.c != nil {
		s.c.close()
	}
}

// raftSender is one sender of the engine to a peer, over the present shared connection. One
// goroutine uses it at a time.
type raftSender struct {
	m      *Transport
	ctx    context.Context // the engine's
	target string
	conn   *sharedConn // nil if there was none at the last look
	buf    []byte
}

func (r *raftSender) Close() { r.release() }

func (r *raftSender) release() {
	if r.conn != nil {
		r.conn.release()
		r.conn = nil
	}
}

// write sends a frame over the shared connection, or over a new one if that is broken; false: it is
// dropped.
func (r *raftSender) write(frame []byte) bool {
	for range 2 {
		if r.conn != nil && r.conn.closed() {
			r.release()
		}
		if r.conn == nil {
			l, err := r.m.acquireConn(r.ctx, r.target)
			if err != nil {
				return false
			}
			r.conn = l
		}
		if r.conn.c.write(frame) == nil {
			return true
		}
		r.release()
	}
	return false
}

const (
	batchMessages = 1024    // of one frame
	batchBytes    = 1 << 20 // of one frame, unless one message is larger: senders alternate by frames
)

// SendMessageBatch writes the batch in frames of bounded size, or drops it. It returns an error
// only for a batch that can never be sent.
func (r *raftSender) SendMessageBatch(batch raftpb.MessageBatch) error {
	all := batch.Requests
	for start := 0; start < len(all); {
		end, size := start, 0
		for end < len(all) && end-start < batchMessages {
			n := all[end].SizeUpperLimit()
			if end > start && size+n > batchBytes {
				break
			}
			size += n
			end++
		}
		batch.Requests = all[start:end]
		if err := r.send(&batch); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (r *raftSender) send(batch *raftpb.MessageBatch) error {
	n := frameHeader + batch.SizeUpperLimit()
	buf := r.buf
	if cap(buf) < n {
		buf = make([]byte, max(n, 16<<10))
		if n <= 2*batchBytes {
			r.buf = buf
		}
	}
	buf = buf[:cap(buf)]
	n, err := batch.MarshalTo(buf[frameHeader:])
	if err != nil {
		return err
	}
	if n > maxRaftFrame {
		return fmt.Errorf("raft message has %d bytes; at most %d can be sent", n, maxRaftFrame)
	}
	buf = buf[:frameHeader+n]
	sealFrame(buf, frameBatch, 0)
	if r.write(buf) {
		r.m.stats.BatchesSent.Add(1)
	} else {
		r.m.stats.BatchesUnsent.Add(1)
	}
	return nil
}

// serveRaft gives batches to the engine.
func (t *Transport) serveRaft(c *conn) {
	var buf []byte
	for {
		_, _, payload, err := c.next(buf)
		if err != nil {
			if !c.closed() && !errors.Is(err, errKeepAlive) && !errors.Is(err, errClosed) && !errors.Is(err, errFrame) {
				t.exits.check(t, c.peer)
			}
			return
		}
		t.stats.BatchesReceived.Add(1)
		var batch raftpb.MessageBatch
		if err := t.decodeBatch(c, payload, &batch); err != nil {
			t.closeMalformed(c, err)
			return
		}
		// The engine has its own copy. A buffer that grew for a large batch is released.
		if buf = payload; cap(buf) > 2*batchBytes {
			buf = nil
		}
		if !t.deliverBatch(c, batch) {
			return
		}
	}
}

func (t *Transport) deliverBatch(c *conn, batch raftpb.MessageBatch) bool {
	e := &t.engine
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.transport == nil {
		t.stats.BatchesDropped.Add(1)
		return true
	}
	return t.guard("raft engine", c.peer, func() { e.transport.messages(batch) })
}

// decodeBatch decodes a batch, and checks the properties that the engine relies on.
func (t *Transport) decodeBatch(c *conn, payload []byte, batch *raftpb.MessageBatch) error {
	if err := checkBatch(payload); err != nil {
		return err
	}
	var err error
	if !t.guard("decoding of raft messages", c.peer, func() { err = batch.Unmarshal(payload) }) {
		return errFrame
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	// The engine remembers this address for the sending replicas, and panics when it changes.
	if batch.SourceAddress != "" && normalize(batch.SourceAddress) != c.peer {
		return fmt.Errorf("%w: messages are from %s", errFrame, batch.SourceAddress)
	}
	for i := range batch.Requests {
		if r := &batch.Requests[i]; r.To == 0 || !isAllowed(r.Type) {
			return fmt.Errorf("%w: message %d is of type %d for replica %d", errFrame, i, r.Type, r.To)
		}
	}
	return nil
}

// GetSnapshotConnection makes a connection for one snapshot.
func (t *raftTransport) GetSnapshotConnection(
	ctx context.Context, target string,
) (raftio.ISnapshotConnection, error) {
	c, err := t.m.dial(ctx, normalize(target), purposeSnapshot)
	if err != nil {
		return nil, err
	}
	return &snapshotConn{c: c, stop: context.AfterFunc(ctx, c.close)}, nil
}

type snapshotConn struct {
	c    *conn
	stop func() bool
	once sync.Once
}

func (s *snapshotConn) Close() {
	s.once.Do(func() {
		s.stop()
		s.c.closeDialed()
	})
}

// SendChunk sends a chunk at the rate of all snapshots together, and returns when the receiver has
// accepted it.
func (s *snapshotConn) SendChunk(chunk raftpb.Chunk) error {
	c := s.c
	buf := make([]byte, frameHeader+chunk.Size())
	n, err := chunk.MarshalTo(buf[frameHeader:])
	if err != nil {
		return err
	}
	if n > maxChunk {
		return fmt.Errorf("snapshot chunk has %d bytes; at most %d can be sent", n, maxChunk)
	}
	buf = buf[:frameHeader+n]
	sealFrame(buf, frameChunk, 0)
	for len(buf) > 0 {
		piece := buf[:min(len(buf), snapshotWrite)]
		if !c.m.snapshotRate.wait(c.done, len(piece)) {
			return errClosed
		}
		if err := c.write(piece); err != nil {
			return err
		}
		buf = buf[len(piece):]
	}
	c.m.stats.ChunksSent.Add(1)
	_, taken, _, err := c.next(nil)
	if err != nil {
		return err
	}
	if taken != 1 {
		return errors.New("the receiver rejected the snapshot")
	}
	return nil
}

func (t *Transport) serveSnapshot(c *conn) {
	var buf []byte
	for {
		_, _, payload, err := c.next(buf)
		if err != nil {
			return
		}
		t.stats.ChunksReceived.Add(1)
		buf = payload
		var chunk raftpb.Chunk
		if !t.guard("decoding of a snapshot", c.peer, func() { err = chunk.Unmarshal(payload) }) || err != nil {
			t.closeMalformed(c, errFrame)
			return
		}
		taken := t.deliverChunk(c, chunk)
		if c.write(appendFrame(nil, frameChunkReply, taken, nil, nil)) != nil || taken == 0 {
			return
		}
	}
}

func (t *Transport) deliverChunk(c *conn, chunk raftpb.Chunk) (taken byte) {
	e := &t.engine
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.transport != nil {
		t.guard("raft engine", c.peer, func() {
			if e.transport.chunks(chunk) {
				taken = 1
			}
		})
	}
	return taken
}

// snapshotWrite is the most that a snapshot writes at once, before raft messages get their turn.
const snapshotWrite = 64 << 10

// rateLimiter paces all senders of snapshots together.
type rateLimiter struct {
	nsPerByte float64
	mu        sync.Mutex
	next      time.Time // when the next bytes may be sent
}

func newRate(bytesPerSecond int) *rateLimiter {
	return &rateLimiter{nsPerByte: 1e9 / float64(bytesPerSecond)}
}

// wait waits for the turn of n bytes. A few milliseconds of delay are skipped, since timers are not
// finer.
func (r *rateLimiter) wait(done <-chan struct{}, n int) bool {
	r.mu.Lock()
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	ahead := r.next.Sub(now)
	r.next = r.next.Add(time.Duration(float64(n) * r.nsPerByte))
	r.mu.Unlock()
	if ahead < 5*time.Millisecond {
		return true
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

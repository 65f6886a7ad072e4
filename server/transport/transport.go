// Package transport lets clients in and carries frames between their sockets and the server:
// listeners for plain TCP and TLS, event loops, and connections with bounds on all that a client
// can make the server hold. It knows frames, and nothing of requests, sessions and shards.
//
// A Client stands above each connection. It takes frames, and appends frames in return.
package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/metrics"
)

// TCP keep-alive finds clients whose machine is gone within 30 s + 3 * 10 s.
const (
	keepAliveIdle     = 30 * time.Second
	keepAliveInterval = 10 * time.Second
	keepAliveCount    = 3
)

// ListenConfig makes listeners for clients, whose connections have TCP keep-alive. They speak plain
// TCP: with multipath TCP, each accept takes more of the kernel's time, and connections of machines
// in one network have one path.
func ListenConfig() (lc net.ListenConfig) {
	lc.SetMultipathTCP(false)
	keepAlive(&lc)
	return lc
}

// Config configures a transport's listeners, limits and handlers. All fields but the two listeners
// are required.
type Config struct {
	Plain     net.Listener // of ListenConfig; nil: no client comes in without TLS
	TLS       net.Listener // of ListenConfig; nil: no client comes in over TLS
	TLSConfig *tls.Config  // with TLS

	Limits    Limits
	Clock     Clock
	FanOut    *fanout.Pace // nil: one of its own
	Log       *slog.Logger
	Metrics   *metrics.Metrics // the counters of connections and bytes are registered here
	NewClient func(*Conn) Client
	NewCycle  func() Cycle

	OnSweep func()                       // called each SweepPeriod
	OnPanic func(where string, what any) // a panic was contained, and the connection that it hit is closed
	Fail    func(error)                  // an event loop is dead

	// ManualClock: the clock moves only by hand. Sweep is then called by the owner.
	ManualClock bool
}

// Clock returns the time since some start.
type Clock interface{ Now() time.Duration }

// Limits bound the resources that clients can use.
type Limits struct {
	Connections, ConnectionsPerAddress int           // the latter 0: unlimited
	MaxFrame                           uint32        // of a connection that is established
	InTotal                            int           // bytes of unfinished frames of all connections
	OutSoft, OutHard, OutTotal         int           // bytes that wait for a connection, and for all
	OutAge                             time.Duration // how long a byte may wait
	Hello, Frame, Idle                 time.Duration // how long a hello, a frame and silence may take
}

// Transport is the listeners, and every open connection.
type Transport struct {
	cfg     Config
	Metrics *Metrics

	conns      connTable
	addresses  addressLimit
	unfinished atomic.Int64 // bytes of unfinished frames with more than minCountedFrame of them
	unread     atomic.Int64 // bytes that wait for connections with more than MinOutSoft of them
	pages      pageRoom
	sweeps     sweepCounter
	paused     *pausedConns
	plain      *gnetListener // or nil
	tls        *tlsListener  // or nil
	flushC     chan struct{}
	ringless   sync.Once // was logged

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines that end with ctx
}

// New returns a transport that does not accept connections yet.
func New(cfg Config) *Transport {
	if cfg.FanOut == nil {
		cfg.FanOut = fanout.New(cfg.Clock.Now)
	}
	t := &Transport{cfg: cfg, addresses: addressLimit{limit: cfg.Limits.ConnectionsPerAddress},
		flushC: make(chan struct{}, 1)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.Metrics = newMetrics(t, cfg.Metrics)
	t.paused = newPausedConns(t)
	if cfg.Plain != nil {
		t.plain = newGnetListener(t, cfg.Plain)
	}
	if cfg.TLS != nil {
		t.tls = newTLSListener(t, cfg.TLS, cfg.TLSConfig)
	}
	return t
}

// Open starts the event loops and lets clients in.
func (t *Transport) Open() error {
	if t.plain != nil {
		if err := t.plain.open(); err != nil {
			return err
		}
	}
	if t.tls != nil {
		t.tls.open()
	}
	t.running.Go(t.flushLoop)
	if !t.cfg.ManualClock {
		t.running.Go(t.paused.run)
		t.running.Go(t.sweepLoop)
	}
	return nil
}

// Addr returns the address for clients without TLS; empty if the transport has no plain listener.
func (t *Transport) Addr() string {
	if t.plain == nil {
		return ""
	}
	return t.plain.listener.Addr().String()
}

// TLSAddr returns the address for clients with TLS; empty if the transport has no TLS listener.
func (t *Transport) TLSAddr() string {
	if t.tls == nil {
		return ""
	}
	return t.tls.listener.Addr().String()
}

// StopAccepting closes the listeners. Connections live on.
func (t *Transport) StopAccepting() {
	if t.plain != nil {
		t.plain.stopAccepting()
	}
	if t.tls != nil {
		t.tls.stopAccepting()
	}
}

// Close ends the listeners, every connection, and the transport's goroutines.
func (t *Transport) Close() {
	if t.plain != nil {
		t.plain.close()
	}
	if t.tls != nil {
		t.tls.close()
	}
	t.cancel()
	t.running.Wait()
}

// Conn finds an open connection; nil when it is gone. It takes no lock.
func (t *Transport) Conn(id uint64) *Conn { return t.conns.get(id) }

// Each visits every open connection. Those that come or go meanwhile may be missed.
func (t *Transport) Each(visit func(*Conn)) { t.conns.each(visit) }

// LoopSilence returns the longest time that an event loop has left its beats unanswered; 0: all
// loops run. A pause of the whole process does not count.
func (t *Transport) LoopSilence() time.Duration {
	if t.plain == nil {
		return 0
	}
	missed := int64(0)
	for _, l := range *t.plain.loops.Load() {
		missed = max(missed, l.missedBeats.Load()-1) // the last one was asked for just now
	}
	return time.Duration(missed) * beatPeriod
}

// Connections is how many clients are connected.
func (t *Transport) Connections() int { return int(t.conns.count.Load()) }

// UnfinishedBytes returns the bytes of incomplete frames that all connections hold. Frames of a few
// KiB are not counted.
func (t *Transport) UnfinishedBytes() int64 { return t.unfinished.Load() }

// UnreadBytes returns the unread bytes of all connections that have many.
func (t *Transport) UnreadBytes() int64 { return t.unread.Load() }

// SoftBound is the bytes that may wait for one connection before droppable frames are not taken. A
// thousand readers that stopped reading may not each make the server hold the most that one may:
// the unread bytes of all of them are bounded too.
func (t *Transport) SoftBound() int {
	if t.unread.Load() > int64(t.cfg.Limits.OutTotal) {
		return MinOutSoft
	}
	return t.cfg.Limits.OutSoft
}

// Flush has all appended bytes of all connections written. It is called once after everything that
// belongs together.
func (t *Transport) Flush() {
	if t.plain != nil {
		t.plain.wake()
	}
	if t.tls != nil {
		t.tls.wake()
	}
}

// FlushDirect is Flush for a goroutine that has answered commands requests and may write itself.
func (t *Transport) FlushDirect(w *DirectWriter, commands int) {
	if t.plain != nil {
		t.plain.writeDirect(w, commands)
	}
	t.Flush()
}

// logNoRing logs once why answers take more system calls than they could.
func (t *Transport) logNoRing(err error) {
	t.ringless.Do(func() {
		t.cfg.Log.Info("io_uring is not available, so answers to many connections take a system call each; "+
			"server/deploy/SIZING.md says how to allow it", "error", err)
	})
}

// FlushSoon is Flush for callbacks that come many in a row. A goroutine flushes once for all
// callbacks before it ran.
func (t *Transport) FlushSoon() {
	wake(t.flushC)
}

// wake sends to a channel of capacity 1 unless something waits in it.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (t *Transport) flushLoop() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.flushC:
			t.Flush()
		}
	}
}

// limitReached returns why one more connection is too many, or "".
func (t *Transport) limitReached(remote string) string {
	l := &t.cfg.Limits
	if t.Connections() >= l.Connections {
		return fmt.Sprintf("server has %d connections, its limit of connections; connect elsewhere, or later",
			l.Connections)
	}
	if t.addresses.full(remote) {
		return fmt.Sprintf(
			"server has %d connections from this address, or its IPv6 network of 64 bits, its limit for one address; share connections, or connect elsewhere",
			l.ConnectionsPerAddress)
	}
	return ""
}

// limitsNear reports whether limitReached may find a limit among the next more connections.
func (t *Transport) limitsNear(more int) bool {
	return t.addresses.limit > 0 || t.Connections()+more >= t.cfg.Limits.Connections
}

// guard, deferred, contains a panic in a callback, and calls then, if given, to close what it hit.
func (t *Transport) guard(where string, then func()) {
	p := recover()
	if p == nil {
		return
	}
	t.cfg.OnPanic(where, p)
	if then != nil {
		then()
	}
}

// Client handles the frames of one connection.
type Client interface {
	// Frame serves a frame. Its body is valid until the read cycle ends. The reading goroutine
	// calls it.
	Frame(p Cycle, h protocol.Header)
	// KeepsAlive reports whether something ends when the client is not heard for some seconds. The
	// pauses of such a connection are short. The reading goroutine calls it.
	KeepsAlive() bool
	// Room is called when there is room again for the frames held back before Conn.AwaitRoom. Any
	// goroutine that has written may call it.
	Room()
	// Closed is called once, after the last frame. heard is the clock's time of the last received
	// bytes.
	Closed(heard time.Duration)
}

// Cycle is the state of one reading goroutine, which reads its connections one after another: the
// work that the frames of one read share.
type Cycle interface {
	// Begin begins the handling of a connection's received bytes.
	Begin(now time.Duration)
	// End carries out the work that the frames since Begin have gathered. It returns how many bytes
	// of answers appended to the connection may wait for Conn.WriteDeferred; 0: write them now.
	End(c Client) (deferrable int)
	// Reset drops work left half done by a panic.
	Reset()
}

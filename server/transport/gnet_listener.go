package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	maxLoops     = 64
	maxEnrolling = 8  // connections on their way to the loops at once
	spreadFirst  = 64 // connections for each of several loops that are handed over one by one
	beatPeriod   = time.Second
	beatsRested  = 4  // beats in a row that an event loop is spared while it has no traffic
	beatsMissed  = 25 // a loop that misses this many beats in a row is dead; a pause of the process is one beat
)

// gnetListener lets clients in over plain TCP, on gnet's event loops.
//
// It accepts by itself and hands connections to the loops: gnet's own acceptor ends the whole
// engine when it runs out of open files, and cannot stop accepting while connections live on. So an
// error of accept is waited out, surplus connections are closed before a loop ever sees them, and a
// graceful stop closes the listener first.
type gnetListener struct {
	gnet.BuiltinEventEngine
	t         *Transport
	listener  net.Listener
	client    *gnet.Client
	stuck     chan struct{}
	accepting sync.WaitGroup
	enrolling chan struct{} // has an item for each connection on its way to a loop
	spread    int           // with fewer connections, one at a time is on its way
	started   bool

	loops atomic.Pointer[[]*eventLoop] // grows while the first connections come
	mu    sync.Mutex
}

func newGnetListener(t *Transport, l net.Listener) *gnetListener {
	d := &gnetListener{t: t, listener: l, stuck: make(chan struct{}, 1),
		enrolling: make(chan struct{}, maxEnrolling)}
	d.loops.Store(new([]*eventLoop))
	return d
}

// loopCount is how many event loops run on this many of the runtime's processors. A loop that waits
// for events does so in a system call, which keeps a processor until the runtime's monitor thread
// takes it away, up to 10 ms later. So some stay free for the shards, whose next step would wait
// that long: one, and a quarter of the others. One loop on two cores answers as many requests as
// two do (bench/LIMITS.md).
func loopCount(processors int) int {
	free := 1 + (processors-1)/4
	return min(max(1, processors-free), maxLoops)
}

// open starts the loops and begins to accept.
func (g *gnetListener) open() error {
	var err error
	loops := loopCount(runtime.GOMAXPROCS(0))
	if loops > 1 {
		g.spread = loops * spreadFirst
	}
	g.client, err = gnet.NewClient(g,
		gnet.WithNumEventLoop(loops),
		gnet.WithLogger(gnetLogger{g.t.cfg.Log}),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // it sets nothing then: the listener has set TCP_NODELAY
	)
	if err == nil {
		err = g.client.Start()
	}
	if err != nil {
		return fmt.Errorf("start event loops: %w", err)
	}
	g.started = true
	g.t.running.Go(g.watchLoops)
	g.accepting.Go(func() { g.t.acceptFrom(g.listener, g.admit) })
	return nil
}

// stopAccepting closes the listener; connections live on.
func (g *gnetListener) stopAccepting() {
	_ = g.listener.Close()
	g.accepting.Wait()
}

// close ends the loops and every connection on them.
func (g *gnetListener) close() {
	g.stopAccepting()
	if g.started {
		g.started = false
		_ = g.client.Stop()
	}
}

// admit has a connection handed to a loop, or turns it away. It does not wait for the loop, so that
// one wake-up of the loop does for several connections: at most maxEnrolling are on their way. Only
// one is while a limit is near, so that limits are exact, and while there are few connections: gnet
// chooses the loop with the fewest open ones, which would be the same for all on their way.
func (g *gnetListener) admit(nc *net.TCPConn) {
	if g.t.limitsNear(len(g.enrolling)) || g.t.Connections() < g.spread {
		g.awaitEnrolled()
	}
	m := g.t.Metrics
	remote := nc.RemoteAddr().String()
	if why := g.t.limitReached(remote); why != "" {
		m.Rejected.Inc()
		// The buffer of a new connection takes this without blocking.
		_, _ = nc.Write(protocol.AppendFrame(nil, protocol.KindGoodbye, 0, 0,
			&protocol.Goodbye{Status: protocol.StatusOverloaded, Message: why}))
		_ = nc.Close()
		return
	}
	k := &gnetSocket{}
	k.remote = remote
	// gnet puts the bytes of a zone's name into a pool of its own when the connection closes; here
	// they are shared with the whole process.
	for _, a := range []net.Addr{nc.RemoteAddr(), nc.LocalAddr()} {
		if t, ok := a.(*net.TCPAddr); ok {
			t.Zone = ""
		}
	}
	g.enrolling <- struct{}{}
	g.accepting.Go(func() {
		g.enroll(nc, k)
		<-g.enrolling
	})
}

// awaitEnrolled waits until no connection is on its way to a loop. The goroutine that accepts calls
// it.
func (g *gnetListener) awaitEnrolled() {
	for range maxEnrolling {
		g.enrolling <- struct{}{}
	}
	for range maxEnrolling {
		<-g.enrolling
	}
}

// enroll hands a connection to a loop, and waits until it is open there.
func (g *gnetListener) enroll(nc *net.TCPConn, k *gnetSocket) {
	m := g.t.Metrics
	if _, err := g.client.EnrollContext(nc, k); err != nil {
		// gnet has a duplicate of the descriptor made first, and that may fail for want of open
		// files.
		m.AcceptErrors.Inc()
		g.t.cfg.Log.Debug("connection not accepted", "remote", k.remote, "error", err)
		return
	}
	m.Accepted.Inc()
}

// loopOf finds the loop of a connection that was just opened on it.
func (g *gnetListener) loopOf(el gnet.EventLoop) *eventLoop {
	for _, l := range *g.loops.Load() {
		if l.el == el {
			return l
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &eventLoop{listener: g, fanOutPace: g.t.cfg.FanOut.Writer(), el: el, cycle: g.t.cfg.NewCycle(),
		stuck:      make(map[*gnetSocket]struct{}),
		fanOutWake: make(chan struct{}, 1)}
	g.t.running.Go(func() { l.runFanOut(g.t.ctx) })
	list := append([]*eventLoop(nil), *g.loops.Load()...)
	list = append(list, l)
	g.loops.Store(&list)
	return l
}

// wake wakes every loop that has something to write.
func (g *gnetListener) wake() {
	for _, l := range *g.loops.Load() {
		if l.shared.Load() != 0 {
			l.shared.Store(0)
		}
		l.wake()
	}
}

// DirectWriter is the state of a goroutine that writes to sockets by itself.
type DirectWriter struct {
	list  []*gnetSocket
	group groupWriter
}

// writeDirect writes to sockets on the caller's goroutine, which then needs no loop. It starts with
// the sockets marked last: a request's effects on others, such as the grant of returned units, are
// marked after its reply, and more waits for them.
func (g *gnetListener) writeDirect(h *DirectWriter, commands int) {
	list := h.list[:0]
	for _, l := range *g.loops.Load() {
		list = l.takeDirty(list, commands)
	}
	slices.Reverse(list)
	h.group.write(list, func(k *gnetSocket) { k.loop.markDirty(k, false) })
	clear(list)
	h.list = list
}

// OnOpen is called by gnet on the connection's loop, like OnTraffic and OnClose.
func (g *gnetListener) OnOpen(gc gnet.Conn) (out []byte, action gnet.Action) {
	defer g.t.guard("open", func() { action = gnet.Close })
	k := gc.Context().(*gnetSocket)
	k.writing.Lock()
	k.loop, k.gc, k.fd = g.loopOf(gc.EventLoop()), gc, gc.Fd()
	k.writing.Unlock()
	if !k.open(g.t, k, k.remote) {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

// OnTraffic reads the received bytes. Bytes that cannot complete a frame stay in gnet's buffer,
// untouched and uncopied.
func (g *gnetListener) OnTraffic(gc gnet.Conn) (action gnet.Action) {
	k, ok := gc.Context().(*gnetSocket)
	if !ok || k.gc == nil {
		return gnet.None
	}
	defer g.t.guard("traffic", func() {
		k.loop.cycle.Reset()
		action = gnet.Close
	})
	if n := gc.InboundBuffered(); n < k.need {
		if !k.partialFrame(n) {
			_, _ = gc.Discard(n)
			k.flush()
		}
		return gnet.None
	}
	k.loop.noteTraffic()
	if k.bufferPaused(gc.InboundBuffered()) {
		return gnet.None
	}
	buf, err := gc.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	k.out.holdNotify()
	used := k.read(k.loop.cycle, buf)
	if used > 0 { // gnet takes 0 for everything
		_, _ = gc.Discard(used)
		g.t.Metrics.BytesIn.Add(used)
	}
	if !k.deferWrite() {
		k.flush()
	}
	g.t.Flush()
	return gnet.None
}

// OnClose forgets the connection.
func (g *gnetListener) OnClose(gc gnet.Conn, _ error) (action gnet.Action) {
	defer g.t.guard("close", nil)
	k, ok := gc.Context().(*gnetSocket)
	if !ok || k.gc == nil {
		return gnet.None
	}
	k.detachConn()
	delete(k.loop.stuck, k)
	k.closed()
	return gnet.None
}

// checkStuckSoon has the loops look at sockets that the kernel took not everything of.
func (g *gnetListener) checkStuckSoon() {
	wake(g.stuck)
}

// watchLoops has the loops look at stuck sockets while there are any, and checks their beats. gnet
// does not report a loop that ends by an error.
func (g *gnetListener) watchLoops() {
	beats := time.NewTimer(beat.Next(beatPeriod))
	defer beats.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-g.t.ctx.Done():
			return
		case <-g.stuck:
			if again == nil {
				again = time.After(stuckPeriod)
			}
		case <-again:
			again = nil
			for _, l := range *g.loops.Load() {
				_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
					if l.checkStuck() {
						g.checkStuckSoon()
					}
					return nil
				}))
			}
		case <-beats.C:
			beats.Reset(beat.Next(beatPeriod))
			for i, l := range *g.loops.Load() {
				if l.rests() {
					continue
				}
				if l.missedBeats.Add(1) > beatsMissed {
					g.t.cfg.Fail(fmt.Errorf("event loop %d did nothing for %v", i, beatsMissed*beatPeriod))
				}
				asked := time.Now()
				_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
					g.t.Metrics.loopLag.UpdateDuration(asked)
					l.missedBeats.Store(0)
					return nil
				}))
			}
		}
	}
}

// gnetLogger takes gnet's lines, two levels lower: the listener logs the important ones itself.
type gnetLogger struct{ log *slog.Logger }

var _ logging.Logger = gnetLogger{}

func (g gnetLogger) line(format string, args []any) {
	g.log.Debug("event loop", "line", fmt.Sprintf(format, args...))
}

func (g gnetLogger) Debugf(format string, args ...any) {}
func (g gnetLogger) Infof(format string, args ...any)  { g.line(format, args) }
func (g gnetLogger) Warnf(format string, args ...any)  { g.line(format, args) }
func (g gnetLogger) Errorf(format string, args ...any) {
	g.log.Warn("event loop", "line", fmt.Sprintf(format, args...))
}
func (g gnetLogger) Fatalf(format string, args ...any) { g.Errorf(format, args...) }

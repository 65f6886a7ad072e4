package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/statemachine"
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// MessageSize is the length of what the echoes answer, in bytes.
const MessageSize = 64

// LockByte is the place, in a message, of what it does with the lock of its group.
const LockByte = 8

// What a message does with the lock of its group. Any other is answered, and that is all.
const (
	Acquire = 1 // answered when its connection has the lock; those who wait get it in order
	Release = 2 // answered at once
)

// LoggedEcho is an echo over raft groups.
type LoggedEcho struct {
	Listen  string   // where messages come; empty: none do, and the replica follows
	Raft    string   // this replica's address
	Members []string // addresses of all replicas, in the same order everywhere; empty: this is the only one
	Dir     string   // empty, on a real disk
	Groups  int      // 0: one
}

// Serve answers every message of MessageSize bytes with itself, once it is in a raft log on the
// disks of most members, until ctx ends. It is a server with nothing but what is given: the event
// loop, the engine, and the append-only log.
//
// Messages go to the groups in turn, by the number that they begin with. Each group has one batch
// in flight. What arrives meanwhile is the next one. Answers are written where the batch is
// applied.
//
// Each group has one lock. Acquires that would only join its queue go with the next message of
// another kind, so a hand-off takes one batch. A holder that goes away without a release keeps the
// lock for good.
func (c LoggedEcho) Serve(ctx context.Context) error {
	e := &loggedEcho{}
	var machines []statemachine.IConcurrentStateMachine
	for range max(1, c.Groups) {
		g := &echoGroup{echo: e}
		e.groups, machines = append(e.groups, g), append(machines, g)
	}
	nh, err := startGroups(config.NodeHostConfig{
		NodeHostDir: filepath.Join(c.Dir, "raft"), RaftAddress: c.Raft,
		Expert: config.ExpertConfig{LogDBFactory: walFactory{c.Dir}},
	}, c.Members, machines...)
	if err != nil {
		return err
	}
	defer nh.Close()
	e.host = nh
	if c.Listen == "" {
		<-ctx.Done()
		return nil
	}
	for i, g := range e.groups {
		g.session = nh.GetNoOPSession(shard + uint64(i))
		if _, err := proposeFirst(ctx, nh, g.session); err != nil {
			return err
		}
	}
	return e.serve(ctx, e, c.Listen, loopsBesideEngine(runtime.GOMAXPROCS(0)))
}

// loopsBesideEngine is as many event loops as signalbox has on this many processors: loops that
// wait keep theirs, and the engine needs some too.
func loopsBesideEngine(processors int) int {
	return max(1, processors-1-(processors-1)/4)
}

type loggedEcho struct {
	eventLoops
	host   *dragonboat.NodeHost
	mu     sync.Mutex // of what the groups have
	groups []*echoGroup
}

// echoGroup is a raft group, and its state machine.
type echoGroup struct {
	noopStateMachine
	echo    *loggedEcho
	session *client.Session

	waiting  []request // not proposed yet
	proposed []request // of the batch in flight; empty: none is
	spare    []request
	batch    []byte // the engine copies it

	locked bool // the lock is held, as of the last batch

	// The lock, and answers to a batch, which only Update touches.
	held    bool
	queue   []request // who waits for the lock
	answers []request
}

// request is messages of one connection, one behind the other.
type request struct {
	conn *loggedConn
	data []byte
}

// loggedConn is a connection. Its lock keeps the descriptor open during a write.
type loggedConn struct {
	ready []*echoGroup // of a read, that have a batch to propose

	mu  sync.Mutex
	fd  int // -1: closed
	out []byte
}

// OnOpen implements gnet.EventHandler.
func (e *loggedEcho) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&loggedConn{fd: c.Fd()})
	return nil, gnet.None
}

// OnClose implements gnet.EventHandler.
func (e *loggedEcho) OnClose(c gnet.Conn, _ error) gnet.Action {
	conn := c.Context().(*loggedConn)
	conn.mu.Lock()
	conn.fd = -1
	conn.mu.Unlock()
	return gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (e *loggedEcho) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	conn := c.Context().(*loggedConn)
	whole := len(b) / MessageSize * MessageSize
	if whole == 0 { // gnet takes 0 for everything
		return gnet.None
	}
	conn.ready = conn.ready[:0]
	e.mu.Lock()
	for rest := b[:whole]; len(rest) > 0; {
		g, n := e.group(rest), MessageSize
		for n < len(rest) && e.group(rest[n:]) == g {
			n += MessageSize
		}
		g.add(conn, rest[:n])
		if !slices.Contains(conn.ready, g) {
			conn.ready = append(conn.ready, g)
		}
		rest = rest[n:]
	}
	conn.ready = slices.DeleteFunc(conn.ready, func(g *echoGroup) bool { return !g.next() })
	e.mu.Unlock()
	if _, err := c.Discard(whole); err != nil {
		return gnet.Close
	}
	for _, g := range conn.ready {
		g.propose()
	}
	return gnet.None
}

// group of a message.
func (e *loggedEcho) group(message []byte) *echoGroup {
	return e.groups[binary.LittleEndian.Uint64(message)%uint64(len(e.groups))]
}

// add has messages wait. The caller holds the lock.
func (g *echoGroup) add(c *loggedConn, data []byte) {
	n := len(g.waiting)
	if n > 0 && g.waiting[n-1].conn == c {
		g.waiting[n-1].data = append(g.waiting[n-1].data, data...)
		return
	}
	g.waiting = slices.Grow(g.waiting, 1)[:n+1]
	r := &g.waiting[n] // its buffer may have been used before
	r.conn, r.data = c, append(r.data[:0], data...)
}

// next makes a batch to propose, if none is in flight and messages wait. The caller holds the lock.
func (g *echoGroup) next() bool {
	if len(g.proposed) > 0 || len(g.waiting) == 0 || g.locked && onlyAcquires(g.waiting) {
		return false
	}
	g.proposed, g.waiting, g.spare = g.waiting, g.spare[:0], nil
	g.batch = g.batch[:0]
	for _, r := range g.proposed {
		g.batch = append(g.batch, r.data...)
	}
	return true
}

func onlyAcquires(list []request) bool {
	for _, r := range list {
		for m := range slices.Chunk(r.data, MessageSize) {
			if m[LockByte] != Acquire {
				return false
			}
		}
	}
	return true
}

func (g *echoGroup) propose() {
	for {
		_, err := g.echo.host.Propose(g.session, g.batch, time.Minute)
		if err == nil || !errors.Is(err, dragonboat.ErrSystemBusy) {
			return // after another error the engine is closed
		}
		time.Sleep(time.Millisecond)
	}
}

// Update implements statemachine.IConcurrentStateMachine.
func (g *echoGroup) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	e := g.echo
	e.mu.Lock()
	done := g.proposed
	e.mu.Unlock()
	if len(done) == 0 { // the first proposal, or that of another member
		return entries, nil
	}
	answer(g.apply(done))
	e.mu.Lock()
	g.spare, g.proposed, g.locked = done, nil, g.held
	more := g.next()
	e.mu.Unlock()
	if more {
		g.propose()
	}
	return entries, nil
}

// apply gives the answers to a batch. They share its memory.
func (g *echoGroup) apply(done []request) []request {
	g.answers = g.answers[:0]
	for _, r := range done {
		from := 0
		for at := 0; at < len(r.data); at += MessageSize {
			if r.data[at+LockByte] == Acquire && g.held {
				if from < at {
					g.answers = append(g.answers, request{r.conn, r.data[from:at]})
				}
				from = at + MessageSize
				g.queue = append(g.queue, request{r.conn, slices.Clone(r.data[at:from])})
				continue
			}
			switch r.data[at+LockByte] {
			case Acquire:
				g.held = true
			case Release:
				if g.held = len(g.queue) > 0; g.held {
					g.answers = append(g.answers, g.queue[0])
					g.queue = slices.Delete(g.queue, 0, 1)
				}
			}
		}
		if from < len(r.data) {
			g.answers = append(g.answers, request{r.conn, r.data[from:]})
		}
	}
	return g.answers
}

// answer writes to each connection what is for it, at once.
func answer(list []request) {
	for _, r := range list {
		r.conn.mu.Lock()
		r.conn.out = append(r.conn.out, r.data...)
		r.conn.mu.Unlock()
	}
	for _, r := range list {
		r.conn.flush()
	}
}

// flush writes what waits. A client always reads, so a full buffer of the socket is waited for.
func (c *loggedConn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := c.out; len(b) > 0 && c.fd >= 0; {
		n, err := unix.Write(c.fd, b)
		switch {
		case err == nil:
			b = b[n:]
		case errors.Is(err, unix.EAGAIN):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, 1000)
		case !errors.Is(err, unix.EINTR):
			b = nil // the connection is broken
		}
	}
	c.out = c.out[:0]
}

// walFactory opens the append-only log.
type walFactory struct{ dir string }

// Name implements config.LogDBFactory.
func (walFactory) Name() string { return "signalbox-wal" }

// Create implements config.LogDBFactory.
func (f walFactory) Create(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error) {
	dir := filepath.Join(f.dir, "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	return wal.Open(wal.Config{Dir: dir})
}

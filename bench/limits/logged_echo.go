package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/statemachine"
	"github.com/panjf2000/gnet/v2"
	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// MessageSize is the length of what the echoes answer, in bytes.
const MessageSize = 64

// ServeLoggedEcho answers every message of MessageSize bytes with itself on addr, once it is in a
// raft log on the disk, until ctx ends. It is a server with nothing but what is given: the event
// loop, the engine, and the append-only log.
//
// One batch is in flight. What arrives meanwhile is the next one. Answers are written where the
// batch is applied.
func ServeLoggedEcho(ctx context.Context, addr, raft, dir string) error {
	e := &loggedEcho{}
	nh, err := startGroup(config.NodeHostConfig{
		NodeHostDir: filepath.Join(dir, "raft"), RaftAddress: raft,
		Expert: config.ExpertConfig{LogDBFactory: walFactory{dir}},
	}, e)
	if err != nil {
		return err
	}
	defer nh.Close()
	e.host, e.session = nh, nh.GetNoOPSession(shard)
	if _, err := proposeFirst(ctx, nh, e.session); err != nil {
		return err
	}
	return e.serve(ctx, e, addr, loopsBesideEngine(runtime.GOMAXPROCS(0)))
}

// loopsBesideEngine is as many event loops as signalbox has on this many processors: loops that
// wait keep theirs, and the engine needs some too.
func loopsBesideEngine(processors int) int {
	return max(1, processors-1-(processors-1)/4)
}

type loggedEcho struct {
	eventLoops
	host    *dragonboat.NodeHost
	session *client.Session

	mu       sync.Mutex
	waiting  []request // not proposed yet
	proposed []request // of the batch in flight; nil: none is
	spare    []request
}

// request is messages of one connection that were read at once.
type request struct {
	conn *loggedConn
	data []byte
}

// loggedConn is a connection. Its lock keeps the descriptor open during a write.
type loggedConn struct {
	mu sync.Mutex
	fd int // -1: closed
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
	whole := len(b) / MessageSize * MessageSize
	data := append([]byte(nil), b[:whole]...)
	if _, err := c.Discard(whole); err != nil {
		return gnet.Close
	}
	if whole == 0 {
		return gnet.None
	}
	e.mu.Lock()
	e.waiting = append(e.waiting, request{c.Context().(*loggedConn), data})
	batch := e.next()
	e.mu.Unlock()
	e.propose(batch)
	return gnet.None
}

// next takes a batch to propose, if none is in flight. The caller holds mu.
func (e *loggedEcho) next() []byte {
	if len(e.proposed) > 0 || len(e.waiting) == 0 {
		return nil
	}
	e.proposed, e.waiting, e.spare = e.waiting, e.spare[:0], nil
	var batch []byte
	for _, r := range e.proposed {
		batch = append(batch, r.data...)
	}
	return batch
}

func (e *loggedEcho) propose(batch []byte) {
	for len(batch) > 0 {
		_, err := e.host.Propose(e.session, batch, time.Minute)
		if err == nil || !errors.Is(err, dragonboat.ErrSystemBusy) {
			return // after another error the engine is closed
		}
		time.Sleep(time.Millisecond)
	}
}

// Update implements statemachine.IConcurrentStateMachine.
func (e *loggedEcho) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	e.mu.Lock()
	done := e.proposed
	e.mu.Unlock()
	answer(done)
	e.mu.Lock()
	if len(done) > 0 { // the first proposal has none
		e.spare, e.proposed = done, nil
	}
	batch := e.next()
	e.mu.Unlock()
	e.propose(batch)
	return entries, nil
}

// answer writes back what was read, with one write for each connection.
func answer(list []request) {
	for i := range list {
		r := &list[i]
		if r.conn == nil {
			continue
		}
		data := r.data
		for j := i + 1; j < len(list); j++ {
			if list[j].conn == r.conn {
				data = append(data, list[j].data...)
				list[j].conn = nil
			}
		}
		r.conn.mu.Lock()
		if r.conn.fd >= 0 {
			// The answers of one batch fit any buffer of a socket whose client reads.
			_, _ = syscall.Write(r.conn.fd, data)
		}
		r.conn.mu.Unlock()
	}
	clear(list)
}

// Lookup implements statemachine.IConcurrentStateMachine, like the methods below.
func (e *loggedEcho) Lookup(any) (any, error)       { return nil, nil }
func (e *loggedEcho) PrepareSnapshot() (any, error) { return nil, nil }
func (e *loggedEcho) Close() error                  { return nil }
func (e *loggedEcho) RecoverFromSnapshot(io.Reader, []statemachine.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (e *loggedEcho) SaveSnapshot(any, io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}

// walFactory opens the append-only log.
type walFactory struct{ dir string }

// Name implements config.LogDBFactory.
func (walFactory) Name() string { return "sharded-pebble" }

// Create implements config.LogDBFactory.
func (f walFactory) Create(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error) {
	dir := filepath.Join(f.dir, "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	return wal.Open(wal.Config{Dir: dir})
}

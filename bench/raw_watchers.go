package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// rawWatchers are thousands of watchers of one service, each with a connection of its own, in a
// process that does nothing else. They speak the protocol without the SDK: a copy of the list for
// each would not fit into one machine. Like the SDK, each goes to another instance at random when
// its own is lost, and says there what it knows.
type rawWatchers struct {
	Endpoints []string
	Watch     protocol.Watch // Known and Epoch are each watcher's own
	Bucket    uint64
	Count     int

	group    *WatcherGroup
	expected []byte // how a page of the stream begins
	dials    chan struct{}
	known    frameCache
	poller   *framePoller
}

const (
	rawStream  = 2 // the id of each connection's stream
	rawDials   = 200
	rawTimeout = 10 * time.Second
	rawPing    = 15 * time.Second // as the SDK
)

// watchersCommand runs watchers until its input ends.
func watchersCommand(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("watchers is for the program itself")
	}
	g := new(rawWatchers)
	if err = json.Unmarshal([]byte(args[0]), g); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	g.expected = protocol.BeginFrame(nil, protocol.KindSnapshot, rawStream, g.Watch.Shard)[4:]
	g.dials = make(chan struct{}, rawDials)
	g.group = NewWatcherGroup(len(g.Endpoints))
	if g.poller, err = newFramePoller(protocol.AppendFrame(nil, protocol.KindPing, 1<<40, 0, nil)); err != nil {
		return err
	}
	for i := range g.Count {
		all.Go(func() {
			w := &rawWatcher{Watcher: Watcher{WatcherGroup: g.group}, g: g}
			w.Run(ctx, i, len(g.Endpoints), w.watch)
		})
	}
	return g.group.Answer(in, out)
}

// rawWatcher is one of them.
type rawWatcher struct {
	Watcher
	g            *rawWatchers
	known, epoch uint64
	partial      bool // the snapshot that comes is not whole yet
}

// watch follows the service on a connection to one instance until that ends.
func (w *rawWatcher) watch(ctx context.Context, server int) (followed bool, err error) {
	g := w.g
	select {
	case g.dials <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	conn, came, err := w.open(ctx, server)
	<-g.dials
	if err != nil {
		return false, err
	}
	end := w.Connected(server)
	defer func() { followed = end() }()
	defer conn.Close()
	defer func() {
		if w.partial { // of a snapshot that did not come whole, nothing is known
			w.partial, w.known, w.epoch = false, 0, 0
		}
	}()
	return false, g.poller.follow(ctx, conn, came, w.take)
}

// open connects, says hello, and asks for the stream. came is what has come since.
func (w *rawWatcher) open(ctx context.Context, server int) (conn net.Conn, came []byte, err error) {
	d := net.Dialer{Timeout: rawTimeout}
	conn, err = d.DialContext(ctx, "tcp", w.g.Endpoints[server])
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(rawTimeout))
	b := protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
		&protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "raw watcher"})
	m := w.g.Watch
	m.Known, m.Epoch = w.known, w.epoch
	b = protocol.AppendFrame(b, protocol.KindWatch, rawStream, w.g.Bucket, &m)
	if _, err = conn.Write(b); err == nil {
		came = make([]byte, 4<<10)
		n := 0
		n, err = conn.Read(came) // of the answer to the hello
		came = came[:n]
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, came, nil
}

func (w *rawWatcher) take(frame []byte) error {
	w.Read(4 + len(frame))
	if rest, index, ok := w.g.page(frame); ok {
		return w.page(w.g.known.find(rest, frame), index)
	}
	f := w.g.known.find(frame, frame)
	switch {
	case f.err != nil:
		return f.err
	case f.kind == protocol.KindDelta:
		w.delta(f)
	case f.kind == protocol.KindStreamCut, f.kind == protocol.KindGoodbye,
		f.kind == protocol.KindWatch|protocol.KindReply && f.status != protocol.StatusOK:
		return fmt.Errorf("%v, status %v", f.kind, f.status)
	}
	return nil
}

// page takes a page apart: what is the same on all connections, and its index.
func (g *rawWatchers) page(frame []byte) (rest []byte, index uint64, ok bool) {
	b, ok := bytes.CutPrefix(frame, g.expected)
	if !ok || len(b) < 10 {
		return nil, 0, false
	}
	switch b = b[1:]; b[0] { // behind the array's head
	case 0xcc:
		return b[2:], uint64(b[1]), true
	case 0xcd:
		return b[3:], uint64(binary.BigEndian.Uint16(b[1:])), true
	case 0xce:
		return b[5:], uint64(binary.BigEndian.Uint32(b[1:])), true
	case 0xcf:
		return b[9:], binary.BigEndian.Uint64(b[1:]), true
	}
	return b[1:], uint64(b[0]), b[0] < 0x80
}

func (w *rawWatcher) page(f *seenFrame, index uint64) error {
	if f.err != nil {
		return f.err
	}
	if f.first {
		w.epoch, w.known, w.partial = f.epoch, index, true
	}
	if !f.last {
		return nil
	}
	w.partial = false
	w.known = max(w.known, f.index)
	w.Follows(f.resumed)
	return nil
}

func (w *rawWatcher) delta(f *seenFrame) {
	w.known = max(w.known, f.index)
	w.Changed(f.changes)
}

// seenFrame is what a frame says.
type seenFrame struct {
	bytes                []byte
	kind                 protocol.Kind
	status               protocol.Status
	first, last, resumed bool
	index, epoch         uint64
	changes              []int64 // when they were made, ns since 1970
	err                  error
}

// frameCache has the newest frames: thousands of connections get the same ones, which are decoded
// once.
type frameCache struct {
	mu   sync.RWMutex
	list [32]*seenFrame
	next int
}

// find decodes a frame, unless one with the same bytes was decoded before.
func (c *frameCache) find(same, frame []byte) *seenFrame {
	c.mu.RLock()
	for _, f := range c.list {
		if f != nil && bytes.Equal(f.bytes, same) {
			c.mu.RUnlock()
			return f
		}
	}
	c.mu.RUnlock()
	f := decodeSeen(frame)
	f.bytes = bytes.Clone(same)
	c.mu.Lock()
	c.list[c.next%len(c.list)] = f
	c.next++
	c.mu.Unlock()
	return f
}

func decodeSeen(frame []byte) *seenFrame {
	h, err := protocol.ParseFrame(frame)
	f := &seenFrame{kind: h.Kind, status: protocol.Status(h.Arg), err: err}
	if err != nil {
		return f
	}
	switch h.Kind {
	case protocol.KindSnapshot:
		var m protocol.Snapshot
		f.err = m.DecodeBody(h.Body)
		f.first, f.last, f.resumed, f.epoch = m.First, m.Last, m.Resumed, m.Epoch
		if m.Resumed {
			f.index = m.Index
		}
	case protocol.KindDelta:
		var m protocol.Delta
		f.err = m.DecodeBody(h.Body)
		f.index = m.Index
		for i := range m.Changes {
			if at, ok := MadeAt(m.Changes[i].Owner.Data); ok {
				f.changes = append(f.changes, at)
			}
		}
	}
	return f
}

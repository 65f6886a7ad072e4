package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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

	expected []byte // how a page of the stream begins
	dials    chan struct{}
	frames   frameCache
	since    atomic.Int64 // changes made before this time, in ns since 1970, do not count

	live, lost, snapshots, resumed, bytes, mostFrames, lastLive atomic.Int64
	at                                                          []atomic.Int64 // live ones, by instance

	mu     sync.Mutex
	delays *hdrhistogram.Histogram // us
	failed string                  // the newest error
}

// rawStats is what the watchers of a process have seen: since the last such question, apart from
// Live, LastLive and At.
type rawStats struct {
	Live, Lost, Snapshots, Resumed, Bytes int64
	MostFrames                            int64   // deltas of one watcher in one second, at most
	LastLive                              int64   // when one became live last, ns since 1970
	At                                    []int64 // live ones, by instance
	Delays                                *hdrhistogram.Snapshot
	Failed                                string
}

const (
	rawStream  = 2 // the id of each connection's stream
	rawDials   = 200
	rawTimeout = 10 * time.Second
	rawPing    = 15 * time.Second // as the SDK
)

// rawDelays is a histogram of delays up to ten minutes, in us.
func rawDelays() *hdrhistogram.Histogram { return hdrhistogram.New(1, 600e6, 2) }

// watchersCommand runs watchers until its input ends. Each line of it is a question, whose answer is
// a line: stats, or "reset", which forgets what was before.
func watchersCommand(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("watchers is for the program itself")
	}
	g := new(rawWatchers)
	if err := json.Unmarshal([]byte(args[0]), g); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	g.expected = protocol.BeginFrame(nil, protocol.KindSnapshot, rawStream, g.Watch.Shard)[4:]
	g.dials = make(chan struct{}, rawDials)
	g.at = make([]atomic.Int64, len(g.Endpoints))
	g.delays = rawDelays()
	for i := range g.Count {
		all.Go(func() { (&rawWatcher{g: g, instance: i % len(g.Endpoints)}).run(ctx) })
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "reset" {
			g.since.Store(time.Now().UnixNano())
			g.stats()
		}
		if err := json.NewEncoder(out).Encode(g.stats()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (g *rawWatchers) stats() rawStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := rawStats{
		Live: g.live.Load(), LastLive: g.lastLive.Load(), Lost: g.lost.Swap(0), Snapshots: g.snapshots.Swap(0),
		Resumed: g.resumed.Swap(0), Bytes: g.bytes.Swap(0), MostFrames: g.mostFrames.Swap(0),
		Delays: g.delays.Export(), Failed: g.failed,
	}
	for i := range g.at {
		s.At = append(s.At, g.at[i].Load())
	}
	g.delays, g.failed = rawDelays(), ""
	return s
}

// rawWatcher is one of them.
type rawWatcher struct {
	g            *rawWatchers
	instance     int
	known, epoch uint64
	live         bool
	partial      bool  // the snapshot that comes is not whole yet
	second       int64 // of the frames that are counted
	frames       int64
}

func (w *rawWatcher) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		lived, err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		w.g.mu.Lock()
		w.g.failed = err.Error()
		w.g.mu.Unlock()
		if n := len(w.g.Endpoints); n > 1 {
			w.instance = (w.instance + 1 + rand.IntN(n-1)) % n
		}
		if lived {
			failures = 0
		}
		_ = pause(ctx, time.Duration(rand.Int64N(int64(50*time.Millisecond<<min(failures, 5))))) // as the SDK
	}
}

// watch follows the service on one connection until that ends.
func (w *rawWatcher) watch(ctx context.Context) (lived bool, err error) {
	g := w.g
	select {
	case g.dials <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	conn, in, err := w.open(ctx)
	<-g.dials
	if err != nil {
		return false, err
	}
	at := &g.at[w.instance]
	at.Add(1)
	defer at.Add(-1)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var ended atomic.Bool
	defer ended.Store(true)
	pingLater(conn, &ended, rand.N(rawPing))
	defer func() {
		lived = lived || w.live
		if w.live {
			w.live = false
			g.live.Add(-1)
			g.lost.Add(1)
		}
		if w.partial { // of a snapshot that did not come whole, nothing is known
			w.partial, w.known, w.epoch = false, 0, 0
		}
	}()
	for {
		if err := w.frame(in); err != nil {
			return lived, err
		}
	}
}

// pingLater keeps a connection that sends nothing else.
func pingLater(conn net.Conn, ended *atomic.Bool, d time.Duration) {
	time.AfterFunc(d, func() {
		_, err := conn.Write(protocol.AppendFrame(nil, protocol.KindPing, 1<<40, 0, nil))
		if err == nil && !ended.Load() {
			pingLater(conn, ended, rawPing)
		}
	})
}

// open connects, says hello, and asks for the stream.
func (w *rawWatcher) open(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	d := net.Dialer{Timeout: rawTimeout}
	conn, err := d.DialContext(ctx, "tcp", w.g.Endpoints[w.instance])
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(rawTimeout))
	b := protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
		&protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "raw watcher"})
	m := w.g.Watch
	m.Known, m.Epoch = w.known, w.epoch
	b = protocol.AppendFrame(b, protocol.KindWatch, rawStream, w.g.Bucket, &m)
	in := bufio.NewReader(conn)
	if _, err = conn.Write(b); err == nil {
		_, err = in.Peek(1) // the answer to the hello
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, in, nil
}

var rawBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 160<<10); return &b }}

// frame reads a frame and takes it in.
func (w *rawWatcher) frame(in *bufio.Reader) error {
	head, err := in.Peek(4)
	if err != nil {
		return err
	}
	size := 4 + int(binary.BigEndian.Uint32(head))
	w.g.bytes.Add(int64(size))
	if size <= in.Size() {
		b, err := in.Peek(size)
		if err == nil {
			err = w.take(b[4:])
			_, _ = in.Discard(size)
		}
		return err
	}
	p := rawBuffers.Get().(*[]byte)
	defer rawBuffers.Put(p)
	b := append((*p)[:0], make([]byte, size)...)
	*p = b
	if _, err := io.ReadFull(in, b); err != nil {
		return err
	}
	return w.take(b[4:])
}

func (w *rawWatcher) take(frame []byte) error {
	if rest, index, ok := w.g.page(frame); ok {
		return w.page(w.g.frames.find(rest, frame), index)
	}
	f := w.g.frames.find(frame, frame)
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
	w.g.snapshots.Add(1)
	if f.resumed {
		w.g.resumed.Add(1)
	}
	if !w.live {
		w.live = true
		w.g.live.Add(1)
		now := time.Now().UnixNano()
		for {
			last := w.g.lastLive.Load()
			if last >= now || w.g.lastLive.CompareAndSwap(last, now) {
				break
			}
		}
	}
	return nil
}

func (w *rawWatcher) delta(f *seenFrame) {
	now, g := time.Now(), w.g
	w.known = max(w.known, f.index)
	if s := now.Unix(); s != w.second {
		w.second, w.frames = s, 0
	}
	w.frames++
	for {
		most := g.mostFrames.Load()
		if most >= w.frames || g.mostFrames.CompareAndSwap(most, w.frames) {
			break
		}
	}
	since := g.since.Load()
	for _, at := range f.changes {
		if since > 0 && at >= since && w.live {
			g.mu.Lock()
			_ = g.delays.RecordValue(max(1, (now.UnixNano()-at)/1000))
			g.mu.Unlock()
		}
	}
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
			if at, ok := madeAt(m.Changes[i].Owner.Data); ok {
				f.changes = append(f.changes, at)
			}
		}
	}
	return f
}

// madeAtKey is before the time, in ns since 1970, at which a member's data was made.
const madeAtKey = `"at":"`

func madeAt(data []byte) (int64, bool) {
	_, rest, ok := strings.Cut(string(data), madeAtKey)
	text, _, ended := strings.Cut(rest, `"`)
	at, err := strconv.ParseInt(text, 10, 64)
	return at, ok && ended && err == nil
}

package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	inTests "github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
)

// eventually waits for what comes by itself and sends no event.
var eventually = inTests.True

func TestMain(m *testing.M) {
	if os.Getenv(ownProcessEnv) != "" {
		os.Exit(m.Run()) // a host that cannot go on leaves goroutines behind
	}
	goleak.VerifyTestMain(m) // the engine leaves nothing behind
}

// ownProcessEnv runs a test in a process of its own.
const ownProcessEnv = "SIGNALBOX_TEST_ALONE"

// inOwnProcess runs the calling test again in a process of its own, and reports whether this is that
// process.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcessEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownProcessEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

const (
	testNode    = 1
	testBuckets = 16
	patience    = 60 * time.Second
)

// result is the answer to a request.
type result struct {
	failed bool
	status protocol.Status // of the reply, or of the failure
	index  uint64
	event  shard.Event
	order  int // number of the result among all of the sink
}

// recorder is a sink that keeps everything and lets tests wait for it.
type recorder struct {
	t  testing.TB
	mu sync.Mutex
	c  *sync.Cond

	results  map[Origin][]result
	order    int
	index    uint64
	indexes  []uint64
	digests  map[uint64]uint64 // by index
	epochs   map[uint64]uint64
	leader   uint64
	leading  bool
	changes  []string
	pongs    []uint64
	cuts     map[uint64]string
	events   []shard.Event // of the kinds of sessions and remote sessions
	restored int
	hash     bool   // compute digests
	every    uint64 // after one entry in so many; each walks the whole state
}

func newRecorder(t testing.TB) *recorder {
	r := &recorder{
		t: t, results: make(map[Origin][]result), digests: make(map[uint64]uint64), epochs: make(map[uint64]uint64),
		cuts: make(map[uint64]string), hash: true, every: 1,
	}
	r.c = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) Applied(s *Shard, index uint64, origins []Origin, ev *shard.Events) {
	var digest, epoch uint64
	s.View(func(m *shard.Machine) {
		if r.hash && index%r.every == 0 {
			digest = m.Digest()
		}
		epoch = m.Epoch()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	if index <= r.index {
		r.t.Errorf("entry %d delivered after entry %d", index, r.index)
	}
	r.index = index
	r.indexes = append(r.indexes, index)
	if index%r.every == 0 {
		r.digests[index] = digest
	}
	r.epochs[index] = epoch
	replied := make([]bool, len(origins))
	for _, e := range ev.List {
		if e.Kind != shard.EventReply {
			r.events = append(r.events, e)
			continue
		}
		if origins == nil {
			continue
		}
		replied[e.Command] = true
		r.notify(origins[e.Command], result{status: e.Status, index: index, event: e})
	}
	for i, ok := range replied {
		if !ok && origins[i] != (Origin{}) {
			r.t.Errorf("entry %d has no reply to its command %d", index, i)
		}
	}
}

func (r *recorder) notify(o Origin, res result) {
	if o == (Origin{}) {
		return
	}
	r.order++
	res.order = r.order
	r.results[o] = append(r.results[o], res)
}

func (r *recorder) Failed(_ *Shard, origins []Origin, st protocol.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	for _, o := range origins {
		r.notify(o, result{failed: true, status: st})
	}
}

func (r *recorder) LeaderChanged(_ *Shard, leader uint64, leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	r.leader, r.leading = leader, leading
	r.changes = append(r.changes, fmt.Sprint(leader, leading))
}

func (r *recorder) Pong(_ *Shard, _, ping uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	r.pongs = append(r.pongs, ping)
}

func (r *recorder) Cut(_ *Shard, conn uint64, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	r.cuts[conn] = reason
}

func (r *recorder) Detach(_ *Shard, conn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	r.cuts[conn] = "detached"
}

func (r *recorder) Restored(*Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.c.Broadcast()
	r.restored++
}

// await waits until ok, called with the recorder locked, is true.
func (r *recorder) await(what string, ok func() bool) {
	r.t.Helper()
	late := false
	t := time.AfterFunc(patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = true
		r.c.Broadcast()
	})
	defer t.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !ok() {
		if late {
			r.t.Fatalf("waited too long for: %s", what)
		}
		r.c.Wait()
	}
}

func (r *recorder) awaitLeading() {
	r.t.Helper()
	r.await("this replica to lead", func() bool { return r.leading })
}

// result waits for the one result of a request.
func (r *recorder) result(o Origin) result {
	r.t.Helper()
	r.await(fmt.Sprintf("the outcome of request %d", o.Request), func() bool { return len(r.results[o]) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.results[o]); n != 1 {
		r.t.Fatalf("request %d has %d outcomes", o.Request, n)
	}
	return r.results[o][0]
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// openHost opens a host in memory; it is closed at the end of the test at the latest.
func openHost(t testing.TB, cfg HostConfig) *Host {
	t.Helper()
	if cfg.Dir == "" && cfg.Disk == nil {
		cfg.Disk = NewMemoryDisk()
	}
	if cfg.RTT == 0 {
		cfg.RTT = 10 * time.Millisecond
	}
	cfg.Logger = quiet()
	h, err := OpenHost(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeHost(t, h) })
	return h
}

func closeHost(t testing.TB, h *Host) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// startOne starts the only replica of shard 1 and waits until it leads.
func startOne(t testing.TB, h *Host, change func(*ShardConfig)) (*Shard, *recorder) {
	t.Helper()
	r := newRecorder(t)
	cfg := ShardConfig{ID: 1, Replica: 1, Members: map[uint64]string{1: h.RaftAddress()}, Sink: r}
	if change != nil {
		change(&cfg)
	}
	s, err := h.StartShard(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.awaitLeading()
	return s, r
}

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// populate gives the shard its buckets and a node. It may be repeated.
func populate(t testing.TB, s *Shard) {
	t.Helper()
	populateBuckets(t, s, 0, testBuckets)
}

func populateBuckets(t testing.TB, s *Shard, first, count uint32) {
	t.Helper()
	for _, c := range setupCommands(first, count) {
		if err := s.ProposeInternal(timeout(t), c); err != nil {
			t.Fatal(err)
		}
	}
}

func setupCommands(first, count uint32) []shard.Command {
	return []shard.Command{
		{Kind: shard.CmdBuckets,
			Body: shard.AppendBuckets(nil, shard.BucketsBody{Total: testBuckets, First: first, Count: count})},
		{Kind: shard.CmdNodePut, Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: testNode, Revision: 1, Config: protocol.NodeConfig{
			SelfCheckPeriod: protocol.DefaultSelfCheckPeriod, GracePeriod: protocol.DefaultGracePeriod,
			ReadConsistency: 1, AttachConsistency: 2, CountersMode: 1,
			MaxSessions: 1_000_000, MaxSemaphores: 1_000_000,
			MaxBytes: 1 << 40, MaxWaiters: 1_000_000, MaxWatchers: 1_000_000,
		}})},
	}
}

// caller makes requests on one session over one connection.
type caller struct {
	t       testing.TB
	s       *Shard
	r       *recorder
	conn    uint64
	session uint64
	request uint64
	seq     uint64
	low     uint64
	buf     []byte
}

var nextCreateID atomic.Uint64

// newCaller starts a session; conn must be new to the recorder.
func newCaller(t testing.TB, s *Shard, r *recorder, conn, timeoutMS uint64) *caller {
	t.Helper()
	return newCallerHome(t, s, r, conn, timeoutMS, testBuckets)
}

// newCallerHome starts a session in this bucket; any, if there is no such bucket.
func newCallerHome(t testing.TB, s *Shard, r *recorder, conn, timeoutMS uint64, home uint32) *caller {
	t.Helper()
	c := tryCaller(t, s, r, conn, timeoutMS, home)
	if c == nil {
		t.Fatal("session does not start: the shard lost its leader")
	}
	return c
}

// tryCaller is nil when the replica does not lead.
func tryCaller(t testing.TB, s *Shard, r *recorder, conn, timeoutMS uint64, home uint32) *caller {
	t.Helper()
	c := &caller{t: t, s: s, r: r, conn: conn, low: 1}
	createID := make([]byte, protocol.KeyLen)
	for {
		binary.BigEndian.PutUint64(createID, nextCreateID.Add(1))
		if home == testBuckets || protocol.HomeBucket([protocol.KeyLen]byte(createID), testBuckets) == home {
			break
		}
	}
	start := protocol.SessionStart{Node: testNode, CreateID: createID, Key: make([]byte, protocol.KeyLen),
		Timeout: timeoutMS, Nonce: 1}
	res, ok := c.try(shard.CmdSessionStart, protocol.AppendBody(nil, &start))
	if !ok {
		return nil
	}
	if res.status != protocol.StatusOK {
		t.Fatalf("session does not start: %+v", res)
	}
	c.session = res.event.Session
	return c
}

// try makes a request and waits. It is not ok when the replica does not lead, so that nothing was
// applied.
func (c *caller) try(kind shard.CommandKind, body []byte) (res result, ok bool) {
	c.t.Helper()
	o, ok := c.trySubmit(kind, body)
	if !ok {
		return result{}, false
	}
	res = c.r.result(o)
	if res.failed && res.status != protocol.StatusUnavailable {
		c.t.Fatalf("request failed: %+v", res)
	}
	return res, !res.failed
}

// trySubmit makes a request and does not wait. It is not ok when the replica does not lead, so that
// nothing was applied.
func (c *caller) trySubmit(kind shard.CommandKind, body []byte) (o Origin, ok bool) {
	c.t.Helper()
	c.request++
	o = Origin{Conn: c.conn, Request: c.request, Kind: protocol.Kind(kind)}
	st := c.s.Submit(shard.Command{Kind: kind, Node: testNode, Epoch: 1, Body: body}, o)
	if st != protocol.StatusOK && st != protocol.StatusUnavailable {
		c.t.Fatalf("request is refused: %v", st)
	}
	return o, st == protocol.StatusOK
}

func (c *caller) submit(kind shard.CommandKind, body []byte) Origin {
	c.t.Helper()
	o, ok := c.trySubmit(kind, body)
	if !ok {
		c.t.Fatal("request is refused: the shard lost its leader")
	}
	return o
}

func (c *caller) createBody(name string) []byte { return c.createWith(name, nil) }

func (c *caller) createWith(name string, data []byte) []byte {
	c.seq++
	m := protocol.Create{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low},
		Name: []byte(name), Limit: 1, Data: data}
	c.buf = protocol.AppendBody(c.buf[:0], &m)
	return c.buf
}

// create makes a semaphore and does not wait.
func (c *caller) create(name string) Origin {
	c.t.Helper()
	return c.submit(shard.CmdCreate, c.createBody(name))
}

// mustCreate makes a semaphore and waits for its answer.
func (c *caller) mustCreate(name string) result {
	c.t.Helper()
	res := c.r.result(c.create(name))
	if res.failed || res.status != protocol.StatusOK {
		c.t.Fatalf("semaphore %s is not created: %+v", name, res)
	}
	c.low = c.seq + 1
	return res
}

func exists(t testing.TB, s *Shard, name string) (ok bool) {
	t.Helper()
	s.View(func(m *shard.Machine) {
		var out protocol.DescribeReply
		err := m.Semaphores().Describe(&protocol.Describe{Node: testNode, Name: []byte(name)}, &out)
		if err != nil && protocol.StatusOf(err) != protocol.StatusNotFound {
			t.Errorf("describe: %v", err)
		}
		ok = err == nil
	})
	return ok
}

func barrier(s *Shard) bool {
	c := make(chan bool)
	s.Barrier(func(ok bool) { c <- ok })
	return <-c
}

// caughtUp waits until the replica here has applied everything that the leader knew to be committed
// at some moment after the call. It retries until ctx ends.
func caughtUp(h *Host, ctx context.Context, shard uint64) error {
	return h.retry(ctx, func(ctx context.Context) error {
		g := h.groups.get(shard)
		if g == nil {
			return errNoReplica
		}
		if !h.engine.ReadIndex(ctx, shard, h.engine.ReadTimeout(), nil, nil, nil) {
			return errors.New("read was not answered")
		}
		return nil
	})
}

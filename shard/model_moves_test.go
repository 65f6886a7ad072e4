package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

const (
	moveTestShards  = 3
	moveTestBuckets = 6
)

// moveTest is three shards between which buckets move, and the model, which is one shard that has
// them all and knows of no moves. Requests go to the shard that serves their bucket; what is frozen
// is not asked. The governor forgets where it was, gives moves up, and sends any step again at any
// later time. The replies must be the model's; so must what is there once no move is
// under way: owners, waiters, order ids, data, remaining time.
//
// Log time stands still while a move is under way, for the model has no buckets whose time does.
type moveTest struct {
	t        *testing.T
	r        *rand.Rand
	w        *model
	shards   [moveTestShards]*moveTestShard
	owner    [moveTestBuckets]int
	epochs   [moveTestBuckets]uint64
	moves    []*bucketMove
	sent     []sentStep
	clients  []*modelClient
	ended    []uint64
	now      uint64
	serial   uint64
	counts   map[string]int
	notified []string
	options  *gen // of semaphores and acquires; nil: none

	processes map[string]*modelProcess
	tracks    map[string]*modelTrack
}

type moveTestShard struct {
	m     *Machine
	base  uint64 // its log time is the model's and this
	log   [][]byte
	out   Events
	snap  *Snapshot // being written
	begun int       // entries before it
	is    uint64    // digest then
}

type bucketMove struct {
	run      BucketsBody
	from, to int
	phase    string
	cursor   []byte
	still    string // the processes and tracks of the frozen copies
}

type sentStep struct {
	to int
	c  Command
}

func TestBucketsMove(t *testing.T) {
	did := map[string]int{}
	for seed := range seeds.Of(t, 10, 80) {
		x := newMoveTest(t, seed, did)
		for range 600 {
			if err := x.step(); err != nil {
				for _, line := range x.notified[max(0, len(x.notified)-80):] {
					t.Log(line)
				}
				t.Fatal(err)
			}
		}
	}
	for _, what := range []string{
		"move done", "move aborted before the freeze", "move aborted after it", "move aborted after the import",
		"lanes moved", "slots moved", "history moved",
		"step sent again", "late chunk", "crash", "resumed",
		"chunk out of order", "drop goes on", "sent again", "refused while frozen",
		"snapshot in the middle", "restart", "home moved with remote sessions",
		"session ended while its holdings were frozen", "waiter moved", "outdated copy replaced",
		"round started", "round cancelled", "round completed", "member refused while frozen",
		"member request sent again", "three members", "evicted", "member ended",
		"process moved",
		"track advanced", "track ticked", "track moved", "track deleted", "track rolled back",
		"track refused while frozen", "instances ended", "poll without the log",
		"track in parts", "version from outside",
	} {
		if did[what] == 0 && form.Is(form.Full) && !seeds.Chosen() {
			t.Errorf("never: %s", what)
		}
	}
	t.Log(did)
}

func newMoveTest(t *testing.T, seed uint64, did map[string]int) *moveTest {
	x := &moveTest{t: t, r: rand.New(rand.NewPCG(seed, 77)), w: newModel(), counts: did}
	lazy := x.r.IntN(2) == 0
	if !lazy { // tokens are drawn in the order in which work is done
		x.options = &gen{source: randSource{x.r}, m: x.w, queues: true}
	}
	for i := range x.shards {
		s := &moveTestShard{m: New(uint64(i + 2)), base: []uint64{1000, 5_000_000, 77}[i]}
		if i > 0 {
			setRing(s.m, 1+x.r.IntN(4))
		}
		if lazy {
			s.m.work = workLimits{deadlines: 1 + x.r.IntN(5), sweeps: 1 + x.r.IntN(5), releases: 1 + x.r.IntN(5)}
		}
		x.shards[i] = s
		x.command(i, Command{Kind: CmdTakeOver})
		x.command(i, Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()})})
	}
	x.w.loose = true
	x.model(op{kind: CmdTakeOver})
	x.model(op{kind: CmdNodePut, msg: NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}})
	x.model(op{kind: CmdBuckets, msg: BucketsBody{Total: moveTestBuckets, Count: moveTestBuckets}})
	for b := range uint32(moveTestBuckets) {
		x.owner[b], x.epochs[b] = int(b)%moveTestShards, 1
		x.command(x.owner[b], Command{Kind: CmdBuckets,
			Body: AppendBuckets(nil, BucketsBody{Total: moveTestBuckets, First: b, Count: 1})})
	}
	return x
}

func (x *moveTest) logf(format string, args ...any) {
	x.notified = append(x.notified, fmt.Sprintf(format, args...))
}

func (x *moveTest) count(what string) { x.counts[what]++ }

func (x *moveTest) model(o op) Event {
	x.w.apply(x.w.index+1, Header{Epoch: 1 << 16, LogTime: x.now}, []op{o})
	for _, e := range x.w.events {
		if e.Kind == EventReply {
			return e
		}
	}
	return Event{}
}

// apply applies an entry, looks at the machine, and goes on with the snapshot that is being
// written.
func (x *moveTest) apply(i int, commands []byte) Event {
	x.t.Helper()
	s := x.shards[i]
	h := Header{Format: FormatVersion, Epoch: 1 << 16, Seq: uint64(len(s.log)), LogTime: s.base + x.now}
	entry := append(AppendHeader(nil, h), commands...)
	s.log = append(s.log, entry)
	s.out.Reset()
	s.m.Apply(uint64(len(s.log)), bytes.Clone(entry), &s.out)
	if err := s.m.Check(); err != nil {
		x.t.Fatalf("shard %d: %v\n%v", i, err, x.notified[max(0, len(x.notified)-30):])
	}
	if s.snap != nil {
		left := 1 + x.r.IntN(4)
		if s.snap.stage != stageDone {
			s.snap.walk(&left)
		} else {
			x.restoreSnapshot(s)
		}
	}
	var reply Event
	for k, e := range s.out.List {
		switch e.Kind {
		case EventReply:
			reply = e
		case EventSessionEnded:
			x.ended = append(x.ended, e.Session)
		case EventProcess:
			x.receiveRound(&s.out.List[k])
		}
	}
	return reply
}

// restoreSnapshot restores what was written while entries were applied, applies them to it, and
// compares.
func (x *moveTest) restoreSnapshot(s *moveTestShard) {
	full := s.snap.appendEnd(s.snap.buf)
	s.snap.Close()
	s.snap = nil
	var buf bytes.Buffer
	buf.Write(snapshotIntro(FormatVersion))
	if err := writeChunks(&buf, full); err != nil {
		x.t.Fatal(err)
	}
	m, err := Restore(&buf)
	if err != nil || m.Digest() != s.is {
		x.t.Fatalf("snapshot written while applying: %v", err)
	}
	var out Events
	for k := s.begun; k < len(s.log); k++ {
		m.Apply(uint64(k+1), s.log[k], &out)
	}
	if m.Digest() != s.m.Digest() {
		x.t.Fatal("a snapshot and the rest of the log are not the log")
	}
	x.count("snapshot in the middle")
}

func (x *moveTest) command(i int, c Command) Event {
	x.t.Helper()
	e := x.apply(i, AppendCommand(nil, c))
	x.syncRemotes()
	return e
}

// syncRemotes is what the shards' leaders do for remote sessions: a shard that has something of an
// ended session is told.
func (x *moveTest) syncRemotes() {
	for i, s := range x.shards {
		for _, id := range x.ended {
			if _, ok := s.m.Sessions().Remote(id); ok {
				if slices.ContainsFunc(x.moves, func(v *bucketMove) bool { return v.phase != "begun" }) {
					x.count("session ended while its holdings were frozen")
				}
				x.apply(i, AppendCommand(nil, Command{Kind: CmdRemoteEnded,
					Body: AppendRemoteEnded(nil, RemoteEndedBody{Sessions: []RemoteEnd{{Session: id}}})}))
			}
		}
	}
}

// catchUp lets shards do what is due, but for copies that are being removed.
func (x *moveTest) catchUp(removal bool) {
	for again := true; again; {
		again = false
		for i, s := range x.shards {
			if s.m.hasBacklog() || removal && s.m.clearing.active {
				x.apply(i, nil)
				again = true
			}
		}
		x.syncRemotes()
	}
}

func (x *moveTest) serving(b uint32) (int, bool) {
	for i, s := range x.shards {
		if _, active := s.m.Bucket(b); active {
			return i, true
		}
	}
	return 0, false
}

func (x *moveTest) step() error {
	switch p := x.r.IntN(100); {
	case p < 20:
		return x.request()
	case p < 32:
		return x.member()
	case p < 45:
		return x.rollOut()
	case p < 50:
		return x.session()
	case p < 80:
		return x.move()
	case p < 88:
		x.repeatStep()
	case p < 90:
		return x.restart()
	case p < 92:
		if s := x.shards[x.r.IntN(moveTestShards)]; s.snap == nil {
			s.is, s.begun, s.snap = s.m.Digest(), len(s.log), s.m.BeginSnapshot()
		}
	default:
		return x.compareAtRest()
	}
	return nil
}

// applyBoth applies a command to the shard that serves the bucket, and to the model.
func (x *moveTest) applyBoth(b uint32, o op) (Event, bool, error) {
	i, ok := x.serving(b)
	body := protocol.AppendBody(nil, o.msg.(protocol.Message))
	c := Command{Kind: o.kind, Node: o.node, Epoch: o.epoch, Body: body}
	if !ok {
		for k := range x.shards {
			if e := x.command(k, c); e.Status != protocol.StatusWrongShard {
				return e, false, fmt.Errorf("shard %d answers for a bucket that no shard serves: %s", k, show(e))
			}
		}
		x.count("refused while frozen")
		return Event{}, false, nil
	}
	x.catchUp(false)
	got := x.command(i, c)
	want := x.model(o)
	x.logf("shard %d: kind %d %+v -> %s", i, o.kind, o.msg, show(got))
	got.Text, want.Text, got.Command, want.Command = "", "", 0, 0
	if show(got) != show(want) {
		return got, true, fmt.Errorf("%+v: reply %s, want %s", o.msg, show(got), show(want))
	}
	x.catchUp(false)
	return got, true, nil
}

func (x *moveTest) session() error {
	if len(x.clients) > 2 && x.r.IntN(3) > 0 {
		c := x.clients[x.r.IntN(len(x.clients))]
		home := protocol.SessionBucket(c.id)
		switch x.r.IntN(4) {
		case 0:
			_, ok, err := x.applyBoth(home, op{kind: CmdSessionStop, node: 1, epoch: c.epoch,
				msg: &protocol.SessionStop{Session: c.id, Epoch: c.epoch}})
			if ok {
				x.clients = without(x.clients, c)
			}
			return err
		default:
			// the other nonce is that of another client
			return x.attach(c, c.epoch+uint64(x.r.IntN(2)), c.nonce+uint64(x.r.IntN(3)/2))
		}
	}
	if len(x.clients) >= 8 {
		return nil
	}
	x.serial++
	create := [protocol.KeyLen]byte{byte(x.serial), byte(x.serial >> 8), 3}
	e, ok, err := x.applyBoth(protocol.HomeBucket(create, moveTestBuckets), op{
		kind: CmdSessionStart, msg: &protocol.SessionStart{Node: 1, CreateID: create[:],
			Key: modelKey(x.serial), Timeout: 30_000, Description: "d", Nonce: 1},
	})
	if ok && err == nil {
		x.clients = append(x.clients,
			&modelClient{id: e.Session, node: 1, key: modelKey(x.serial), epoch: 1, nonce: 1, low: 1})
	}
	return err
}

func (x *moveTest) attach(c *modelClient, epoch, nonce uint64) error {
	e, ok, err := x.applyBoth(protocol.SessionBucket(c.id), op{kind: CmdSessionAttach, node: 1, epoch: epoch, msg: &protocol.SessionAttach{
		Session: c.id, Node: 1, Epoch: epoch, Key: c.key, Timeout: 30_000, Description: "d", Nonce: nonce,
	}})
	if ok && err == nil && e.Status == protocol.StatusOK {
		c.epoch, c.nonce = epoch, nonce
	}
	return err
}

func (x *moveTest) request() error {
	if len(x.clients) == 0 {
		return nil
	}
	c := x.clients[x.r.IntN(len(x.clients))]
	if len(c.sent) > 0 && x.r.IntN(4) == 0 {
		// Sent again: its answer was lost.
		o := c.sent[x.r.IntN(len(c.sent))]
		o.epoch = c.epoch
		x.count("sent again")
		_, _, err := x.applyBoth(protocol.Bucket(1, nameOf(o), moveTestBuckets), o)
		return err
	}
	if x.r.IntN(5) == 0 {
		c.low, c.sent = c.seq+1, nil
	}
	c.seq++
	h := protocol.Head{Session: c.id, Seq: c.seq, Low: c.low}
	name := modelNames[x.r.IntN(len(modelNames))]
	o := op{node: 1, epoch: c.epoch}
	data := []byte{byte('a' + x.r.IntN(3))}
	sem := x.w.sem(1, name)
	switch p := x.r.IntN(20); {
	case p < 11:
		count := uint64(1 + x.r.IntN(2))
		timeout := []uint64{protocol.Forever, protocol.Forever, 0, 5000, 20_000}[x.r.IntN(5)]
		o.kind, o.msg = CmdAcquire, &protocol.Acquire{Head: h, Name: name, Count: count,
			Timeout: timeout, Data: data, Ephemeral: sem == nil || sem.ephemeral}
		if a := o.msg.(*protocol.Acquire); a.Ephemeral {
			a.Count = protocol.Forever
		} else if x.options != nil {
			var r *modelEntry
			if s := x.w.session(c.id); s != nil {
				r = sem.entryOf(s)
			}
			a.Options = x.options.asks(sem, r, &a.Count)
		}
	case p < 15:
		o.kind, o.msg = CmdRelease, &protocol.Release{Head: h, Name: name}
	case p < 17 && sem != nil && x.options != nil && x.r.IntN(2) == 0:
		x.count("alter")
		o.kind, o.msg = CmdAlter, &protocol.Alter{Head: h, Name: name, Fields: 1023, Options: *x.options.options(sem.limit)}
	case p < 17:
		create := &protocol.Create{Head: h, Name: name, Limit: 2, Data: data}
		if x.options != nil {
			create.Options = x.options.options(2)
		}
		o.kind, o.msg = CmdCreate, create
	case p < 18:
		o.kind, o.msg = CmdUpdate, &protocol.Update{Head: h, Name: name, Data: data}
	case p < 19:
		o.kind, o.msg = CmdResize, &protocol.Resize{Head: h, Name: name, Limit: 1 + x.r.Uint64N(3)}
	default:
		o.kind, o.msg = CmdDelete, &protocol.Delete{Head: h, Name: name, Force: true}
	}
	_, ok, err := x.applyBoth(protocol.Bucket(1, name, moveTestBuckets), o)
	if ok {
		c.sent = append(c.sent, o)
	}
	return err
}

func nameOf(o op) []byte {
	switch m := o.msg.(type) {
	case *protocol.Acquire:
		return m.Name
	case *protocol.Release:
		return m.Name
	case *protocol.Create:
		return m.Name
	case *protocol.Update:
		return m.Name
	case *protocol.Resize:
		return m.Name
	case *protocol.Alter:
		return m.Name
	}
	return o.msg.(*protocol.Delete).Name
}

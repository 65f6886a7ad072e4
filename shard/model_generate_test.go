package shard

import (
	"bytes"
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

// source gives numbers in 0..bound-1, from a property's drawn values or from a plain generator. 0
// is the simplest choice everywhere.
type source interface {
	n(bound int) int
}

// gen makes random commands that have to do with each other: few nodes, names and sessions, and
// numbers and epochs that are mostly right.
type gen struct {
	source
	m       *model
	clients []*modelClient
	starts  []*protocol.SessionStart // that may be sent again
	serial  uint64                   // of create ids
	rev     uint64

	// The character of this history.
	weights []int    // by number of maker; a few are 0
	names   [][]byte // of semaphores
	wrong   int      // how often something is wrong, in percent of the usual
	strange int      // how often a client of another shard turns up, in percent
	jumps   int      // how often log time takes a leap, in percent
	short   bool     // most acquires wait for a short time only
}

// modelClient is somebody who makes requests on a session.
type modelClient struct {
	id, node uint64
	key      []byte
	epoch    uint64 // that it believes in
	nonce    uint64
	seq, low uint64
	sent     []op // the last requests
}

func pick[T any](g source, list ...T) T { return list[g.n(len(list))] }

// chance is true in n of 100 cases.
func (g *gen) chance(n int) bool { return g.n(100) >= 100-n }

// fault is true in about n of 100 cases in an ordinary history.
func (g *gen) fault(n int) bool { return g.n(10_000) >= 10_000-n*g.wrong }

var (
	modelNames = [][]byte{
		[]byte("a"), []byte("ab"), []byte("b"), []byte("\x00c/\xff"), []byte("abc"), []byte("d"), []byte("ab/1"), []byte("a/2"), []byte("e"), []byte("f"),
	}
	longName = bytes.Repeat([]byte("n"), 1024)
	bulk     = make([]byte, 1<<20+1)
)

const modelBuckets = 4

func newGen(src source) *gen {
	g := &gen{source: src, m: newModel()}
	g.wrong, g.strange, g.jumps, g.short = pick(g, 30, 0, 100), pick(g, 5, 0, 20, 60), pick(g, 10, 2, 50), g.n(2) == 1
	g.weights = make([]int, len(makers))
	for i := range g.weights {
		g.weights[i] = makers[i].weight * pick(g, 2, 2, 1, 5, 0)
	}
	return g
}

// makers make commands of a kind.
var makers = []struct {
	weight int
	make   func(*gen) op
}{
	{60, (*gen).acquireOp},
	{15, (*gen).releaseOp},
	{6, (*gen).createOp},
	{4, (*gen).updateOp},
	{4, (*gen).resizeOp},
	{4, (*gen).deleteOp},
	{15, (*gen).resendOp},
	{8, (*gen).startOp},
	{10, (*gen).attachOp},
	{6, (*gen).detachOp},
	{2, (*gen).handOverOp},
	{2, (*gen).stopOp},
	{1, (*gen).killOp},
	{3, (*gen).forceReleaseOp},
	{2, (*gen).remoteEndedOp},
	{3, (*gen).remoteUpdateOp},
	{2, (*gen).nodePutOp},
	{1, (*gen).nodeDropOp},
	{2, (*gen).bucketsOp},
	{1, (*gen).oddOp},
}

// opening is what every history begins with: buckets and nodes, then sessions, then semaphores. How
// many buckets are active here decides which sessions are remote.
func (g *gen) opening() []op {
	active := pick[uint32](g, modelBuckets, modelBuckets-1, modelBuckets-2)
	for _, name := range modelNames {
		if protocol.Bucket(1, name, modelBuckets) < active {
			g.names = append(g.names, name)
		}
	}
	g.names = g.names[:pick(g, 2, 1, 4)]
	ops := []op{
		{kind: CmdBuckets, msg: BucketsBody{Total: modelBuckets, Count: active}},
		{kind: CmdNodePut, msg: NodePutBody{Node: 1, Revision: 1, Config: g.config()}},
	}
	if g.chance(60) {
		ops = append(ops, op{kind: CmdNodePut, msg: NodePutBody{Node: 2, Revision: 1, Config: g.config()}})
	}
	return ops
}

func (g *gen) begin() (ops []op) {
	for range 2 + g.n(4) {
		ops = append(ops, g.freshStart())
	}
	return ops
}

// semaphoreOps makes semaphores to quarrel about.
func (g *gen) semaphoreOps() (ops []op) {
	for range 1 + g.n(3) {
		ops = append(ops, g.createOp())
	}
	return ops
}

func (g *gen) op() op {
	sum := 0
	for _, w := range g.weights {
		sum += w
	}
	if sum > 0 {
		at := g.n(sum)
		for i, w := range g.weights {
			if at < w {
				return makers[i].make(g)
			}
			at -= w
		}
	}
	return g.acquireOp()
}

// stamp is a log time: now, soon, at a deadline or just behind it, in the past, or far away.
func (g *gen) stamp() uint64 {
	now := g.m.now
	if !g.chance(g.jumps) {
		return now + uint64(pick(g, 0, 0, 1, g.n(100)))
	}
	switch g.n(8) {
	case 0, 1, 2, 3:
		all := g.m.deadlines()
		if g.chance(30) {
			for _, until := range g.m.goneIDs {
				all = append(all, until)
			}
			for _, until := range g.m.goneCreates {
				all = append(all, until)
			}
			for _, n := range g.m.nodes {
				all = append(all, n.until)
			}
		}
		// The first of those to come, or the second; the order they are found in does not matter.
		best, after := now, now
		for range 1 + g.n(2) {
			next := uint64(0)
			for _, d := range all {
				if d >= after && d < now+20*Retention && (next == 0 || d < next) {
					next = d
				}
			}
			if next != 0 {
				best, after = next, next+1
			}
		}
		return best + uint64(g.n(2))
	case 4:
		return now - min(now, uint64(g.n(1000)))
	case 5, 6:
		return now + uint64(pick(g, 1000, 10_000, 60_000))
	default:
		return now + uint64(pick(g, 1000, Retention-1, Retention, Retention+1, 30*60*1000))
	}
}

func (g *gen) name() []byte {
	switch {
	case g.fault(1):
		return pick(g, nil, longName, bulk[:1025])
	case g.fault(5):
		return modelNames[g.n(len(modelNames))]
	}
	return g.names[g.n(len(g.names))]
}

func (g *gen) data() []byte {
	if g.fault(1) && g.chance(20) {
		return bulk
	}
	return pick(g, nil, []byte("x"), []byte("yy"))
}

func (g *gen) config() protocol.NodeConfig {
	c := protocol.DefaultNodeConfig()
	c.GracePeriod = pick[uint64](g, 10_000, 1500, 30_000, 5000)
	c.CountersMode = pick(g, protocol.CountersAggregated, protocol.CountersDetailed)
	c.MaxSessions = pick[uint64](g, 1_000_000, 1_000_000, 1_000_000, 3, 5)
	c.MaxSemaphores = pick[uint64](g, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1, 2)
	c.MaxBytes = pick[uint64](g, 1<<50, 1<<50, 1<<50, 1<<50, 1<<50, 2_000, 4_001, 6_003)
	c.MaxWaiters = pick[uint64](g, 1_000_000, 1_000_000, 1_000_000, 1, 2)
	return c
}

// Sessions.

func (g *gen) timeout() uint64 {
	if g.fault(2) {
		return 30*60*1000 + 1
	}
	return pick[uint64](g, 10_000, 10_000, 60_000, 60, 1000, 0, 30*60*1000)
}

func (g *gen) text() string {
	if g.fault(1) {
		return pick(g, "\xff", string(bulk[:1025]))
	}
	return pick(g, "", "one", "two")
}

func (g *gen) freshStart() op {
	create := make([]byte, 8, 16)
	for any := g.fault(10); ; {
		g.serial++
		create = binary.BigEndian.AppendUint64(create[:8], g.serial)
		if any || g.m.total == 0 || g.m.active[protocol.HomeBucket([protocol.KeyLen]byte(create), modelBuckets)] {
			break
		}
	}
	x := &protocol.SessionStart{CreateID: create, Key: modelKey(g.serial), Timeout: g.timeout(), Description: g.text(), Nonce: 1 + uint64(min(g.n(20), 1))}
	x.Node = pick[uint64](g, 1, 1, 1, 1, 1, 1, 2, uint64(2+g.n(2)))
	g.starts = append(g.starts, x)
	return op{kind: CmdSessionStart, client: pick(g, "", "10.0.0.1:7"), msg: x}
}

func modelKey(of uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, ^of), of)
}

func (g *gen) startOp() op {
	if len(g.starts) == 0 || g.chance(50) && len(g.starts) < 12 {
		return g.freshStart()
	}
	again := *g.starts[len(g.starts)-1-g.n(min(len(g.starts), 6))]
	switch {
	case g.fault(10):
		again.Key = modelKey(999)
	case g.fault(5):
		again.Node = 2
	case g.fault(3):
		again.CreateID = again.CreateID[1:]
	case g.fault(3):
		again.Key = again.Key[:3]
	case g.fault(5):
		again.Nonce++
	}
	return op{kind: CmdSessionStart, client: pick(g, "", "10.0.0.2:7"), msg: &again}
}

// learn makes clients of the sessions that were started or attached.
func (g *gen) learn(ops []op, events []Event) {
	for _, e := range events {
		if e.Kind != EventSessionAttached {
			continue
		}
		var c *modelClient
		for _, o := range g.clients {
			if o.id == e.Session {
				c = o
			}
		}
		if c == nil {
			c = &modelClient{id: e.Session, node: e.Node, low: 1}
			g.clients = append(g.clients, c)
		}
		c.epoch = e.Epoch
		switch x := ops[e.Command].msg.(type) {
		case *protocol.SessionStart:
			c.key, c.nonce = x.Key, x.Nonce
		case *protocol.SessionAttach:
			c.key, c.nonce = x.Key, x.Nonce
		}
	}
}

// client is somebody: mostly one of the newest that live, at home here or elsewhere.
func (g *gen) client() *modelClient {
	if len(g.clients) == 0 || len(g.clients) < 12 && g.chance(g.strange) && g.chance(30) {
		// A session of another shard: at home in a bucket that is not active here, or not active
		// yet, or in another tier.
		g.serial++
		id := protocol.MakeSessionID(uint8(pick(g, 0, 0, 0, 1)), pick[uint16](g, modelBuckets-1, modelBuckets-2, modelBuckets+2), g.serial+100)
		c := &modelClient{id: id, node: pick[uint64](g, 1, 1, 1, 2), epoch: 1, nonce: 1, low: 1, key: modelKey(g.serial)}
		g.clients = append(g.clients, c)
		return c
	}
	list := g.clients
	if !g.fault(10) {
		var living []*modelClient
		for _, c := range g.clients {
			s, gone := g.m.session(c.id), g.m.goneIDs[c.id] > 0
			if g.m.node(c.node) != nil && (s != nil || !gone && !g.m.isHome(c.id)) {
				living = append(living, c)
			}
		}
		if len(living) > 0 {
			list = living
		}
	}
	return list[len(list)-1-g.n(min(len(list), 6))]
}

func (g *gen) attachOp() op {
	c := g.client()
	x := &protocol.SessionAttach{Session: c.id, Node: c.node, Epoch: c.epoch + uint64(pick(g, 1, 0, 2)), Key: c.key, Timeout: g.timeout(), Nonce: c.nonce}
	x.Description = g.text()
	switch {
	case g.fault(10):
		x.Epoch = c.epoch - min(c.epoch, 1)
	case g.fault(10):
		x.Key = modelKey(999)
	case g.fault(15):
		x.Nonce = c.nonce%3 + 1 // another client
	case g.fault(4):
		x.Node = 3 - x.Node%3
	case g.fault(3):
		x.Session += 50
	case g.fault(2):
		x.Key = append([]byte{1}, x.Key...)
	case g.fault(1):
		x.Epoch = ^uint64(0)
	}
	return op{kind: CmdSessionAttach, node: c.node, epoch: x.Epoch, client: pick(g, "", "10.0.0.3:7"), msg: x}
}

func (g *gen) detachOp() op {
	var x DetachBody
	for range 1 + g.n(3) {
		c := g.client()
		lastContact := g.m.now + 1000 - uint64(pick(g, 1000, 1001, 0, min(int(g.m.now), 1<<30)+1000))
		x.Sessions = append(x.Sessions, DetachItem{Session: c.id, Epoch: g.epochOf(c), LastContact: lastContact})
	}
	return op{kind: CmdDetach, msg: x}
}

func (g *gen) handOverOp() op {
	return op{kind: CmdHandOver, raw: pick(g, HandOverBegins, HandOverBegins, HandOverCancelled)}
}

// epochOf is the epoch a client acts under: mostly the newest.
func (g *gen) epochOf(c *modelClient) uint64 {
	switch {
	case g.fault(5):
		return c.epoch - min(c.epoch, 1)
	case g.fault(3):
		return c.epoch + 1
	}
	return c.epoch
}

func (g *gen) stopOp() op {
	c := g.client()
	o := op{kind: CmdSessionStop, node: c.node, epoch: g.epochOf(c), msg: &protocol.SessionStop{Session: c.id, Epoch: g.epochOf(c)}}
	if g.fault(4) {
		o.node = 2
	}
	return o
}

func (g *gen) killOp() op {
	c := g.client()
	return op{kind: CmdSessionKill, msg: &protocol.SessionKill{Session: c.id, Node: c.node, Reason: g.text()}}
}

// forceReleaseOp is about one owner as a rule, or a few, or a token that was somebody's once.
func (g *gen) forceReleaseOp() op {
	x := &protocol.ForceRelease{Node: 1, Name: g.name(), First: uint64(g.n(20)), Reason: g.text()}
	x.Last = x.First + uint64(pick(g, 0, 3))
	if len(g.m.sems) > 0 && g.chance(80) {
		sem := g.m.sems[g.n(len(g.m.sems))]
		x.Node, x.Name = sem.node, sem.name
		if len(sem.entries) > 0 {
			r := sem.entries[g.n(len(sem.entries))]
			x.First, x.Last = r.order, r.order+uint64(pick(g, 0, 0, 2, 100))
		}
	}
	if g.fault(3) {
		x.Last--
	}
	node := x.Node
	if g.fault(3) {
		node = pick[uint64](g, 2, 4)
	}
	return op{kind: CmdForceRelease, node: node, client: pick(g, "", "ops"), msg: x}
}

func (g *gen) remoteEndedOp() op {
	var x RemoteEndedBody
	for range 1 + g.n(2) {
		x.Sessions = append(x.Sessions, g.client().id)
	}
	return op{kind: CmdRemoteEnded, msg: x}
}

func (g *gen) remoteUpdateOp() op {
	c := g.client()
	x := RemoteUpdateBody{Session: c.id, Epoch: c.epoch + uint64(pick(g, 0, 1)), Description: pick(g, "seen", "", string(bulk[:1025])), Detached: pick(g, true, false)}
	if g.chance(30) {
		x.Epoch = c.epoch - min(c.epoch, 1)
	}
	if !g.m.isHome(c.id) && g.chance(50) {
		c.epoch = max(c.epoch, x.Epoch)
	}
	return op{kind: CmdRemoteUpdate, msg: x}
}

// Nodes and buckets.

func (g *gen) nodePutOp() op {
	g.rev++
	rev := g.rev + 1
	if g.fault(20) {
		rev = 1
	}
	return op{kind: CmdNodePut, msg: NodePutBody{Node: pick[uint64](g, 1, 2, 3, 0), Revision: rev, Config: g.config()}}
}

func (g *gen) nodeDropOp() op {
	return op{kind: CmdNodeDrop, msg: NodeDropBody{Node: pick[uint64](g, 2, 2, 3, 1, 4, 0)}}
}

func (g *gen) bucketsOp() op {
	x := BucketsBody{Total: modelBuckets, First: uint32(g.n(modelBuckets + 1))}
	x.Count = uint32(pick(g, 2, 3, 1, 0))
	x.Count = min(x.Count, x.Total-x.First)
	switch {
	case g.fault(10):
		x.Tier = 1
	case g.fault(10):
		x.Total++
	}
	return op{kind: CmdBuckets, msg: x}
}

// oddOp is a command whose body cannot be read, or of an unknown kind, or a take-over among others.
func (g *gen) oddOp() op {
	kind := pick(g, CmdAcquire, CmdTakeOver, CmdRelease, CmdCreate, CmdDetach, CmdRemoteEnded, CmdRemoteUpdate, CmdNodePut, CmdNodeDrop, CmdBuckets,
		CmdHandOver, CmdSessionStart, CmdSessionKill, CmdForceRelease, 77, 200, 0)
	return op{kind: kind, raw: pick(g, []byte{0xff}, nil, []byte{0x91}, []byte{0x93, 1, 2}, bytes.Repeat([]byte{0x91}, 100))}
}

// Semaphores.

// head numbers a request: mostly the next number, with a low-water mark somewhere below it.
func (g *gen) head(c *modelClient) protocol.Head {
	if !g.fault(4) {
		c.seq++
	}
	if g.fault(3) {
		c.seq += 2
	}
	if g.chance(30) && c.low < c.seq {
		c.low += 1 + uint64(g.n(int(min(c.seq-c.low, 100))))
	}
	h := protocol.Head{Session: c.id, Seq: c.seq, Low: c.low}
	if g.fault(3) {
		h.Low = c.seq + 1
	}
	return h
}

func (g *gen) request(kind CommandKind, make func(c *modelClient, h protocol.Head, name []byte) any) op {
	c := g.client()
	name := g.name()
	if s := g.m.session(c.id); s != nil && g.chance(40) {
		// One that the session has something of already.
		var own [][]byte
		for _, sem := range g.m.sems {
			if sem.entryOf(s) != nil {
				own = append(own, sem.name)
			}
		}
		if len(own) > 0 {
			name = own[g.n(len(own))]
		}
	}
	o := op{kind: kind, node: c.node, epoch: g.epochOf(c), msg: make(c, g.head(c), name)}
	if g.fault(2) {
		o.node = pick[uint64](g, 2, 1, 3)
	}
	if g.chance(20) {
		o.client = g.text()
	}
	c.sent = append(c.sent, o)
	if len(c.sent) > 8 {
		c.sent = c.sent[1:]
	}
	return o
}

func (g *gen) acquireOp() op {
	timeout := pick(g, ^uint64(0), 1000, 5000, 24*60*60*1000, 40*60*1000, 0)
	if g.short {
		timeout = pick[uint64](g, 1000, 0, 1, 50, 5000)
	}
	if g.fault(1) {
		timeout = 24*60*60*1000 + 1
	}
	return g.request(CmdAcquire, func(c *modelClient, h protocol.Head, name []byte) any {
		sem := g.m.sem(1, name)
		limit := uint64(3)
		if sem != nil && sem.limit < 10 {
			limit = sem.limit
		}
		count := limit - uint64(g.n(int(limit)))
		if sem != nil {
			if r := sem.entryOf(g.m.session(c.id)); r != nil && !g.fault(20) {
				count = r.count - uint64(g.n(int(min(r.count, 3))))
			}
		}
		switch {
		case g.fault(1):
			count = 0
		case g.fault(5):
			count = limit + 1
		case (sem == nil || sem.limit > 10) && g.chance(30):
			count = pick(g, ^uint64(0), ^uint64(0)-1)
		}
		ephemeral := (sem == nil || sem.ephemeral) != g.fault(15)
		return &protocol.Acquire{Head: h, Name: name, Count: count, Timeout: timeout, Data: g.data(), Ephemeral: ephemeral}
	})
}

func (g *gen) releaseOp() op {
	return g.request(CmdRelease, func(_ *modelClient, h protocol.Head, name []byte) any {
		return &protocol.Release{Head: h, Name: name, OrderID: pick(g, 0, 0, 0, 0, g.m.orders[protocol.Bucket(1, name, modelBuckets)], 1)}
	})
}

func (g *gen) createOp() op {
	return g.request(CmdCreate, func(_ *modelClient, h protocol.Head, name []byte) any {
		return &protocol.Create{Head: h, Name: name, Limit: pick(g, uint64(3), 1, 2, 5, ^uint64(0), uint64(1-min(g.n(20), 1))), Data: g.data()}
	})
}

func (g *gen) updateOp() op {
	return g.request(CmdUpdate, func(_ *modelClient, h protocol.Head, name []byte) any {
		return &protocol.Update{Head: h, Name: name, Data: g.data(), Expected: pick[uint64](g, 0, 0, 1, 2)}
	})
}

func (g *gen) resizeOp() op {
	return g.request(CmdResize, func(_ *modelClient, h protocol.Head, name []byte) any {
		limit := pick(g, uint64(3), 1, 2, 4, ^uint64(0), uint64(1-min(g.n(20), 1)))
		for _, sem := range g.m.sems {
			if head := sem.head(); sem.node == 1 && !sem.ephemeral && head != nil && g.chance(50) {
				name = sem.name
				if g.chance(70) {
					limit = max(head.count, 2) - 1 // below what the head of the queue asks for
				}
				break
			}
		}
		return &protocol.Resize{Head: h, Name: name, Limit: limit}
	})
}

func (g *gen) deleteOp() op {
	return g.request(CmdDelete, func(_ *modelClient, h protocol.Head, name []byte) any {
		for _, sem := range g.m.sems {
			if sem.node == 1 && len(sem.entries) > 0 && len(sem.entries) == sem.waiters() && g.chance(50) {
				name = sem.name // nobody owns it, and somebody waits
			}
		}
		return &protocol.Delete{Head: h, Name: name, Force: g.chance(60)}
	})
}

// resendOp sends one of the last requests again, as it was or with a higher low-water mark, under
// the present epoch or the old one.
func (g *gen) resendOp() op {
	c := g.client()
	if len(c.sent) == 0 {
		return g.acquireOp()
	}
	o := c.sent[len(c.sent)-1-g.n(len(c.sent))]
	if !g.fault(50) {
		o.epoch = c.epoch
	}
	if g.chance(30) {
		low := c.low + uint64(g.n(3))
		switch x := o.msg.(type) {
		case *protocol.Acquire:
			again := *x
			again.Low = low
			o.msg = &again
		case *protocol.Release:
			again := *x
			again.Low = low
			o.msg = &again
		}
	}
	return o
}

// encode is the batch as it is in the log.
func encode(h Header, ops []op) []byte {
	b := AppendHeader(nil, h)
	for _, o := range ops {
		b = AppendCommand(b, Command{Kind: o.kind, Node: o.node, Epoch: o.epoch, Client: o.client, Body: o.body()})
	}
	return b
}

func (o op) body() []byte {
	switch x := o.msg.(type) {
	case protocol.Message:
		return x.AppendBody(nil)
	case DetachBody:
		return AppendDetach(nil, x)
	case RemoteEndedBody:
		return AppendRemoteEnded(nil, x)
	case RemoteUpdateBody:
		return AppendRemoteUpdate(nil, x)
	case NodePutBody:
		return AppendNodePut(nil, x)
	case NodeDropBody:
		return AppendNodeDrop(nil, x)
	case BucketsBody:
		return AppendBuckets(nil, x)
	}
	return o.raw
}

package shard

import (
	"bytes"

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
	queues  bool     // semaphores and acquires have options
}

func pick[T any](g source, list ...T) T { return list[g.n(len(list))] }

// chance is true in n of 100 cases.
func (g *gen) chance(n int) bool { return g.n(100) >= 100-n }

// fault is true in about n of 100 cases in an ordinary history.
func (g *gen) fault(n int) bool { return g.n(10_000) >= 10_000-n*g.wrong }

var (
	modelNames = [][]byte{
		[]byte("a"), []byte("ab"), []byte("b"), []byte("\x00c/\xff"), []byte("abc"),
		[]byte("d"), []byte("ab/1"), []byte("a/2"), []byte("e"), []byte("f"),
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
	{6, (*gen).alterOp},
	{15, (*gen).resendOp},
	{8, (*gen).startOp},
	{10, (*gen).attachOp},
	{6, (*gen).detachOp},
	{2, (*gen).transferOp},
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
	c.MaxPriority = pick[uint8](g, 0, 0, 0, 5, 8)
	return c
}

func (g *gen) nodePutOp() op {
	g.rev++
	rev := g.rev + 1
	if g.fault(20) {
		rev = 1
	}
	return op{kind: CmdNodePut,
		msg: NodePutBody{Node: pick[uint64](g, 1, 2, 3, 0), Revision: rev, Config: g.config()}}
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
	kind := pick(g, CmdAcquire, CmdTakeOver, CmdRelease, CmdCreate, CmdDetach, CmdRemoteEnded, CmdRemoteUpdate,
		CmdNodePut, CmdNodeDrop, CmdBuckets,
		CmdTransfer, CmdSessionStart, CmdSessionKill, CmdForceRelease, 77, 200, 0)
	return op{kind: kind,
		raw: pick(g, []byte{0xff}, nil, []byte{0x91}, []byte{0x93, 1, 2}, bytes.Repeat([]byte{0x91}, 100))}
}

// encode is the batch as it is in the log.
func encode(h Header, ops []op) []byte {
	b := AppendHeader(nil, h)
	for _, o := range ops {
		b = AppendCommand(b, Command{Kind: o.kind, Node: o.node, Epoch: o.epoch, Sender: o.client, Body: o.body()})
	}
	return b
}

func (o op) body() []byte {
	switch x := o.msg.(type) {
	case protocol.Message:
		return protocol.AppendBody(nil, x)
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

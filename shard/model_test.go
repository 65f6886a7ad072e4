package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// model is a shard written as plainly as the specification is: slices, loops over all of them, and
// nothing kept in order that can be sorted when it is needed. It is what the machine is compared
// with, so it shares no code with it but the bodies of commands and the form of events.
type model struct {
	now, epoch, index, wall uint64

	tier   uint8
	total  uint32 // buckets of the tier, 0 before the first CmdBuckets
	active map[uint32]bool

	nodes    []*modelNode
	dropped  []uint64
	sessions []*modelSession // at home here, and remote sessions
	sems     []*modelSemaphore

	orders      map[uint32]uint64 // last order id, by bucket
	versions    map[uint32]uint64 // highest version of a deleted semaphore, by bucket
	stood       uint64            // for how long a leader stood still last
	stoodAt     uint64
	leader      int               // how many have taken over
	ids         map[uint32]uint64 // last session counter, by bucket
	goneIDs     map[uint64]uint64 // until when an ended remote session's id is refused
	goneCreates map[[protocol.KeyLen]byte]uint64
	limits      Limits

	handed  bool             // the leader transfers
	forcing bool             // the command takes leases away
	bounded protocol.HoldEnd // why the owner ends that reached its bound

	seen  map[string]int // how often each rule came to bear
	loose bool           // the machine takes several entries where the model takes one: revisions and counters are not compared

	// what leaves the batch that is applied
	events  []Event
	changes []SemaphoreChange
	command int
}

type modelNode struct {
	id, revision uint64
	config       protocol.NodeConfig
	floor, until uint64 // a grace period that was lowered, and until when a take-over still uses it
}

// modelSession is a session at home here, or a remote session.
type modelSession struct {
	id, node uint64
	home     bool
	ended    bool
	epoch    uint64
	desc     string

	low     uint64
	answers map[uint64]modelAnswer

	key, create      [protocol.KeyLen]byte
	timeout, created uint64
	nonce            uint64 // of the client that attached it last
	client           string
	attached         bool
	since            uint64 // log time of the last attach
	deadline         uint64 // of a detached one
	link             protocol.Link
	leader           int              // number of the leader that it was attached under
	ending           *protocol.Ending // of one that has ended

	used uint64 // of a remote session: its last request, or the last moment it had an entry
}

// modelAnswer is what a request was answered.
type modelAnswer struct {
	kind  CommandKind
	reply Event
}

type modelSemaphore struct {
	node                              uint64
	name                              []byte
	data                              []byte
	limit, version, revision, created uint64
	ephemeral                         bool
	entries                           []*modelEntry // by order id

	queue *modelQueue // nil: a plain one

	counts [3]uint64             // acquires, waits, releases
	detail map[uint64]*[3]uint64 // the same by session, in nodes with detailed counters
}

// modelEntry is what a session has of a semaphore.
type modelEntry struct {
	session           *modelSession
	order, count, seq uint64
	timeout, since    uint64
	data              []byte
	owner             bool
	timed             bool
	deadline          uint64

	ask     modelAsk
	arrival uint64 // of a waiter in a lane
	until   uint64 // of an owner: its longest hold
	want    modelPreemption
}

func newModel() *model {
	return &model{
		active: map[uint32]bool{}, orders: map[uint32]uint64{}, versions: map[uint32]uint64{}, ids: map[uint32]uint64{},
		goneIDs:     map[uint64]uint64{},
		goneCreates: map[[protocol.KeyLen]byte]uint64{}, limits: Limits{1 << 20, 1 << 20, 1 << 16},
	}
}

// op is a command before it is encoded. msg is a request, or a body of command.go, or nil with raw
// being the body as it is.
type op struct {
	kind        CommandKind
	node, epoch uint64
	client      string
	msg         any
	raw         []byte
}

// apply applies a batch; m.events and m.changes are what leaves it.
func (m *model) apply(index uint64, h Header, ops []op) {
	m.index, m.events, m.changes = index, nil, nil
	takes := len(ops) == 1 && ops[0].kind == CmdTakeOver
	if h.Epoch < m.epoch || h.Epoch > m.epoch && !takes {
		m.countRule("batch of another epoch")
		m.emit(Event{Kind: EventRefused, Epoch: h.Epoch})
		return
	}
	if h.Epoch>>16 == m.epoch>>16 {
		m.now = max(m.now, h.LogTime)
	}
	m.wall = h.Wall
	if takes && h.Epoch > m.epoch {
		if h.Epoch>>16 > m.epoch>>16 {
			m.takeOver()
		} else {
			m.countRule("repeated take-over")
		}
		m.epoch = h.Epoch
	}
	m.fire()
	for i, o := range ops {
		m.command = i
		m.run(o, takes)
	}
}

// countRule counts a rule that came to bear.
func (m *model) countRule(rule string) {
	if m.seen != nil {
		m.seen[rule]++
	}
}

func (m *model) emit(e Event) { m.events = append(m.events, e) }

func (m *model) reply(st protocol.Status) {
	m.emit(Event{Kind: EventReply, Command: m.command, Status: st})
}

// run applies one command.
func (m *model) run(o op, takes bool) {
	if o.msg == nil {
		m.runRaw(o, takes)
		return
	}
	switch x := o.msg.(type) {
	case *protocol.SessionStart:
		m.start(o, x)
	case *protocol.SessionAttach:
		m.attach(o, x)
	case *protocol.SessionStop:
		m.stop(o, x)
	case *protocol.SessionKill:
		m.kill(x)
	case *protocol.ForceRelease:
		m.forceRelease(o, x)
	case *protocol.Alter:
		m.alter(o, x)
	case *protocol.Create:
		m.create(o, x)
	case *protocol.Update:
		m.update(o, x)
	case *protocol.Resize:
		m.resize(o, x)
	case *protocol.Delete:
		m.delete(o, x)
	case *protocol.Acquire:
		m.acquire(o, x)
	case *protocol.Release:
		m.release(o, x)
	case DetachBody:
		if x.Stood > 0 {
			m.stood, m.stoodAt = x.Stood, min(x.StoodAt, m.now)
		}
		for _, d := range x.Sessions {
			m.detach(d)
		}
		m.reply(protocol.StatusOK)
	case RemoteEndedBody:
		m.remotesEnded(x.Sessions)
		m.reply(protocol.StatusOK)
	case RemoteUpdateBody:
		m.remoteUpdate(x)
	case NodePutBody:
		m.nodePut(x)
	case NodeDropBody:
		m.nodeDrop(x.Node)
	case BucketsBody:
		m.buckets(x)
	}
}

// runRaw applies a command whose body is not a known message: none at all, or bytes that cannot be
// read.
func (m *model) runRaw(o op, takes bool) {
	switch {
	case o.kind == CmdTakeOver && takes:
		m.emit(Event{Kind: EventTookOver, Epoch: m.epoch})
		m.reply(protocol.StatusOK)
	case o.kind == CmdTransfer && (bytes.Equal(o.raw, TransferBegins) || bytes.Equal(o.raw, TransferCancelled)):
		m.handed = bytes.Equal(o.raw, TransferBegins)
		m.reply(protocol.StatusOK)
	case o.kind == CmdTakeOver || known(o.kind):
		m.reply(protocol.StatusBadRequest)
	default:
		m.reply(protocol.StatusUnsupported)
	}
}

// known reports whether a kind stands for a command of this format version.
func known(k CommandKind) bool {
	switch k {
	case CmdSessionStart, CmdSessionAttach, CmdSessionStop, CmdSessionKill, CmdCreate,
		CmdUpdate, CmdResize, CmdDelete, CmdAlter, CmdAcquire, CmdRelease, CmdForceRelease,
		CmdTakeOver, CmdDetach, CmdRemoteEnded, CmdRemoteUpdate, CmdNodePut, CmdNodeDrop,
		CmdBuckets, CmdFreeze, CmdImport, CmdActivate, CmdDropBuckets,
		CmdTransfer:
		return true
	}
	return false
}

// fire lets what is due happen, the earliest first: sessions before waiters before remote sessions'
// records, then by id.
func (m *model) fire() {
	for {
		var at, kind, id, bucket uint64
		var do func()
		due := func(a, k, i, b uint64, f func()) {
			if m.now > a && (do == nil || slices.Compare([]uint64{a, k, i, b}, []uint64{at, kind, id, bucket}) < 0) {
				at, kind, id, bucket, do = a, k, i, b, f
			}
		}
		for _, s := range m.sessions {
			switch {
			case s.home && !s.attached:
				due(s.deadline, 1, s.id, 0, func() {
					if m.now == s.deadline+1 {
						m.countRule("session expires at its first moment")
					}
					m.end(s, protocol.EndExpired, "")
				})
			case !s.home && m.idle(s):
				due(saturated(s.used, Retention), 3, s.id, 0, func() {
					m.countRule("idle remote session forgotten")
					m.sessions = without(m.sessions, s)
				})
			}
		}
		for _, s := range m.sems {
			for _, r := range s.entries {
				if r.timed {
					due(r.deadline, 2, r.order, uint64(m.bucketOf(s)), func() {
						if m.now == r.deadline+1 {
							m.countRule("waiter times out at its first moment")
						}
						m.endWaiter(s, r)
						m.process(s)
					})
				}
				if at := r.bound(); r.owner && at != 0 {
					due(at, 7, r.order, uint64(m.bucketOf(s)), func() {
						m.endAtBound(s, r)
						m.process(s)
					})
				}
			}
		}
		if do == nil {
			break
		}
		do()
	}
	for id, until := range m.goneIDs {
		if m.now > until {
			m.countRule("gone id forgotten")
			delete(m.goneIDs, id)
		}
	}
	for id, until := range m.goneCreates {
		if m.now > until {
			m.countRule("create id forgotten")
			delete(m.goneCreates, id)
		}
	}
}

func without[T comparable](list []T, v T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return x == v })
}

func saturated(a, b uint64) uint64 {
	if a+b < a {
		return ^uint64(0)
	}
	return a + b
}

// Buckets.

func (m *model) bucketOf(s *modelSemaphore) uint32 { return protocol.Bucket(s.node, s.name, m.total) }

// isHome reports whether the session's home bucket is active here.
func (m *model) isHome(id uint64) bool {
	return m.total > 0 && protocol.SessionTier(id) == m.tier && m.active[protocol.SessionBucket(id)]
}

func (m *model) buckets(x BucketsBody) {
	if x.Total == 0 || x.Total > 1<<16 || uint64(x.First)+uint64(x.Count) > uint64(x.Total) ||
		m.total != 0 && (m.total != x.Total || m.tier != x.Tier) {
		m.reply(protocol.StatusBadRequest)
		return
	}
	m.tier, m.total = x.Tier, x.Total
	for b := x.First; b < x.First+x.Count; b++ {
		m.active[b] = true
	}
	// The home that is active now knows none of them.
	var unknown []*modelSession
	for _, s := range m.byID() {
		if !s.home && m.isHome(s.id) {
			m.countRule("remote session unknown to the home that became active")
			if !m.idle(s) {
				m.countRule("the same, and it held or waited")
			}
			unknown = append(unknown, s)
		}
	}
	m.endRemotes(unknown)
	m.reply(protocol.StatusOK)
}

// share is the part of a quota that falls to this shard: its part of the buckets, rounded up, and
// four standard deviations of room.
func (m *model) share(quota uint64) int {
	if uint32(len(m.active)) == m.total {
		return int(quota)
	}
	share := (quota*uint64(len(m.active)) + uint64(m.total) - 1) / uint64(m.total)
	root := uint64(0)
	for (root+1)*(root+1) <= share {
		root++
	}
	return int(min(quota, share+4*root+4))
}

// bytes is what the node's records weigh: 512 a session and a semaphore, 256 an owner and a waiter,
// and all their texts.
func (m *model) bytes(node uint64) (sum int) {
	for _, s := range m.sessions {
		if s.home && !s.ended && s.node == node {
			sum += 512 + len(s.desc)
		}
	}
	for _, sem := range m.sems {
		if sem.node == node {
			sum += 512 + len(sem.name) + len(sem.data) + sem.optionBytes()
			for _, r := range sem.entries {
				sum += 256 + len(r.data) + sem.placeBytes(r)
			}
		}
	}
	return sum
}

// full reports whether so many bytes more are too many. Quotas of these histories are so small that
// any shard's share is all of them, or so large that nothing fills them.
func (m *model) full(node uint64, more int) bool {
	if more <= 0 || m.bytes(node)+more <= int(m.node(node).config.MaxBytes) {
		return false
	}
	m.countRule("quota of bytes")
	return true
}

func (m *model) waiting(node uint64) (sum int) {
	for _, sem := range m.sems {
		if sem.node == node {
			sum += sem.waiters()
		}
	}
	return sum
}

// Nodes.

func (m *model) node(id uint64) *modelNode {
	for _, n := range m.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (m *model) nodePut(x NodePutBody) {
	n := m.node(x.Node)
	switch {
	case x.Node == 0:
		m.reply(protocol.StatusBadRequest)
		return
	case slices.Contains(m.dropped, x.Node):
		m.reply(protocol.StatusNotFound)
		return
	case n == nil:
		m.nodes = append(m.nodes, &modelNode{id: x.Node, revision: x.Revision, config: x.Config})
	case x.Revision > n.revision:
		// A lowered grace period counts for take-overs when a leader has led for as long as the old
		// one.
		if x.Config.GracePeriod < n.config.GracePeriod {
			m.countRule("grace period lowered")
			n.floor = n.grace(m.now)
			n.until = m.now + n.floor
		}
		n.revision, n.config = x.Revision, x.Config
	}
	m.reply(protocol.StatusOK)
}

// grace is what a take-over at this time gives to the node's sessions.
func (n *modelNode) grace(now uint64) uint64 {
	if now <= n.until && n.floor > n.config.GracePeriod {
		return max(n.floor, n.config.GracePeriod)
	}
	return n.config.GracePeriod
}

func (m *model) nodeDrop(id uint64) {
	if id == 0 {
		m.reply(protocol.StatusBadRequest)
		return
	}
	m.reply(protocol.StatusOK)
	if !slices.Contains(m.dropped, id) {
		m.dropped = append(m.dropped, id)
	}
	n := m.node(id)
	if n == nil {
		return
	}
	m.emit(Event{Kind: EventNodeDropped, Node: id})
	m.nodes = without(m.nodes, n)
	for _, home := range []bool{true, false} {
		for _, s := range m.byID() {
			switch {
			case s.node != id || s.home != home:
			case home:
				m.end(s, protocol.EndNodeDropped, "")
			default:
				m.endRemotes([]*modelSession{s})
			}
		}
	}
	m.sems = slices.DeleteFunc(m.sems, func(s *modelSemaphore) bool {
		if s.node == id {
			m.deleted(s)
		}
		return s.node == id
	})
}

func (m *model) byID() []*modelSession {
	return slices.SortedFunc(slices.Values(m.sessions), func(a, b *modelSession) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
}

// Semaphores of a node, by name.
func (m *model) byName(node uint64) []*modelSemaphore {
	var out []*modelSemaphore
	for _, s := range m.sems {
		if s.node == node {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *modelSemaphore) int { return bytes.Compare(a.name, b.name) })
	return out
}

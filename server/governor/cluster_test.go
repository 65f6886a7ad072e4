package governor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// cluster is a cluster as plain as it can be: processes that are up or down, raft groups that can
// decide while a majority of their voters is up, shards whose buckets have one number each. It is
// all that a governor asks for (Meta, Shards, Groups, Instances, Clock), without goroutines: what a
// call does it does at once, unless fate says otherwise.
type cluster struct {
	machine      *meta.Machine
	index        uint64
	now          time.Duration
	procs        map[uint64]*process
	groups       map[uint64]*plainGroup
	data         map[uint64]*plainData
	nextDelivery func() delivery
	hangs        func(x uint64) bool // exports from a shard fail
	late         []func()            // words that were lost for their sender and come later
	violation    func(text string)   // called when what must never be is
	written      map[uint32]uint64   // the number that each bucket must have
}

type delivery uint8

const (
	delivered   delivery = iota
	requestLost          // not done, and an error
	replyLost            // done, and an error
	delayed              // an error, and done later
)

// process is an instance's process.
type process struct {
	up          bool
	heard       time.Duration
	incarnation uint64
	announced   bool // its start was accepted
}

// plainGroup is a raft group.
type plainGroup struct {
	change     uint64
	voters     map[uint64]uint64 // replica -> instance
	nonVotings map[uint64]uint64
	removed    map[uint64]bool
	leader     uint64 // replica, 0 for none
	term       uint64
	log        uint64
	applied    map[uint64]uint64
}

// plainData is what a data shard knows.
type plainData struct {
	copies map[uint32]*bucketCopy
	nodes  map[uint64]uint64 // revision
}

// bucketCopy is one shard's copy of a bucket, gone or not.
type bucketCopy struct {
	state  byte // 0 absent, a active, f frozen, i imported in part, c imported whole
	epoch  uint64
	number uint64
	chunks byte
}

func newCluster(buckets, factor, perSet uint32) *cluster {
	c := &cluster{
		machine: meta.New(), now: time.Hour, procs: map[uint64]*process{}, groups: map[uint64]*plainGroup{}, data: map[uint64]*plainData{},
		nextDelivery: func() delivery { return delivered }, written: map[uint32]uint64{},
		violation: func(text string) { panic(text) },
	}
	var shards []uint64
	for n := range uint64(perSet) {
		shards = append(shards, 2+n)
	}
	c.apply(&meta.Bootstrap{
		Cluster: "c", Version: meta.Version{Major: 1}, NodeConfig: protocol.DefaultNodeConfig(),
		UUID: "a", Instance: 1, Name: "a", Address: "a:1", RaftAddress: "a:2",
		Tier: "default", Buckets: buckets, ReplicationFactor: factor, ShardsPerReplicaset: perSet, CanVote: true, Shards: shards,
		Tiers: []meta.TierSpec{{Name: "arbiter", CanVote: true}, {Name: "mute", ReplicationFactor: 2}},
	})
	c.procs[1] = &process{up: true, incarnation: 1, announced: true}
	c.heartbeat()
	return c
}

func (c *cluster) apply(cmd meta.Command) meta.Result {
	return c.entry(meta.AppendCommand(nil, meta.OpID{}, cmd))
}

func (c *cluster) entry(b []byte) meta.Result {
	c.index++
	res, err := meta.DecodeResult(c.machine.Apply(c.index, b))
	if err != nil {
		panic(err)
	}
	c.startGroups()
	return res
}

// startGroups starts the groups of new shards.
func (c *cluster) startGroups() {
	for _, x := range append([]meta.Shard{c.machine.MetaShard()}, c.machine.Shards()...) {
		if c.groups[x.ID] != nil {
			continue
		}
		g := &plainGroup{
			change: 1, log: 1, applied: map[uint64]uint64{},
			voters: map[uint64]uint64{}, nonVotings: map[uint64]uint64{}, removed: map[uint64]bool{},
		}
		for _, r := range x.Replicas {
			if r.Founder {
				g.voters[r.Replica] = r.Instance
			}
		}
		c.groups[x.ID] = g
		c.data[x.ID] = &plainData{copies: map[uint32]*bucketCopy{}, nodes: map[uint64]uint64{}}
	}
}

func (c *cluster) join(name, tier, set, domain string) meta.Result {
	labels, err := meta.ParseDomain(domain)
	if err != nil {
		panic(err)
	}
	res := c.apply(&meta.Join{
		UUID: name, Name: name, Tier: tier, Replicaset: set, Domain: labels, Version: meta.Version{Major: 1},
		Address: name + ":1", RaftAddress: name + ":2",
	})
	if res.Status == protocol.StatusOK && c.procs[res.Instance] == nil {
		c.procs[res.Instance] = &process{up: true}
	}
	return res
}

// live says that a replica's process is up and knows of it.
func (c *cluster) live(x, replica, instance uint64) bool {
	p := c.procs[instance]
	if p == nil || !p.up {
		return false
	}
	s, _ := c.machine.Shard(x)
	_, ok := s.Replica(replica)
	return ok
}

func (c *cluster) liveVoters(x uint64) (live []uint64) {
	g := c.groups[x]
	for _, id := range slices.Sorted(maps.Keys(g.voters)) {
		if c.live(x, id, g.voters[id]) {
			live = append(live, id)
		}
	}
	return live
}

// ensureLeader says whether the group can decide, electing a leader if it needs one.
func (c *cluster) ensureLeader(x uint64) bool {
	g := c.groups[x]
	if g == nil {
		return false
	}
	live := c.liveVoters(x)
	switch {
	case !isQuorum(len(g.voters), len(live)):
		g.leader = 0
		return false
	case !slices.Contains(live, g.leader):
		c.elect(x, live[int(g.term)%len(live)])
	}
	return true
}

func (c *cluster) elect(x, replica uint64) {
	g := c.groups[x]
	g.leader = replica
	g.term++
	g.log++
}

// heartbeat is half a second later.
func (c *cluster) heartbeat() {
	c.now += 500 * time.Millisecond
	c.receiveHeartbeats()
}

// receiveHeartbeats notes a heartbeat of each process that is up, and replicas catch up.
func (c *cluster) receiveHeartbeats() {
	for _, p := range c.procs {
		if p.up {
			p.heard = c.now
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		if !c.ensureLeader(id) {
			continue
		}
		g := c.groups[id]
		for _, list := range []map[uint64]uint64{g.voters, g.nonVotings} {
			for r, i := range list {
				if c.live(id, r, i) {
					g.applied[r] = g.log
				}
			}
		}
	}
}

// detectFailures is what instances say of themselves and of each other.
func (c *cluster) detectFailures() {
	if !c.ensureLeader(meta.MetaShardID) {
		return
	}
	for _, i := range c.machine.Instances() {
		p := c.procs[i.ID]
		switch {
		case p == nil: // it has joined and does not run yet
		case i.Expelled():
			p.up = false
		case p.up && i.Target.Variant != meta.Expelled && (!p.announced || i.Target.Variant == meta.Offline):
			u := &meta.InstanceUpdate{Instance: i.ID, Target: meta.Online, Reason: meta.ReasonWakeup}
			if !p.announced {
				u.Start, u.Address, u.RaftAddress, u.Domain, u.Version = true, i.Address, i.RaftAddress, i.Domain, i.Version
			}
			res := c.apply(u)
			if res.Status == protocol.StatusPreconditionFailed && u.Start { // the others have a failure domain by now
				u.Domain = []meta.Label{{Key: "DC", Value: "A"}}
				res = c.apply(u)
			}
			if res.Status == protocol.StatusOK {
				now, _ := c.machine.Instance(i.ID)
				p.announced, p.incarnation = true, now.Target.Incarnation
			}
		case !p.up && i.Target.Variant == meta.Online && c.now-p.heard > DefaultOfflineAfter:
			c.apply(&meta.InstanceUpdate{Instance: i.ID, Target: meta.Offline, Reason: "no heartbeat"})
		}
	}
}

func (c *cluster) kill(instance uint64) { c.procs[instance].up = false }

func (c *cluster) start(instance uint64) {
	if p := c.procs[instance]; !p.up {
		*p = process{up: true}
	}
}

// deliver is what becomes of a word.
func (c *cluster) deliver(f func() error) error {
	switch c.nextDelivery() {
	case requestLost:
		return errLost
	case replyLost:
		_ = f()
		return errLost
	case delayed:
		c.late = append(c.late, func() { _ = f() })
		return errLost
	}
	return f()
}

var errNoLeader = errors.New("no leader")

// Propose is Meta's.
func (c *cluster) Propose(_ context.Context, cmd []byte) (result []byte, err error) {
	cmd = slices.Clone(cmd)
	err = c.deliver(func() error {
		if !c.ensureLeader(meta.MetaShardID) {
			return errNoLeader
		}
		res := c.entry(cmd)
		result = meta.AppendResult(nil, res)
		return nil
	})
	return result, err
}

func (c *cluster) View(f func(m *meta.Machine)) { f(c.machine) }
func (c *cluster) Leading() bool                { return true }
func (c *cluster) Changed() <-chan struct{}     { return nil }
func (c *cluster) Now() time.Duration           { return c.now }
func (c *cluster) Wall() time.Time              { return time.Unix(0, int64(c.now)) }

// Health is Instances'.
func (c *cluster) Health() map[uint64]Heartbeat {
	all := make(map[uint64]Heartbeat)
	for id, p := range c.procs {
		h := Heartbeat{Heard: p.heard, Incarnation: p.incarnation, Shards: map[uint64]ShardReport{}}
		for x, g := range c.groups {
			s, ok := c.machine.Shard(x)
			r, on := s.On(id)
			if !ok || !on || !p.up {
				continue
			}
			y := ShardReport{Replica: r.Replica, Applied: g.applied[r.Replica], Members: g.change}
			_, votes := g.voters[r.Replica]
			_, listens := g.nonVotings[r.Replica]
			if (votes || listens) && c.ensureLeader(x) {
				y.Leader, y.Term = g.leader, g.term
			}
			if y.Leader == r.Replica && r.Replica != 0 {
				y.Applied = g.log
			}
			h.Shards[x] = y
		}
		all[id] = h
	}
	return all
}

// clusterShards and clusterGroups are the other interfaces, whose methods have names in common.
type clusterShards struct{ *cluster }

func (s clusterShards) Propose(_ context.Context, x uint64, cmd shard.Command) error {
	cmd.Body = slices.Clone(cmd.Body)
	return s.deliver(func() error {
		if !s.ensureLeader(x) {
			return errNoLeader
		}
		s.groups[x].log++
		return s.do(x, cmd)
	})
}

func (s clusterShards) LeaderEpoch(_ context.Context, x uint64) (uint64, error) {
	if !s.ensureLeader(x) {
		return 0, errNoLeader
	}
	return s.groups[x].term, nil
}

// CopyBuckets imports one chunk in each call. There is a chunk for each half of the buckets.
func (s clusterShards) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	if !s.ensureLeader(source) || !s.ensureLeader(target) {
		return false, errNoLeader
	}
	if s.hangs != nil && s.hangs(source) {
		return false, errLost
	}
	part := byte(0)
	if y := s.data[target].copies[run.First]; y != nil && y.epoch == run.Epoch {
		if y.state == 'c' || y.state == 'a' {
			return true, nil
		}
		part = y.chunks
	}
	chunk := []byte{part}
	for b := run.First; b < run.First+run.Count; b++ {
		y := s.data[source].copies[b]
		if y == nil || y.state != 'f' || y.epoch != run.Epoch {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed, "bucket %d is not frozen under %d", b, run.Epoch)
		}
		chunk = binary.AppendUvarint(chunk, y.number)
	}
	body := shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk})
	err = s.Propose(ctx, target, shard.Command{Kind: shard.CmdImport, Body: body})
	return part == 1 && err == nil, err
}

// do is a data shard's apply.
func (c *cluster) do(x uint64, cmd shard.Command) error {
	body := cmd.Body
	number := func() uint64 {
		v, n := binary.Uvarint(body)
		body = body[n:]
		return v
	}
	d := c.data[x]
	switch cmd.Kind {
	case shard.CmdNodePut:
		node, revision := number(), number()
		d.nodes[node] = max(d.nodes[node], revision)
		return nil
	case shard.CmdNodeDrop:
		delete(d.nodes, number())
		return nil
	}
	body = body[1:]
	_, first, count, epoch := number(), uint32(number()), uint32(number()), number()
	part := byte(0)
	if cmd.Kind == shard.CmdImport {
		part, body = body[0], body[1:]
	}
	for b := first; b < first+count; b++ {
		y := d.copies[b]
		if y == nil {
			y = &bucketCopy{}
			d.copies[b] = y
		}
		imported := uint64(0)
		if cmd.Kind == shard.CmdImport {
			imported = number()
		}
		if err := y.step(cmd.Kind, epoch, part, imported); err != nil {
			return fmt.Errorf("shard %d, bucket %d at %c epoch %d: %w", x, b, y.state|'_', y.epoch, err)
		}
	}
	c.checkBuckets()
	return nil
}

// step is one step of a move as a data shard takes it.
func (y *bucketCopy) step(kind shard.CommandKind, epoch uint64, part byte, number uint64) error {
	refused := protocol.Errorf(protocol.StatusPreconditionFailed, "step %d under epoch %d is refused", kind, epoch)
	switch kind {
	case shard.CmdBuckets:
		if y.state == 0 && y.epoch == 0 {
			y.state, y.epoch = 'a', max(1, epoch)
		}
	case shard.CmdFreeze:
		switch {
		case y.state == 'a' && y.epoch < epoch:
			y.state, y.epoch = 'f', epoch
		case y.state != 'f' || y.epoch != epoch:
			return refused
		}
	case shard.CmdImport:
		switch {
		case y.epoch == epoch && (y.state == 'c' || y.state == 'a'):
		case y.epoch < epoch && (y.state == 0 || y.state == 'i' || y.state == 'c'):
			*y = bucketCopy{state: 'i', epoch: epoch}
			fallthrough
		case y.epoch == epoch && y.state == 'i':
			if part > y.chunks {
				return protocol.Errorf(protocol.StatusAborted, "chunk %d comes too early", part)
			}
			if y.chunks = max(y.chunks, part+1); y.chunks == 2 {
				y.state = 'c'
			}
			y.number = number
		default:
			return refused
		}
	case shard.CmdActivate:
		switch {
		case y.epoch == epoch && y.state == 'a':
		case y.epoch == epoch && y.state == 'c', y.epoch < epoch && (y.state == 'f' || y.state == 'a'):
			y.state, y.epoch = 'a', epoch
		default:
			return refused
		}
	case shard.CmdDropBuckets:
		switch {
		case y.epoch > epoch || (y.epoch == epoch && (y.state == 'a' || y.state == 'c')):
			return refused
		case y.state == 'a':
			return refused
		default:
			*y = bucketCopy{epoch: epoch}
		}
	}
	return nil
}

// checkBuckets: each bucket is active in one shard at most, with all that was written.
func (c *cluster) checkBuckets() {
	active := map[uint32]uint64{}
	for _, x := range slices.Sorted(maps.Keys(c.data)) {
		if _, ok := c.machine.Shard(x); !ok {
			continue
		}
		for b, y := range c.data[x].copies {
			if y.state != 'a' {
				continue
			}
			if other, twice := active[b]; twice {
				c.violation(fmt.Sprintf("bucket %d is active in shards %d and %d", b, other, x))
			}
			active[b] = x
			if y.number != c.written[b] {
				c.violation(fmt.Sprintf("bucket %d in shard %d has %d, but %d was written", b, x, y.number, c.written[b]))
			}
		}
	}
}

// write is a client's write to a bucket, by the map; a retry if it is refused.
func (c *cluster) write(b uint32) {
	x, _ := c.machine.Route(0, b)
	if x == 0 || !c.ensureLeader(x) {
		return
	}
	if y := c.data[x].copies[b]; y != nil && y.state == 'a' {
		y.number++
		c.written[b]++
	}
}

type clusterGroups struct{ *cluster }

func (s clusterGroups) Members(_ context.Context, x uint64) (Membership, error) {
	if !s.ensureLeader(x) {
		return Membership{}, errNoLeader
	}
	g := s.groups[x]
	m := Membership{
		ConfigChange: g.change, Voters: map[uint64]string{}, NonVotings: map[uint64]string{},
		Removed: slices.Sorted(maps.Keys(g.removed)),
	}
	for id := range g.voters {
		m.Voters[id] = "x"
	}
	for id := range g.nonVotings {
		m.NonVotings[id] = "x"
	}
	return m, nil
}

// alter makes a change of a group, if it is made for the group as it is. It must be able to decide
// afterwards, as far as could be heard when it was asked for.
func (s clusterGroups) alter(x, change uint64, f func(g *plainGroup) error) error {
	heard := map[uint64]bool{}
	for id, p := range s.procs {
		heard[id] = s.now-p.heard <= DefaultOfflineAfter
	}
	return s.deliver(func() error {
		if !s.ensureLeader(x) {
			return errNoLeader
		}
		g := s.groups[x]
		if g.change != change {
			return protocol.Errorf(protocol.StatusAborted, "the group has changed")
		}
		before := len(g.voters)
		if err := f(g); err != nil {
			return err
		}
		g.change++
		g.log++
		live := 0
		for _, instance := range g.voters {
			if heard[instance] {
				live++
			}
		}
		if len(g.voters) != before && !isQuorum(len(g.voters), live) {
			s.violation(fmt.Sprintf("after a change of shard %d only %d of its voters %v were heard", x, live, g.voters))
		}
		return nil
	})
}

func (s clusterGroups) AddNonVoting(_ context.Context, x, replica uint64, _ string, change uint64) error {
	i, _ := s.machine.Shard(x)
	r, _ := i.Replica(replica)
	return s.alter(x, change, func(g *plainGroup) error {
		if g.removed[replica] || g.voters[replica] != 0 {
			return protocol.Errorf(protocol.StatusPreconditionFailed, "removed, or a voter")
		}
		for id, instance := range g.voters {
			if instance == r.Instance && id != replica {
				s.violation(fmt.Sprintf("instance %d has two replicas of shard %d", instance, x))
			}
		}
		g.nonVotings[replica] = r.Instance
		return nil
	})
}

func (s clusterGroups) Promote(_ context.Context, x, replica, change uint64) error {
	return s.alter(x, change, func(g *plainGroup) error {
		i, ok := g.nonVotings[replica]
		if !ok {
			return protocol.Errorf(protocol.StatusNotFound, "no such replica")
		}
		delete(g.nonVotings, replica)
		g.voters[replica] = i
		return nil
	})
}

func (s clusterGroups) Remove(_ context.Context, x, replica, change uint64) error {
	return s.alter(x, change, func(g *plainGroup) error {
		if len(g.voters) == 1 && g.voters[replica] != 0 {
			return protocol.Errorf(protocol.StatusPreconditionFailed, "the last voter")
		}
		delete(g.voters, replica)
		delete(g.nonVotings, replica)
		g.removed[replica] = true
		return nil
	})
}

func (s clusterGroups) Transfer(_ context.Context, x, replica, after uint64) error {
	return s.deliver(func() error {
		if !s.ensureLeader(x) || !slices.Contains(s.liveVoters(x), replica) {
			return errNoLeader
		}
		if s.groups[x].leader != replica {
			s.elect(x, replica)
		}
		if s.groups[x].term <= after {
			return errNoLeader
		}
		return nil
	})
}

// governor is a governor of this cluster, without its loop.
func (c *cluster) governor() *Governor {
	return New(Config{Meta: c, Shards: clusterShards{c}, Groups: clusterGroups{c}, Instances: c, Clock: c})
}

// view is what the governor that leads sees.
func (c *cluster) view(p *Progress) View {
	v := View{State: &c.machine.State, Progress: p, Now: c.now, Health: c.Health()}
	p.Update(v)
	return v
}

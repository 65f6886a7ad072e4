package governor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	hangs        func(x uint64) bool  // exports from a shard fail
	late         []func()             // words that were lost for their sender and come later
	violation    func(text string)    // called when what must never be is
	written      map[bucketKey]uint64 // the number that each bucket must have
	unreached    map[uint64]Unreached
}

// bucketKey is a bucket of a tier.
type bucketKey struct {
	tier   uint8
	bucket uint32
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

// newCluster is a cluster of the instance a in tier 0, with two tiers without data, and more with
// ids from 3 on.
func newCluster(buckets, factor, perSet uint32, more ...meta.TierSpec) *cluster {
	return makeCluster(bootstrapOf(buckets, factor, perSet, more...))
}

func bootstrapOf(buckets, factor, perSet uint32, more ...meta.TierSpec) *meta.Bootstrap {
	var shards []uint64
	for n := range uint64(perSet) {
		shards = append(shards, 2+n)
	}
	return &meta.Bootstrap{
		Cluster: "c", Version: meta.Version{Major: 1}, NodeConfig: protocol.DefaultNodeConfig(),
		UUID: "a", Instance: 1, Name: "a", Address: "a:1", RaftAddress: "a:2",
		Tier: "default", Buckets: buckets, ReplicationFactor: factor, ShardsPerReplicaset: perSet, CanVote: true, Shards: shards,
		Tiers: append([]meta.TierSpec{{Name: "arbiter", CanVote: true}, {Name: "mute", ReplicationFactor: 2}}, more...),
	}
}

func makeCluster(b *meta.Bootstrap) *cluster {
	c := &cluster{
		machine: meta.New(), now: time.Hour, procs: map[uint64]*process{}, groups: map[uint64]*plainGroup{}, data: map[uint64]*plainData{},
		nextDelivery: func() delivery { return delivered }, written: map[bucketKey]uint64{},
		violation: func(text string) { panic(text) },
	}
	if res := c.apply(b); res.Status != protocol.StatusOK {
		panic(res.Message)
	}
	c.procs[1] = &process{up: true, incarnation: 1, announced: true}
	c.heartbeat()
	return c
}

// newRestoredCluster is such a cluster that is made from a backup with data in all tiers that may
// have some. Each of their buckets has a number in it.
func newRestoredCluster(buckets, perSet uint32, more ...meta.TierSpec) *cluster {
	old := newCluster(buckets, 1, perSet, more...)
	for _, t := range more {
		i, _ := old.machine.Instance(old.join("old-"+t.Name, t.Name, "", "").Instance)
		for _, cmd := range []meta.Command{&meta.ReplicasetIsReady{Replicaset: i.Replicaset},
			&meta.ShardsCreate{Replicaset: i.Replicaset, Instance: i.ID}, &meta.BucketsAssign{Tier: i.Tier}} {
			if res := old.apply(cmd); res.Status != protocol.StatusOK {
				panic(res.Message)
			}
		}
	}
	var snapshot bytes.Buffer
	if _, err := old.machine.BeginSnapshot().WriteTo(&snapshot); err != nil {
		panic(err)
	}
	b := bootstrapOf(buckets, 1, perSet, more...)
	b.Cluster, b.Shards, b.Restored, b.RestoredEpoch, b.RestoredBackup = "restored", nil, snapshot.Bytes(), meta.FirstEpoch+1, 0xbac
	c := makeCluster(b)
	for _, t := range c.machine.Tiers() {
		for b := range t.Buckets {
			c.written[bucketKey{t.ID, b}] = 1000 + uint64(b)
		}
	}
	return c
}

// restore is what a restore does on an instance: its shards import the buckets of its tier in two
// chunks each, and then they are assigned. It may end before the last chunk.
func (c *cluster) restore(instance uint64, chunks byte) error {
	i, _ := c.machine.Instance(instance)
	t, _ := c.machine.Tier(i.Tier)
	var ids []uint64
	for _, x := range c.machine.ShardsOf(i.Replicaset) {
		r, ok := x.On(instance)
		if !ok || !r.Founder || !c.procs[instance].up || !c.ensureLeader(x.ID) {
			return errNoLeader
		}
		ids = append(ids, x.ID)
	}
	if !t.ToBeRestored() || len(ids) == 0 {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "nothing to restore")
	}
	for _, run := range t.RestoredRuns(ids) {
		for part := range chunks {
			chunk := []byte{part}
			for b := run.First; b < run.First+run.Count; b++ {
				chunk = binary.AppendUvarint(chunk, c.written[bucketKey{t.ID, b}])
			}
			body := shard.ImportBody{Chunk: chunk, BucketsBody: shard.BucketsBody{
				Tier: t.ID, Total: t.Buckets, First: run.First, Count: run.Count, Epoch: run.Epoch}}
			if err := c.do(run.Shard, shard.Command{Kind: shard.CmdImport, Body: shard.AppendImport(nil, body)}); err != nil {
				return err
			}
		}
	}
	if chunks < 2 || !c.ensureLeader(meta.MetaShardID) {
		return errNoLeader
	}
	res := c.apply(&meta.TierRestored{Tier: t.ID, Backup: t.Restore.Backup, Shards: ids})
	return res.Err()
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

// live reports whether a replica's process is up and knows of it.
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

// ensureLeader reports whether the group can decide, electing a leader if it needs one.
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

func (c *cluster) State() *meta.State {
	s := c.machine.State
	return &s
}

func (c *cluster) Leading() bool { return true }

func (c *cluster) Changed() <-chan struct{} { return nil }

func (c *cluster) Now() time.Duration { return c.now }

func (c *cluster) Wall() time.Time { return time.Unix(0, int64(c.now)) }

// Unreached is Instances'.
func (c *cluster) Unreached() map[uint64]Unreached { return c.unreached }

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

// governor is a governor of this cluster, without its loop.
func (c *cluster) governor() *Governor {
	return New(Config{Meta: c, Shards: clusterShards{c}, Groups: clusterGroups{c}, Instances: c, Clock: c})
}

// view is what the governor that leads sees.
func (c *cluster) view(p *Progress) View {
	v := View{State: &c.machine.State, Progress: p, Now: c.now, Health: c.Health(), Unreached: c.unreached}
	p.Update(v)
	return v
}

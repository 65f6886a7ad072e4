package sim

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// instance is a server process. It hosts one replica, or one of each shard.
type instance struct {
	w      *simulation
	id     uint64
	n      uint32
	life   int // restarts so far
	hosted []*replica
	known  *clusterMap // the newest map that it has learned
	conns  []*conn     // that are open, as the instance sees it
	inbox  []func()    // what arrives during a pause
	bound  map[uint64][]*binding
	ended  map[uint64]*conn // session -> the connection that it had when it ended

	rate, offset                          uint64 // of its clock: ppm of the world's time, ms
	pausedUntil, isolatedUntil, downUntil uint64 // until
}

// clusterMap is the map at one version. It is never changed.
type clusterMap struct {
	version      uint64
	owner, epoch [buckets]uint64 // by bucket: shard, bucket epoch
	shards       [shards]*raftGroup
}

func (w *simulation) newInstance(n uint32) *instance {
	in := &instance{w: w, id: uint64(len(w.instances)) + 1, n: n, known: w.routes}
	in.rate, in.offset = 1_000_000-5_000+w.pick(Elect, n, 10_001), w.pick(Elect, n, 1<<20)
	w.instances = append(w.instances, in)
	in.boot()
	return in
}

// boot begins a life of the process: its connections and what it knows of sessions are gone.
func (in *instance) boot() {
	in.life++
	in.conns, in.inbox = nil, nil
	in.bound, in.ended = map[uint64][]*binding{}, map[uint64]*conn{}
	for _, r := range in.hosted {
		r.boot()
	}
}

// crash ends a life of the process, with its connections.
func (in *instance) crash() {
	in.downUntil = in.w.now + 200 + in.w.pick(Crash, in.n, 4_000)
	for _, k := range in.conns {
		k.open = false
		delete(in.w.conns, k.id)
		k.toClient(func() { k.lose() })
	}
	in.boot()
}

func addressOf(instance uint64) string { return fmt.Sprint("i", instance) }

func (w *simulation) instanceAt(address string) *instance {
	id, _ := strconv.Atoi(address[1:])
	return w.instances[id-1]
}

func (in *instance) up() bool      { return in.w.now >= in.downUntil }
func (in *instance) running() bool { return in.up() && in.w.now >= in.pausedUntil }

func (in *instance) clock() uint64 { return in.offset + in.w.now*in.rate/1_000_000 }

// call calls the process as soon as it runs.
func (in *instance) call(f func()) {
	switch {
	case !in.up():
	case in.w.now < in.pausedUntil || len(in.inbox) > 0: // what came before it is first
		in.inbox = append(in.inbox, f)
	default:
		f()
	}
}

func (in *instance) step() {
	w := in.w
	switch {
	case !in.up():
		return
	case w.fault(Crash, in.n, 0.001):
		in.crash()
		return
	case w.now < in.pausedUntil:
		return
	case w.fault(Pause, in.n, 0.002):
		in.pausedUntil = w.now + 300 + w.pick(Pause, in.n, 6_000)
		return
	case w.fault(Isolate, in.n, 0.002):
		in.isolatedUntil = w.now + 500 + w.pick(Isolate, in.n, 7_000)
	}
	life, inbox := in.life, in.inbox
	in.inbox = nil
	for _, f := range inbox {
		if f(); in.life != life {
			return
		}
	}
	for _, r := range in.hosted {
		if r.step(); in.life != life {
			return
		}
	}
}

// replicaOf is the replica here of the shard that owns a bucket in this instance's map; nil: another
// instance serves it.
func (in *instance) replicaOf(bucket uint64) *replica {
	if bucket >= buckets {
		return nil
	}
	i := slices.IndexFunc(in.hosted, func(r *replica) bool { return r.s.id == in.known.owner[bucket] })
	if i < 0 {
		return nil
	}
	return in.hosted[i]
}

// learn takes a newer map, and announces it.
func (in *instance) learn(m *clusterMap) {
	if m.version <= in.known.version {
		return
	}
	in.known = m
	life := in.life
	for _, r := range in.hosted {
		r.leader.RouteChanged(r.clock())
		if r.execute(); in.life != life {
			return
		}
	}
	in.announce(&protocol.MapChanged{Version: m.version})
}

func (in *instance) announce(m *protocol.MapChanged) {
	for _, k := range in.conns {
		k.event(protocol.KindMapChanged, m)
	}
}

// announceLeader announces who leads a shard, as far as the replica here knows.
func (r *replica) announceLeader() {
	if leader, term := r.leaderInstance(); leader != 0 {
		r.announce(&protocol.MapChanged{Version: r.known.version, Shard: r.s.id, Master: leader, Term: term})
	}
}

// leaderInstance is the instance that leads the shard, and its term, as far as the replica knows.
func (r *replica) leaderInstance() (instance, term uint64) {
	if r.knownLeader == nil {
		return 0, 0
	}
	return r.knownLeader.id, r.knownTerm
}

// mapReply is the map for clients. Of shards that are hosted here it has the leaders as they are
// known here.
func (in *instance) mapReply(known uint64) *protocol.MapReply {
	m := in.known
	reply := &protocol.MapReply{Version: m.version, Cluster: cluster}
	if known == m.version {
		return reply
	}
	for _, s := range m.shards {
		x := protocol.MapShard{ID: s.id, Master: s.replicas[0].id}
		for _, r := range s.replicas {
			x.Replicas = append(x.Replicas, r.id)
			if leader, term := r.leaderInstance(); r.instance == in && leader != 0 {
				x.Master, x.Term = leader, term
			}
			if !slices.ContainsFunc(reply.Instances, func(i protocol.MapInstance) bool { return i.ID == r.id }) {
				reply.Instances = append(reply.Instances, protocol.MapInstance{ID: r.id, Address: addressOf(r.id)})
			}
		}
		reply.Shards = append(reply.Shards, x)
	}
	tier := protocol.MapTier{ID: in.w.tier, Buckets: buckets}
	for _, owner := range m.owner {
		tier.Runs = append(tier.Runs, protocol.MapRun{Count: 1, Shard: owner})
	}
	reply.Tiers = append(reply.Tiers, tier)
	return reply
}

// binding is a connection's proof of a session, under an attach epoch. See server/session.
type binding struct {
	k              *conn
	session, epoch uint64
	home           *replica // nil: it was presented by a ticket
	unlogged       bool     // a relaxed attach that the log may not have yet
}

// bind binds a session to a connection, and takes it from others that have it under an older epoch,
// or by the same attach.
func (in *instance) bind(b *binding) {
	if !b.k.open {
		return
	}
	var list, older []*binding
	for _, have := range in.bound[b.session] {
		switch {
		case have.k == b.k && (have.epoch > b.epoch || have.epoch == b.epoch && b.home == nil):
			return
		case have.k == b.k:
		case have.epoch < b.epoch || have.epoch == b.epoch && have.home != nil && b.home != nil:
			older = append(older, have)
		default:
			list = append(list, have)
		}
	}
	at := 0 // those of a newer epoch stay before it
	for at < len(list) && list[at].epoch > b.epoch {
		at++
	}
	in.bound[b.session] = slices.Insert(list, at, b)
	in.notifyTakenOver(older, b.epoch)
	b.k.askWaiting(in)
}

// attachedElsewhere takes a session from connections that have it under an older epoch.
func (in *instance) attachedElsewhere(session, epoch uint64) {
	var older []*binding
	for _, b := range slices.Clone(in.bound[session]) {
		if b.epoch < epoch || b.epoch == epoch && b.home != nil {
			older = append(older, b)
			in.unbind(b)
		}
	}
	in.notifyTakenOver(older, epoch)
}

func (in *instance) notifyTakenOver(older []*binding, epoch uint64) {
	for _, b := range older {
		b.k.askWaiting(in)
		b.k.event(protocol.KindTakenOver, &protocol.TakenOver{Session: b.session, Epoch: epoch})
	}
}

func (in *instance) unbind(b *binding) {
	in.bound[b.session] = slices.DeleteFunc(in.bound[b.session], func(x *binding) bool { return x == b })
	if len(in.bound[b.session]) == 0 {
		delete(in.bound, b.session)
	}
	b.k.askWaiting(in)
}

// binding is a session's binding on a connection; nil: there is none.
func (k *conn) binding(session uint64) *binding {
	for _, b := range k.in.bound[session] {
		if b.k == k {
			return b
		}
	}
	return nil
}

// bindings are those of a connection, in order of the sessions.
func (k *conn) bindings() (list []*binding) {
	for _, id := range sorted(k.in.bound) {
		if b := k.binding(id); b != nil {
			list = append(list, b)
		}
	}
	return list
}

// endSession ends all that is bound for a session.
func (in *instance) endSession(x *shard.Event) {
	list := in.bound[x.Session]
	delete(in.bound, x.Session)
	for i, b := range list {
		if i == 0 {
			in.ended[x.Session] = b.k
		}
		b.k.ended = append(b.k.ended, x.Session)
		b.k.askWaiting(in)
		b.k.event(protocol.KindSessionEnded, &protocol.SessionEnded{Session: x.Session, Reason: x.Reason, Message: x.Text})
	}
}

// detach takes the sessions of some home buckets off the connections of this instance.
func (r *replica) detach(first, count uint32, from ...*conn) {
	for _, id := range sorted(r.bound) {
		if bucket := protocol.SessionBucket(id); bucket < first || bucket-first >= count {
			continue
		}
		for _, b := range slices.Clone(r.bound[id]) {
			if b.home == r && (from == nil || slices.Contains(from, b.k)) {
				r.unbind(b)
				b.k.event(protocol.KindDetached, &protocol.Detached{Session: id, Epoch: b.epoch})
				r.w.counts["detached by the server"]++
			}
		}
	}
}

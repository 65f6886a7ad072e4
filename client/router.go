package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// cluster is the instances as this client reaches them: the map, a connection to each instance, and
// which of them leads each shard.
type cluster struct {
	*lifetime
	*dialer
	replicaSeed     uint64               // chooses the replicas that this client reads from
	shortestTimeout func() time.Duration // of the client's sessions; 0: there is none
	mapFetched      func(first bool)     // is called when there is a newer map, without locks

	routes atomic.Pointer[routeTable]

	mu                sync.Mutex
	connectors        map[uint64]*connector // by instance
	bootstrap         *connector            // dials the endpoints
	mapFetch          *sharedAttempt        // of the map
	announced         announcedMap          // the newest map that an instance announced
	fetchingAnnounced bool                  // somebody fetches it
	newMap            chan struct{}         // closed and replaced with every new map
	mapUsers          atomic.Int32          // calls that wait for a newer map
	mapWanted         chan struct{}         // capacity 1: one more does
	watching          func() bool           // whether the client has watches, which follow the map
	awaitsInstance    bool                  // a try waits for an instance to get the map that this client has
}

func newCluster(l *lifetime, d *dialer) *cluster {
	c := &cluster{lifetime: l, dialer: d, replicaSeed: rand.Uint64() >> 1,
		connectors: make(map[uint64]*connector), newMap: make(chan struct{}), mapWanted: make(chan struct{}, 1)}
	c.bootstrap = &connector{c: c, addresses: d.cfg.Endpoints,
		backoff: backoff{base: reconnectBase, max: reconnectMax}}
	return c
}

// anyConn is a connection to any instance: the one that sent something last, since another may be
// cut off.
func (c *cluster) anyConn(ctx context.Context) (*conn, error) {
	var best *conn
	c.mu.Lock()
	for _, l := range c.connectors {
		if cn := l.live(); cn != nil && (best == nil || cn.lastHeard.Load() > best.lastHeard.Load()) {
			best = cn
		}
	}
	c.mu.Unlock()
	if best != nil {
		return best, nil
	}
	if r := c.routes.Load(); r != nil {
		// Every instance that is known may be the one that is left.
		c.bootstrap.mu.Lock()
		c.bootstrap.know(slices.Collect(maps.Values(r.instances))...)
		c.bootstrap.mu.Unlock()
	}
	return c.bootstrap.get(ctx, nil)
}

// masterTimeout is how long the connection to a master is waited for before another replica is
// asked who is the master now. The attempt goes on.
const masterTimeout = 300 * time.Millisecond

// connToShard is the connection to the master of a shard. If that cannot be reached, the next call
// tries another replica, which is the master by now or knows it.
func (c *cluster) connToShard(ctx context.Context, shard uint64) (*conn, error) {
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return nil, err
	}
	if w := r.byShard[shard]; w != nil {
		if cn := w.conn(); cn != nil {
			return cn, nil
		}
	}
	defer c.needMap()() // the instance may be gone by the newer one
	moved := c.mapChanged()
	r = c.routes.Load() // what is newer than this ends the wait
	w := r.byShard[shard]
	if w == nil {
		return nil, protocol.Errorf(protocol.StatusWrongShard, "the cluster map has no shard %d", shard)
	}
	master := w.master.Load()
	if master == 0 {
		c.tryNextReplica(w, 0)
		master = w.master.Load()
	}
	if master == 0 {
		return nil, protocol.Errorf(protocol.StatusWrongShard,
			"the cluster map names no instance for shard %d", shard)
	}
	if len(w.replicas) < 2 {
		return c.connector(master, "").getVia(ctx, r.instances[master], moved)
	}
	cn, err := c.connWithin(ctx, r, master, moved)
	if err != nil && ctx.Err() == nil {
		c.tryNextReplica(w, master)
	}
	return cn, err
}

// connWithin is the connection to an instance that is not the only one to ask: it does not wait
// long.
func (c *cluster) connWithin(
	ctx context.Context, r *routeTable, instance uint64, moved <-chan struct{},
) (*conn, error) {
	l := c.connector(instance, "")
	if cn := l.live(); cn != nil {
		return cn, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, masterTimeout, errMasterTimeout)
	defer cancel()
	return l.getVia(ctx, r.instances[instance], moved)
}

// errMasterTimeout: an instance was given up for now.
var errMasterTimeout = fmt.Errorf("%w within %s", ErrUnreachable, masterTimeout)

// connToReplica is the connection to a replica of a shard. First it is the one that this client
// chose at random for good, so that clients are spread. After failures it is the master, and then
// one replica after the other.
func (c *cluster) connToReplica(ctx context.Context, shard uint64, failures int) (*conn, error) {
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return nil, err
	}
	w := r.byShard[shard]
	if w == nil || len(w.replicas) < 2 || failures == 1 {
		return c.connToShard(ctx, shard)
	}
	at := w.replicas[(c.replicaSeed+shard+uint64(max(0, failures-1)))%uint64(len(w.replicas))]
	cn, err := c.connWithin(ctx, r, at, nil)
	if err != nil && failures == 0 && ctx.Err() == nil {
		return c.connToShard(ctx, shard)
	}
	return cn, err
}

func (w *shardRoute) conn() *conn {
	if l := w.connector.Load(); l != nil {
		return l.live()
	}
	return nil
}

// tryNextReplica looks for the shard at another replica, if from is still where it is looked for.
// It mostly takes one that the client is connected to, because that can be asked at once.
func (c *cluster) tryNextReplica(w *shardRoute, from uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(w.replicas)
	if w.master.Load() != from || n == 0 || n == 1 && w.replicas[0] == from {
		return
	}
	at := slices.Index(w.replicas, from)
	var next, live uint64
	for i := range n {
		x := w.replicas[(at+1+i)%n]
		if x == from {
			continue
		}
		next = cmp.Or(next, x)
		if l := c.connectors[x]; l != nil && live == 0 && l.live() != nil {
			live = x
		}
	}
	if live != 0 && rand.N(4) != 0 {
		next = live
	}
	c.setMaster(w, next)
}

// setMaster makes an instance the one where a shard is looked for. mu is held.
func (c *cluster) setMaster(w *shardRoute, master uint64) {
	if w.master.Load() == master && w.connector.Load() != nil {
		return
	}
	w.connector.Store(c.connectorLocked(master))
	w.master.Store(master)
}

// learnMaster processes an instance's word about a shard's master and its raft term. Older terms
// are ignored. A newer term, or word from the master itself, wakes the tries and acquires that wait
// for the shard. moved says that the term is newer.
func (c *cluster) learnMaster(w *shardRoute, from, master, term uint64) (moved bool) {
	c.mu.Lock()
	if master == 0 || term < w.term || !slices.Contains(w.replicas, master) {
		c.mu.Unlock()
		return false
	}
	moved = term > w.term
	isNew := moved || from == master
	w.term = term
	c.setMaster(w, master)
	l := w.connector.Load()
	if isNew {
		c.announceRoutes()
	}
	c.mu.Unlock()
	if isNew && w.conn() == nil {
		l.resetBackoff()
	}
	if moved {
		c.leaderMoved(w.shard, master)
	}
	return moved
}

// learnOwner has requests for a bucket of a shard go to the shard that owns it in a newer map than
// this client's, until that map is here. False: they go elsewhere already, or the map has no such
// owner, or a still newer word was heard before.
func (c *cluster) learnOwner(asked *shardRoute, bucket uint32, owner, version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.routes.Load()
	if version <= r.version || version < r.ownersVersion || owner == asked.shard ||
		r.owner(asked.tier, bucket) != asked.shard {
		return false
	}
	next := r.withOwner(asked.tier, bucket, owner, version)
	if next == nil {
		return false
	}
	c.routes.Store(next)
	return true
}

// liveToBucket is connToBucket if that need not wait; otherwise the connection is nil.
func (c *cluster) liveToBucket(tier uint8, bucket uint32) (*conn, uint64) {
	r := c.routes.Load()
	if r == nil {
		return nil, 0
	}
	if w := r.forBucket(tier, bucket); w != nil {
		return w.conn(), w.shard
	}
	return nil, 0
}

// connToBucket is the connection to the master of the shard that owns a bucket, and that shard.
func (c *cluster) connToBucket(ctx context.Context, tier uint8, bucket uint32) (*conn, uint64, error) {
	if cn, shard := c.liveToBucket(tier, bucket); cn != nil {
		return cn, shard, nil
	}
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return nil, 0, err
	}
	shard := r.owner(tier, bucket)
	if shard == 0 {
		return nil, 0, protocol.Errorf(protocol.StatusWrongShard,
			"the cluster map has no shard for bucket %d of tier %d", bucket, tier)
	}
	cn, err := c.connToShard(ctx, shard)
	return cn, shard, err
}

// tierOf is a tier of the present map. A cluster that was made a moment ago has none yet, and is
// waited for.
func (c *cluster) tierOf(ctx context.Context, id uint8) (*tier, error) {
	retry := backoff{base: retryBase, max: retryMax}
	for {
		r, err := c.currentRoutes(ctx)
		if err != nil {
			return nil, err
		}
		if t := r.tier(id); t != nil && len(t.shards) > 0 {
			return t, nil
		}
		moved := c.mapChanged()
		fresh, err := c.refreshMap(ctx, r)
		switch {
		case fresh:
			continue
		case c.ctx.Err() != nil:
			return nil, ErrClientClosed
		case err != nil && ctx.Err() == nil && !canResend(err):
			return nil, err
		}
		select {
		case <-moved:
		case <-time.After(retry.next()):
		case <-ctx.Done():
			return nil, interrupted(ctx,
				protocol.Errorf(protocol.StatusUnavailable, "the cluster map has no shard for tier %d yet: "+
					"the cluster is being made, or no instance of that tier was started", id))
		case <-c.ctx.Done():
			return nil, ErrClientClosed
		}
	}
}

// preferredConn is the connection to the replica that this client reads from, or nil if the master
// must be asked. It starts to make a missing connection.
func (c *cluster) preferredConn(tier uint8, bucket uint32, grace time.Duration) (*conn, uint64) {
	r := c.routes.Load()
	if r == nil {
		return nil, 0
	}
	w := r.forBucket(tier, bucket)
	if w == nil || len(w.replicas) < 2 {
		return nil, 0
	}
	if w.lastWrite.recent(c.clock.now(), grace) {
		return nil, 0
	}
	at := c.preferredReplica(w)
	l := c.connector(at, "")
	if cn := l.live(); cn != nil {
		return cn, w.shard
	}
	l.dialInBackground(r.instances[at])
	return nil, 0
}

func (c *cluster) preferredReplica(w *shardRoute) uint64 {
	return w.replicas[(c.replicaSeed+w.shard)%uint64(len(w.replicas))]
}

package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// destination finds the connection that a request goes to, the bucket that routes it there, and the
// shard that serves it, 0 for none. The shard is also returned with an error.
type destination func(ctx context.Context) (cn *conn, bucket, shard uint64, err error)

func (c *cluster) anyInstance(ctx context.Context) (*conn, uint64, uint64, error) {
	cn, err := c.anyConn(ctx)
	return cn, 0, 0, err
}

// atBucket is the destination of requests that a bucket's shard serves.
func (c *cluster) atBucket(tier uint8, bucket uint32) destination {
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		cn, shard, err := c.connToBucket(ctx, tier, bucket)
		return cn, uint64(bucket), shard, err
	}
}

func (c *cluster) atShard(tier uint8, shard uint64) destination {
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		t, err := c.tierOf(ctx, tier)
		if err != nil {
			return nil, 0, shard, err
		}
		if !slices.Contains(t.shards, shard) {
			return nil, 0, shard, errShardsChanged
		}
		cn, err := c.connToShard(ctx, shard)
		return cn, uint64(t.someBucket[shard]), shard, err
	}
}

// request sends a request that belongs to no session, again and again until an answer decides it or
// ctx ends, or until the server says that a change waits for a shard without a majority: a person
// has to mend that. repeated says that an earlier sending, or this one, may have taken effect
// without an answer.
func (c *cluster) request(
	ctx context.Context, where destination, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	retry := newRequestRetry()
	var last error
	for {
		cn, bucket, shard, err := where(ctx)
		if err == nil {
			var sent bool
			sent, err = cn.roundTrip(ctx, kind, shard, bucket, m, reply)
			if err == nil {
				return repeated, nil
			}
			if sent && !answered(err) {
				repeated = true
			}
		}
		switch {
		case isPending(err):
			return repeated, err
		case c.ctx.Err() != nil:
			return repeated, ErrClientClosed
		case ctx.Err() != nil && !answered(err):
			return repeated, interrupted(ctx, last)
		case !canResend(err):
			return repeated, err
		}
		last = err
		c.waitRetry(ctx, shard, bucket, cn, err, &retry)
		if ctx.Err() != nil {
			return repeated, interrupted(ctx, last)
		}
	}
}

// answered says whether the server decided about a request that failed like this. The refusal of a
// connection decides nothing about a request that was sent on another one.
func answered(err error) bool {
	var e *protocol.Error
	var u *undecided
	var refused *permanentError
	return errors.As(err, &e) && !errors.As(err, &u) && !errors.As(err, &refused)
}

// canResend says whether a request that failed like this may be sent again, possibly elsewhere.
func canResend(err error) bool {
	var refused *permanentError
	if errors.As(err, &refused) {
		return false
	}
	return errors.Is(err, errConnLost) || errors.Is(err, ErrUnreachable) || protocol.Retryable(err)
}

// waitRetry updates what is known of the cluster and waits before the next try of a request that a
// shard did not serve; 0 is no shard. The bucket is the one in the request, and cn the connection
// that it was sent on, or nil. Another map or leader ends the wait. One that came during the try
// counts too: the announcement may be processed before the caller has read the refusal. But no two
// tries in a row go without a wait for that reason.
func (c *cluster) waitRetry(ctx context.Context, shard, bucket uint64, cn *conn, err error, retry *requestRetry) {
	defer c.needMap()()
	moved := retry.moved
	if moved == nil || retry.skipped {
		moved = c.mapChanged() // before the map is asked for: what comes meanwhile ends the wait
	}
	defer func() { retry.moved = c.mapChanged() }()
	retry.skipped = false
	select {
	case <-moved:
		retry.skipped = true
	default:
	}
	if errors.Is(err, errMapChanged) {
		retry.failures = 0
		return
	}
	if c.updateRoutes(ctx, shard, bucket, cn, err, retry.failures) {
		retry.failures++
		return
	}
	if errors.Is(err, errConnLost) {
		return
	}
	t := time.NewTimer(retry.next())
	defer t.Stop()
	select {
	case <-t.C:
	case <-moved:
		retry.failures = 1 // not 0: announcements may name an instance that cannot answer, again and again
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// waitBucketsMoved waits a moment for a bucket that no listed shard serves: the map may be old, or
// the bucket is on its way.
func (c *cluster) waitBucketsMoved(ctx context.Context, retry *backoff) error {
	moved := c.mapChanged()
	fresh, err := c.refreshMap(ctx, c.routes.Load())
	switch {
	case c.ctx.Err() != nil:
		return ErrClientClosed
	case fresh && err == nil && retry.failures == 0:
		retry.failures++
		return nil
	}
	t := time.NewTimer(retry.next())
	defer t.Stop()
	select {
	case <-t.C:
	case <-moved:
	case <-c.ctx.Done():
		return ErrClientClosed
	case <-ctx.Done():
		return interrupted(ctx, errBucketsMoved)
	}
	return nil
}

// updateRoutes is called when a shard did not serve a request that was sent on cn, nil for none. It
// says whether the next try is likely to do better and need not wait.
func (c *cluster) updateRoutes(ctx context.Context, shard, bucket uint64, cn *conn, err error, tries int) bool {
	r := c.routes.Load()
	if r == nil {
		return false
	}
	w := r.byShard[shard]
	status := protocol.StatusOf(err)
	switch {
	case errors.Is(err, errConnLost):
		return tries == 0 // the connector has a back-off of its own
	case status == protocol.StatusWrongShard && w != nil && cn != nil:
		var e *protocol.Error
		if errors.As(err, &e) && e.MapVersion != 0 {
			return c.followRefusal(ctx, w, uint32(bucket), cn, e, tries)
		}
		// An older server says less.
		if e != nil && e.Master != 0 && e.Master != cn.instance {
			c.learnMaster(w, cn.instance, e.Master, e.Term)
			if w.master.Load() != cn.instance {
				return tries < 2
			}
		}
	case status == protocol.StatusUnavailable && w != nil && cn != nil && tries > 0:
		c.tryNextReplica(w, cn.instance)
		return false
	}
	if errors.Is(err, ErrUnreachable) && w != nil && cn != nil {
		c.tryNextReplica(w, cn.instance) // it took the request, and does not answer
	}
	switch {
	case status == protocol.StatusWrongShard:
		// The map is old; or who answered is, then somebody else may know.
		fresh, _ := c.refreshMap(ctx, r)
		var e *protocol.Error
		if !fresh && w != nil && cn != nil && !(errors.As(err, &e) && c.masterRefusesBucket(w, cn, e)) {
			c.tryNextReplica(w, cn.instance)
		}
		return fresh && tries == 0
	case errors.Is(err, ErrUnreachable) && len(r.instances) > 1:
		if tries > 0 {
			c.run(func() { _, _ = c.refreshMap(c.ctx, r) })
		}
		return tries < len(r.instances)
	}
	return false
}

// followRefusal uses what an instance says about a bucket that it does not serve: which shard owns
// the bucket, which instance leads that shard, and how new its map is. asked is the shard that was
// looked for there. True: the next try goes elsewhere, and need not wait.
//
// Otherwise nothing is fetched. The bucket moves, or is not served yet, or the instance has an
// older map than this client; the end of each is announced. Another leader is looked for if the
// instance has the shard and knows no leader, or if it has an older map for maxBehindTries.
func (c *cluster) followRefusal(
	ctx context.Context, asked *shardRoute, bucket uint32, cn *conn, e *protocol.Error, tries int,
) bool {
	r := c.routes.Load()
	owner := r.byShard[e.Shard]
	newer := e.MapVersion > r.version
	if newer {
		c.fetchAnnouncedMap(e.MapVersion, cn)
		if owner == nil && e.Shard != 0 { // that map has more shards
			fresh, _ := c.refreshMap(ctx, r)
			return fresh && tries < 2
		}
	}
	learned := false
	if owner != nil && e.Master != 0 && e.Master != cn.instance {
		learned = c.learnMaster(owner, cn.instance, e.Master, e.Term)
	}
	if newer && c.learnOwner(asked, bucket, e.Shard, e.MapVersion) {
		learned = true
	}
	next := c.routes.Load().forBucket(asked.tier, bucket)
	if next != nil && (next.shard != asked.shard || next.master.Load() != cn.instance) {
		return learned || tries < 2
	}
	switch {
	case e.Shard != asked.shard && tries < maxBehindTries:
		c.mu.Lock()
		c.awaitsInstance = true
		c.mu.Unlock()
	case !c.masterRefusesBucket(asked, cn, e):
		c.tryNextReplica(asked, cn.instance)
	}
	return false
}

// instanceCaughtUp is called when an instance announces the map that this client has. It wakes the
// tries that an instance refused by an older one.
func (c *cluster) instanceCaughtUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaitsInstance {
		c.awaitsInstance = false
		c.announceRoutes()
	}
}

// maxBehindTries is how many tries in a row a shard's leader may answer by an older map before
// another replica is asked. A new map is on all instances within milliseconds, but a leader that is
// cut off never gets it, and may have been replaced.
const maxBehindTries = 3

// masterRefusesBucket says that the shard's master answered and does not serve the bucket. The
// bucket moves to another shard, or has arrived and is not served yet; either is announced. A
// former master that does not know its successor names an older term.
func (c *cluster) masterRefusesBucket(w *shardRoute, cn *conn, e *protocol.Error) bool {
	if e.Status != protocol.StatusWrongShard || e.Master != cn.instance {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.Term >= w.term
}

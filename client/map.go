package client

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// currentRoutes is the map there is, fetched if there is none.
func (c *cluster) currentRoutes(ctx context.Context) (*routeTable, error) {
	var last error
	for {
		if r := c.routes.Load(); r != nil {
			return r, nil
		}
		if _, err := c.refreshMap(ctx, nil); err != nil {
			switch {
			case c.ctx.Err() != nil:
				return nil, ErrClientClosed
			case ctx.Err() != nil:
				return nil, interrupted(ctx, last)
			case !canResend(err):
				return nil, err
			}
			last = err
			sleep(ctx, c.ctx.Done(), retryBase)
		}
	}
}

// refreshMap fetches the map unless there is one newer than stale already; fresh says that there is
// a newer one now. Callers share one request.
func (c *cluster) refreshMap(ctx context.Context, stale *routeTable) (fresh bool, err error) {
	c.mu.Lock()
	if now := c.routes.Load(); now != stale {
		c.mu.Unlock()
		return true, nil
	}
	f := c.mapFetch
	if f == nil {
		f = &sharedAttempt{done: make(chan struct{})}
		if !c.run(func() {
			f.err = c.fetchMap(stale)
			c.mu.Lock()
			c.mapFetch = nil
			c.mu.Unlock()
			close(f.done)
		}) {
			c.mu.Unlock()
			return false, ErrClientClosed
		}
		c.mapFetch = f
	}
	c.mu.Unlock()
	if err := f.wait(ctx); err != nil {
		return false, err
	}
	return c.routes.Load() != stale, f.err
}

type announcedMap struct {
	version uint64
	from    *conn
}

// maxAnnouncedTries bounds how often in a row an announced map is asked for in vain.
const maxAnnouncedTries = 10

// fetchAnnouncedMap fetches the map that an instance announced, from that instance: another one may
// not have it yet, and an expelled one gets no maps.
func (c *cluster) fetchAnnouncedMap(version uint64, from *conn) {
	c.mu.Lock()
	if version > c.announced.version || c.announced.from == nil || c.announced.from.isLost() {
		c.announced = announcedMap{version, from}
	}
	busy := c.fetchingAnnounced
	if c.fetchingAnnounced = true; !busy {
		select {
		case <-c.mapWanted: // from before
		default:
		}
	}
	c.mu.Unlock()
	// A need that comes later finds mapWanted empty.
	needed := c.mapUsers.Load() > 0 || c.watching() || c.routes.Load() == nil
	if busy {
		if needed {
			wake(c.mapWanted)
		}
		return
	}
	c.run(func() {
		if !needed {
			c.delayMap()
		}
		retry := backoff{base: retryBase, max: retryMax}
		for last := uint64(0); ; {
			c.mu.Lock()
			r := c.routes.Load() // under mu: a first map that comes now looks at what was announced
			if r != nil && r.version > last {
				last, retry.failures = r.version, 0
			}
			if r == nil || r.version >= c.announced.version ||
				retry.failures >= maxAnnouncedTries || c.ctx.Err() != nil {
				c.fetchingAnnounced = false
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			// It may share a request that was sent to another instance before.
			if fresh, _ := c.refreshMap(c.ctx, r); !fresh {
				sleep(c.ctx, nil, retry.next())
			}
		}
	})
}

// maxMapDelay bounds how long a client without need leaves an announced map alone. So does the
// shortest timeout of its sessions: a holder that is cut off learns no sooner either that its lease
// was taken away by force.
const maxMapDelay = 30 * time.Second

// delayMap lets other clients fetch the map first. A planned change makes a map for each step, and
// all clients of the cluster are told of each at once: thousands that fetch every one cost an
// instance more than the change. Those that need the map fetch it at once: a call waits for it, or
// there are watches, which follow buckets to other shards. The others can do without for a while. A
// request that goes to a former owner of its bucket is told the present one, and is a need.
func (c *cluster) delayMap() {
	most := maxMapDelay
	if timeout := c.shortestTimeout(); timeout > 0 {
		most = min(most, timeout)
	}
	sleep(c.ctx, c.mapWanted, rand.N(most))
}

// needMap ends the delay of an announced map, and has others fetched at once until done is called.
func (c *cluster) needMap() (done func()) {
	c.mapUsers.Add(1)
	wake(c.mapWanted)
	return func() { c.mapUsers.Add(-1) }
}

// mapSource is the connection to ask for a newer map than this one; nil for any map.
func (c *cluster) mapSource(ctx context.Context, have *routeTable) (*conn, error) {
	c.mu.Lock()
	announced := c.announced
	c.mu.Unlock()
	if have != nil && announced.version > have.version && !announced.from.isLost() {
		return announced.from, nil
	}
	return c.anyConn(ctx)
}

// mapReplyTimeout is how long an instance has to give its map before another one is asked too: one
// that ends may answer nothing any more, and all calls that look for the new place of a bucket wait
// for this answer.
const mapReplyTimeout = 50 * time.Millisecond

// requestMap asks for a map on a connection, and on another one when that fails or takes long. The
// first newer map counts, and the last answer if none is newer. One that was asked for with the
// connection's hello, and is late, counts too.
func (c *cluster) requestMap(
	ctx context.Context, first *conn, req *protocol.MapRequest,
) (*protocol.MapReply, *conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		reply *protocol.MapReply
		cn    *conn
		err   error
	}
	answers := make(chan answer, 2)
	ask := func(cn *conn) {
		go func() {
			var reply protocol.MapReply
			_, err := cn.roundTrip(ctx, protocol.KindMap, 0, 0, req, &reply)
			answers <- answer{&reply, cn, err}
		}()
	}
	var came <-chan struct{}
	hello := takeHelloMap(first)
	if hello != nil {
		came = hello.done
	}
	ask(first)
	asked := 1
	another := func() {
		if others := c.otherConns(first.instance); len(others) > 0 && asked == 1 {
			ask(slices.MaxFunc(others,
				func(a, b *conn) int { return cmp.Compare(a.lastHeard.Load(), b.lastHeard.Load()) }))
			asked++
		}
	}
	patience := mapReplyTimeout
	if c.mapUsers.Load() == 0 {
		patience = minSilence // nobody waits
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for answered := 0; ; {
		select {
		case <-late.C:
			another()
		case <-came:
			if came = nil; hello.err == nil && hello.reply.Version > req.Known {
				return &hello.reply, first, nil
			}
		case a := <-answers:
			if a.err != nil {
				another()
			}
			if answered++; answered == asked || a.err == nil && a.reply.Version > req.Known {
				return a.reply, a.cn, a.err
			}
		}
	}
}

func (c *cluster) fetchMap(have *routeTable) error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, dialTimeout,
		fmt.Errorf("%w: no instance gave its map in time", ErrUnreachable))
	defer cancel()
	cn, err := c.mapSource(ctx, have)
	if err != nil {
		return err
	}
	req := &protocol.MapRequest{}
	if have != nil {
		req.Known = have.version
	}
	if have == nil {
		if reply := awaitHelloMap(ctx, cn); reply != nil {
			return c.useMap(nil, reply, cn)
		}
	}
	reply, cn, err := c.requestMap(ctx, cn, req)
	if err != nil {
		return err
	}
	return c.useMap(have, reply, cn)
}

// useMap has requests routed by a map that came on a connection, if it is newer than the one that
// there is.
func (c *cluster) useMap(have *routeTable, reply *protocol.MapReply, cn *conn) error {
	if have != nil && reply.Version <= have.version {
		return nil
	}
	r, err := newRouteTable(reply)
	if err != nil {
		cn.end(err)
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	var changed []*connector
	var moved []*shardRoute
	c.mu.Lock()
	for _, w := range r.byShard {
		var old *shardRoute
		if have != nil {
			old = have.byShard[w.shard]
			if old != nil {
				w.lastWrite = old.lastWrite // a request that is under way may be answered after this
				w.tier = old.tier           // it has no buckets any more, perhaps
			}
			if old != nil && old.term > w.term && slices.Contains(w.replicas, old.master.Load()) {
				w.term = old.term
				w.master.Store(old.master.Load())
			}
			if old != nil && w.term > old.term {
				moved = append(moved, w)
			}
		}
		if master := w.master.Load(); master != 0 {
			w.connector.Store(c.connectorLocked(master))
			if old != nil && old.master.Load() != master {
				changed = append(changed, w.connector.Load())
			}
		}
	}
	c.routes.Store(r)
	c.announceRoutes()
	c.mu.Unlock()
	for _, l := range changed {
		l.resetBackoff()
	}
	for _, w := range moved {
		c.leaderMoved(w.shard, w.master.Load())
	}
	c.cfg.Logger.Debug("cluster map fetched", "version", r.version)
	c.mapFetched(have == nil)
	if have == nil {
		c.mu.Lock()
		a := c.announced
		c.mu.Unlock()
		if a.version > r.version {
			defer c.needMap()() // it has begun
			c.fetchAnnouncedMap(a.version, a.from)
		}
	}
	return nil
}

// helloMap is the map that was asked for together with the hello.
type helloMap struct {
	late  time.Time     // when it is asked for again, and another instance too
	done  chan struct{} // closed when reply or err is set
	reply protocol.MapReply
	err   error
}

// expectMap notes that the map was asked for. It is called before the connection is served.
func expectMap(cn *conn) {
	m := &helloMap{late: time.Now().Add(mapReplyTimeout), done: make(chan struct{})}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.helloMap = m
	cl := &call{alone: true}
	cl.reply = func(status protocol.Status, body []byte, err error) {
		if m.err = err; err == nil && status != protocol.StatusOK {
			m.err = failure(status, body)
		} else if err == nil {
			m.err = m.reply.DecodeBody(body)
		}
		close(m.done)
	}
	cn.calls.Put(helloMapID, cl)
	cn.markBusy()
}

// awaitHelloMap waits for the map that was asked for together with the hello, until it is late. It
// is nil if there is none, or somebody has taken it; a late one is left to requestMap.
func awaitHelloMap(ctx context.Context, cn *conn) *protocol.MapReply {
	cn.mu.Lock()
	m := cn.helloMap
	cn.mu.Unlock()
	if m == nil {
		return nil
	}
	select {
	case <-m.done: // as a rule it came with the hello's reply
	default:
		late := time.NewTimer(time.Until(m.late))
		defer late.Stop()
		select {
		case <-m.done:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	if takeHelloMap(cn) == nil || m.err != nil {
		return nil
	}
	return &m.reply
}

// takeHelloMap takes the map that was asked for together with the hello, or will come; nil if there
// is none, or somebody has taken it.
func takeHelloMap(cn *conn) *helloMap {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	m := cn.helloMap
	cn.helloMap = nil
	return m
}

// clusterMap is the map that requests are routed by. It must not be changed.
func (c *cluster) clusterMap(ctx context.Context) (*protocol.MapReply, error) {
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return nil, err
	}
	return r.reply, nil
}

// mapChanged is closed when there is a newer map than the present one, or a shard has another
// master.
func (c *cluster) mapChanged() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newMap
}

// announceRoutes ends the waits for mapChanged. mu is held.
func (c *cluster) announceRoutes() {
	close(c.newMap)
	c.newMap = make(chan struct{})
}

// checkSessionID rejects an id whose tier or bucket the cluster does not have: no session can have
// it.
func (c *cluster) checkSessionID(ctx context.Context, id uint64) error {
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return err
	}
	if len(r.tiers) > 0 && r.tier(protocol.SessionTier(id)) == nil {
		if _, err := c.refreshMap(ctx, r); err != nil {
			return err
		}
		r = c.routes.Load()
	}
	if len(r.tiers) == 0 || r.tier(protocol.SessionTier(id)) != nil {
		t, err := c.tierOf(ctx, protocol.SessionTier(id))
		if err != nil {
			return err
		}
		if protocol.SessionBucket(id) < t.buckets {
			return nil
		}
	}
	return protocol.Errorf(protocol.StatusSessionExpired, "session has ended or never was")
}

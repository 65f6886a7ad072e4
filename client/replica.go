package client

import (
	"context"
	"time"
)

// A RELAXED read may be answered by any replica. Each client has a replica of its own choice in each shard, so that reads are spread over them, and goes to the master
// where that would not do: when it has no connection to its choice, when the replica says that it is behind, and for as long after a request of this client that changed
// the shard as a RELAXED read may be old. So a client reads what it wrote, and, by the indexes it asks for, never what is older than what it has read.

// wroteStep is how exactly the time of the last change is kept: who changes much does not write it down each time.
const wroteStep = 100 * time.Millisecond

// wrote takes in that a request of this client that changed the shard was answered.
func (w *way) wrote(now time.Duration) {
	if int64(now)-w.lastWrite.Load() > int64(wroteStep) {
		w.lastWrite.Store(int64(now))
	}
}

// readAt is the place of a read: what master says, or at first a replica.
func (n *Node) readAt(o readOptions, bucket uint32, master place) place {
	if o.consistency == Strict || o.consistency != Relaxed && !n.relaxed {
		return master
	}
	tried := false
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		if !tried {
			tried = true
			if cn, shard := n.c.preferred(n.tier, bucket, n.grace); cn != nil {
				return cn, uint64(bucket), shard, nil
			}
		}
		return master(ctx)
	}
}

// preferred is the connection to the replica that this client reads from, nil when the master is to be asked. A connection that is missing is being made then.
func (c *Client) preferred(tier uint8, bucket uint32, grace time.Duration) (*conn, uint64) {
	r := c.routes.Load()
	if r == nil {
		return nil, 0
	}
	w := r.way(tier, bucket)
	if w == nil || len(w.replicas) < 2 {
		return nil, 0
	}
	if last := w.lastWrite.Load(); last != 0 && int64(c.clock.now())-last <= int64(grace+wroteStep) {
		return nil, 0
	}
	at := c.choice(w)
	l := c.link(at, "")
	if cn := l.current.Load(); cn != nil && !cn.isLost() {
		return cn, w.shard
	}
	l.begin(r.instances[at])
	return nil, 0
}

// choice is the replica of a shard that this client reads from.
func (c *Client) choice(w *way) uint64 { return w.replicas[(c.taste+w.shard)%uint64(len(w.replicas))] }

// bucketOf is a bucket of a shard.
func (n *Node) bucketOf(shard uint64) uint32 {
	if t := n.c.routes.Load().tiers[n.tier]; t != nil {
		return t.some[shard]
	}
	return 0
}

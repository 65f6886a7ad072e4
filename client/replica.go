package client

import (
	"context"
	"sync/atomic"
	"time"
)

// A RELAXED read may be answered by any replica. Each client has a replica of its own choice in each shard, so that reads are spread over them, and goes to the master
// where that would not do: when it has no connection to its choice, when the replica says that it is behind, and for as long after a request of this client that changed
// the shard as a RELAXED read may be old. Even the master may be behind then, if it is another one than the instance that answered, or if it only was the next to be
// asked after a failover: it answers STRICT. So a client reads what it wrote, and, by the indexes it asks for, never what is older than what it has read.

// wroteStep is how exactly the time of the last change is kept: who changes much does not write it down each time.
const wroteStep = 100 * time.Millisecond

// written is what was answered last of this client's changes of a shard, by its clock.
type written struct {
	last  atomic.Int64  // when; 0: never
	by    atomic.Uint64 // which instance answered
	moved atomic.Int64  // when another instance than the one before answered; 0: never
}

// answered takes in that a request of this client that changed the shard was answered by an instance.
func (w *written) answered(now time.Duration, instance uint64) {
	if w.by.Load() != instance {
		if before := w.by.Swap(instance); before != 0 && before != instance {
			w.moved.Store(int64(now))
		}
	}
	if int64(now)-w.last.Load() > int64(wroteStep) {
		w.last.Store(int64(now))
	}
}

// recent says that something was changed so lately that a RELAXED read may miss it.
func (w *written) recent(now, grace time.Duration) bool {
	within := func(at int64) bool { return at != 0 && int64(now)-at <= int64(grace+wroteStep) }
	return within(w.last.Load()) || within(w.moved.Load())
}

// shows says that a RELAXED read at an instance shows all that was changed: it was long ago, or that instance had applied it when it answered, and whatever others had
// answered before.
func (w *written) shows(now, grace time.Duration, instance uint64) bool {
	if !w.recent(now, grace) {
		return true
	}
	moved := w.moved.Load()
	return w.by.Load() == instance && (moved == 0 || int64(now)-moved > int64(grace+wroteStep))
}

// consistencyAt is what to ask an instance for, of a reader that wants o.
func (n *Node) consistencyAt(o readOptions, shard uint64, cn *conn) Consistency {
	if w := n.c.routes.Load().ways[shard]; w != nil && !w.writes.shows(n.c.clock.now(), n.grace, cn.instance) {
		return Strict
	}
	return o.consistency
}

// readAt is the place of a read: what master says, or at first a replica. It sets what the request is to ask for there.
func (n *Node) readAt(o readOptions, bucket uint32, master place, want *Consistency) place {
	if o.consistency == Strict || o.consistency != Relaxed && !n.relaxed {
		return master
	}
	tried := false
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		if !tried {
			tried = true
			if cn, shard := n.c.preferred(n.tier, bucket, n.grace); cn != nil {
				*want = n.consistencyAt(o, shard, cn)
				return cn, uint64(bucket), shard, nil
			}
		}
		cn, at, shard, err := master(ctx)
		if err == nil {
			*want = n.consistencyAt(o, shard, cn)
		}
		return cn, at, shard, err
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
	if w.writes.recent(c.clock.now(), grace) {
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

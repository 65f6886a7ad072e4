package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A RELAXED read may be answered by any replica. Each client has a replica of its own choice in
// each shard, so that reads are spread over them, and goes to the master where that would not do:
// when it has no connection to its choice, when the replica says that it is behind, and for as long
// after a request of this client that changed the shard as a RELAXED read may be old. Even the
// master may be behind then, if it is another one than the instance that answered, or if it only
// was the next to be asked after a failover: it answers STRICT. So a client reads what it wrote,
// and, by the indexes it asks for, never what is older than what it has read or what its watches
// have told. A one-shot watch has no index: its end counts as a change of this client.

// writeTimeStep is how exactly the time of the last change is kept: who changes much does not write
// it down each time.
const writeTimeStep = 100 * time.Millisecond

// lastWrite is the last change of a shard that this client made, or that a one-shot watch reported,
// by its clock.
type lastWrite struct {
	at                atomic.Int64  // when; 0: never
	instance          atomic.Uint64 // which instance answered
	instanceChangedAt atomic.Int64  // when another instance than the one before answered; 0: never
}

// record records that an instance answered a request of this client that changed the shard, or
// reported a change. Instance 0: a change may have been missed, and no instance is known to have
// it.
func (w *lastWrite) record(now time.Duration, instance uint64) {
	if w.instance.Load() != instance {
		if before := w.instance.Swap(instance); before != 0 && before != instance {
			w.instanceChangedAt.Store(int64(now))
		}
	}
	if at := w.at.Load(); at == 0 || int64(now)-at > int64(writeTimeStep) {
		w.at.Store(int64(now))
	}
}

// recent says that a change is so recent that a RELAXED read may miss it.
func (w *lastWrite) recent(now, grace time.Duration) bool {
	within := func(at int64) bool { return at != 0 && int64(now)-at <= int64(grace+writeTimeStep) }
	return within(w.at.Load()) || within(w.instanceChangedAt.Load())
}

// visibleAt says that a RELAXED read at an instance sees all changes: they are old, or that
// instance had applied them when it answered.
func (w *lastWrite) visibleAt(now, grace time.Duration, instance uint64) bool {
	if !w.recent(now, grace) {
		return true
	}
	moved := w.instanceChangedAt.Load()
	return w.instance.Load() == instance && (moved == 0 || int64(now)-moved > int64(grace+writeTimeStep))
}

func (n *Node) consistencyAt(o readOptions, shard uint64, cn *conn) protocol.Consistency {
	if w := n.c.routes.Load().byShard[shard]; w != nil &&
		!w.lastWrite.visibleAt(n.c.clock.now(), n.grace, cn.instance) {
		return protocol.Strict
	}
	return o.consistency
}

// readAt is the destination of a read: master, or first a replica. It sets want to the consistency
// to ask for there.
func (n *Node) readAt(o readOptions, bucket uint32, master destination, want *protocol.Consistency) destination {
	if o.consistency == protocol.Strict || o.consistency != protocol.Relaxed && !n.relaxed {
		return master
	}
	tried := false
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		if !tried {
			tried = true
			if cn, shard := n.c.preferredConn(n.tier, bucket, n.grace); cn != nil {
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

func (n *Node) bucketOf(shard uint64) uint32 {
	if t := n.c.routes.Load().tier(n.tier); t != nil {
		return t.someBucket[shard]
	}
	return 0
}

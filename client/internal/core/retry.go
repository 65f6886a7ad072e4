package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// refused processes an answer that is an error.
func (e *Engine) refused(r *Request, err *protocol.Error) {
	switch s := r.session; {
	case s != nil && err.Status == protocol.StatusBadSession && r.badSessions < maxBadSessions &&
		err.Refusal != protocol.RefusalFenced:
		e.step(r, inBadSession, err)
	case s != nil && err.Status == protocol.StatusSessionExpired:
		s.endedByServer(e, goneBy(err), err)
		e.withdraw(r)
		r.op.over(e, s.err) // it answers this sending, and not the one before
	case protocol.Retryable(err) && !isPending(err):
		e.step(r, inRefused, err)
	default:
		e.step(r, inAnswered, err)
	}
}

// maxBadSessions is how often in a row a request may be refused as not attached here before that is
// the answer.
const maxBadSessions = 6

// isPending reports whether a server gave a change of the cluster to a shard that does not decide:
// a person has to mend that. Sending it again is of no use.
func isPending(err *protocol.Error) bool {
	return err.Status == protocol.StatusUnavailable && err.Shard != 0
}

// retry is what a request knows of its tries in a row that were not served.
type retry struct {
	backoff
	generation uint64 // of the routes, when the present try began
	skipped    bool   // the last try did not wait because the routes had changed
	paused     uint64 // generation of the routes when the pause began
}

// retry sends a request again that was refused on a connection for now. A new map or leader that
// came during the try counts as one that comes in the pause: it ends it. But no two tries in a row
// go without a pause for that reason.
func (e *Engine) retry(r *Request, c *Conn, err *protocol.Error) {
	changed := r.retry.generation != e.routes.generation && !r.retry.skipped
	r.retry.skipped = changed
	switch e.routes.refused(e, r, c, err) {
	case atOnce:
		r.retry.failures++
		e.send(r)
	case afterMap:
		r.state = Waiting
		e.routes.fetch.waiting.pushBack(r)
	case later:
		if changed {
			r.retry.failures = 1
			e.send(r)
		} else {
			e.pause(r)
		}
	}
}

// unreachable sends a request another way because no connection could be made.
func (e *Engine) unreachable(r *Request, l *link, err error) {
	e.withdraw(r)
	if IsPermanent(err) {
		e.refusedForGood(r, err)
		return
	}
	r.failed(e, l.instance, heardOn(e, r, l.conn), err)
	if r.once {
		r.op.over(e, err)
		return
	}
	e.noteRetry(r, l.instance, err)
	t := e.routes.table
	if w := t.shard(r.shard); w != nil {
		e.routes.nextReplica(e, w, l.instance)
	}
	if t == nil || len(t.addresses) < 2 {
		e.pause(r)
		return
	}
	if r.retry.failures > 0 {
		e.routes.fetch.begin(e, nil) // the instances may be others by now
	}
	if r.retry.failures < len(t.addresses) {
		r.retry.failures++
		e.send(r)
	} else {
		e.pause(r)
	}
}

// refusedForGood gives up a request, in no list, whose connection was refused for good. What goes on
// without its caller is tried again all the same, while its session lives: the name stays locked
// until it is answered.
func (e *Engine) refusedForGood(r *Request, err error) {
	if r.op.left(e, err); r.state != Over {
		r.failed(e, 0, 0, err)
		e.pause(r)
	}
}

// pause sends a request again after a delay.
func (e *Engine) pause(r *Request) {
	if r.state == Over {
		e.broken(r, "that is over was to be sent again")
		return
	}
	r.state, r.retry.paused = Waiting, e.routes.generation
	e.paused.pushBack(r)
	e.routes.fetch.needed(e)
	r.delay.of = r
	e.timers.set(&r.delay, e.now+r.retry.next(e, retryBase, retryMax))
}

// Back-off of requests that are asked again. See R16.
const (
	retryBase = 10 * time.Millisecond
	retryMax  = time.Second
)

// backoff is full jitter: each wait is uniform between 0 and a bound that doubles.
type backoff struct{ failures int }

func (b *backoff) next(e *Engine, base, most time.Duration) time.Duration {
	bound := most
	if b.failures < 16 {
		bound = min(most, base<<b.failures)
	}
	b.failures++
	return time.Duration(e.random(uint64(bound) + 1))
}

package client

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// call is one request that waits for its reply. Calls are pooled. A call belongs to the goroutine
// that made it until it is in the connection's ring. Then it belongs to the goroutine that removes
// it from there, under the connection's mutex, until done is signalled; then to the first again.
type call struct {
	done       chan struct{} // capacity 1
	session    *Session      // whose end ends the call; nil: nobody's
	shard      uint64        // that has to answer; 0: the instance itself
	status     protocol.Status
	decodeInto protocol.Message // what the reader decodes a successful reply into; nil: it copies the body
	body       []byte           // copy of the reply's body
	err        error            // no reply, or one that cannot be read
	reply      func(status protocol.Status, body []byte, err error)

	// alone is a call of the handshake: it is no part of the pool, which many clients never need.
	alone bool

	// reads: the caller reads for itself, see reader.
	reads bool

	// acquiring is an acquire. The reader calls its expect when it was queued, before it reads on.
	acquiring *acquireOp
}

// maxKeptBody is the largest reply buffer a pooled call keeps.
const maxKeptBody = 4 << 10

func (cn *conn) newCall() *call {
	if cl, ok := cn.pool.Get().(*call); ok {
		return cl
	}
	return &call{done: make(chan struct{}, 1)}
}

func (cn *conn) free(cl *call, keepBody bool) {
	if cl.alone {
		return
	}
	if !keepBody || cap(cl.body) > maxKeptBody {
		cl.body = nil
	}
	cl.err, cl.status, cl.reply, cl.session, cl.shard, cl.decodeInto, cl.acquiring = nil, 0, nil, nil, 0, nil, nil
	cl.reads = false
	cn.pool.Put(cl)
}

// complete hands over what was answered, and wakes the caller. The body is the reader's.
func (cl *call) complete(status protocol.Status, body []byte) {
	cl.status = status
	switch {
	case cl.decodeInto == nil || status != protocol.StatusOK:
		cl.body = append(cl.body[:0], body...)
	default:
		if err := cl.decodeInto.DecodeBody(body); err != nil {
			cl.err = &badReply{err}
		} else if cl.isQueued() {
			cl.acquiring.s.expect(cl.acquiring)
		}
	}
	cl.done <- struct{}{}
}

// isQueued says that the answer is no result: that one comes as an event.
func (cl *call) isQueued() bool {
	return cl.acquiring != nil && cl.acquiring.reply.State == protocol.Accepted
}

// aliases says whether a decoded message points into the bytes it was decoded from.
func aliases(m protocol.Message) bool {
	switch m.(type) {
	case *protocol.Empty, *protocol.AcquireReply, *protocol.ReleaseReply, *protocol.UpdateReply,
		*protocol.NodeInfo, *protocol.SessionInfo:
		return false
	}
	return true
}

func (cl *call) answer(reply protocol.Message) error {
	if cl.err != nil {
		return cl.err
	}
	if cl.status == protocol.StatusOK {
		if reply == nil || cl.decodeInto != nil {
			return nil
		}
		if err := reply.DecodeBody(cl.body); err != nil {
			return &badReply{err}
		}
		return nil
	}
	return failure(cl.status, cl.body)
}

type badReply struct{ err error }

func (b *badReply) Error() string { return "server sent a reply that cannot be read: " + b.err.Error() }

func failure(status protocol.Status, body []byte) error {
	var f protocol.Failure
	if f.DecodeBody(body) != nil {
		f.Message = ""
	}
	err := &protocol.Error{
		Status: status, Message: f.Message, Master: f.Master, Term: f.Term, Shard: f.Shard, MapVersion: f.MapVersion,
	}
	if isPending(err) {
		return markUndecided(err)
	}
	return err
}

// isPending says that a server gave a change of the cluster to a shard that does not decide.
func isPending(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Status == protocol.StatusUnavailable && e.Shard != 0
}

// roundTrip sends a request and waits for its reply or for the end of ctx. shard is the shard that
// answers, 0 for the instance itself. sent says whether the request went into the buffer; without
// an answer its outcome is then unknown. Errors: the server's *protocol.Error; errConnLost;
// errCallStopped; the cause of ctx.
func (cn *conn) roundTrip(
	ctx context.Context, kind protocol.Kind, shard, bucket uint64, m, reply protocol.Message,
) (sent bool, err error) {
	return cn.exchange(ctx, nil, nil, kind, shard, bucket, m, reply)
}

// exchange is roundTrip for a request of a session, which is waited for until the session ends, and
// for an acquire that must learn that it was queued.
func (cn *conn) exchange(
	ctx context.Context, of *Session, a *acquireOp, kind protocol.Kind, shard, bucket uint64,
	m, reply protocol.Message,
) (sent bool, err error) {
	cl, id, err := cn.startCall(ctx, of, kind, bucket, m, func(_ uint64, cl *call) {
		cl.shard = shard
		if cl.acquiring = a; reply != nil && !aliases(reply) {
			cl.decodeInto = reply
		}
	})
	if err != nil {
		return false, err
	}
	return true, cn.waitReply(ctx, cl, id, reply)
}

func (cn *conn) waitReply(ctx context.Context, cl *call, id uint64, reply protocol.Message) error {
	if cl.reads && cn.reader.read(ctx, cl) {
		<-cl.done
	} else if over := ctx.Done(); over == nil {
		<-cl.done
	} else {
		select {
		case <-cl.done:
		case <-over:
			if cn.abandonCall(id) {
				cn.free(cl, true)
				return markUndecided(context.Cause(ctx))
			}
			// The reader has taken the call already: its answer is a moment away, and is the better
			// one.
			<-cl.done
		}
	}
	return cn.takeReply(cl, reply)
}

// takeReply decodes the reply and frees the call. A reply that cannot be decoded ends the
// connection: the request may be sent again on another one.
func (cn *conn) takeReply(cl *call, reply protocol.Message) error {
	err := cl.answer(reply)
	cn.free(cl, reply == nil || !aliases(reply))
	if bad, ok := err.(*badReply); ok {
		cn.end(bad)
		return errConnLost
	}
	return err
}

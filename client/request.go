package client

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/session"
	"github.com/signalbox-dev/signalbox/protocol"
)

// trail is where an answer came from: while both are there, events that follow from it come too.
type trail struct {
	att   *attachment
	cn    *conn // to the master of then
	shard uint64
	way   *way // of the shard
}

// broken says that events may have been missed.
func (t trail) broken() bool { return t.att.over.Load() || t.cn.over.Load() }

// badSessions is how often in a row a request may be refused as not attached here before that is the answer.
const badSessions = 6

// send sends a numbered request of the session until it is answered with something that decides it: over lost connections, other masters and new attaches, always
// with the same number; 0 takes one with the first sending. The head is filled in before each sending, and then prepare is called, if it is not nil. A is the acquire
// that this is, if it is one. sent says that some sending was not answered, so that an error leaves the outcome open. An error is a *protocol.Error that the
// server answered, what the session ended with, or the end of ctx.
func (s *Session) send(ctx context.Context, kind protocol.Kind, bucket uint32, x *numbered, m, reply protocol.Message) (tr trail, sent bool, err error) {
	tr, err = s.place(ctx, bucket, x)
	if err == nil {
		var in bool
		in, err = tr.cn.exchange(ctx, s, x.a, kind, tr.shard, uint64(bucket), m, reply)
		if err == nil {
			tr.wrote(s.c, x)
			return tr, false, nil
		}
		sent = in && !answered(err)
	}
	return s.resend(ctx, kind, bucket, x, m, reply, tr, sent, err)
}

// wrote takes in that a request which may have changed something was answered.
func (t trail) wrote(c *Client, x *numbered) {
	if t.way != nil && (x == nil || x.head != nil) {
		t.way.writes.answered(c.clock.fast(), t.cn.instance)
	}
}

// numbered is what is of the session in a request.
type numbered struct {
	seq     uint64
	head    *protocol.Head // of the request, nil: it has none
	a       *acquisition   // the acquire that this is, nil: another request
	prepare func(trail)

	// The connection that an acquire was sent on; nil: none, or several.
	on     *conn
	strewn bool   // several
	after  uint64 // of a release: the acquire that it undoes was sent on the connection on, and must not arrive behind it
}

// sentOn notes where a request is sent.
func (x *numbered) sentOn(cn *conn) {
	if x.a == nil {
		return
	}
	if x.on != nil && x.on != cn {
		x.strewn = true
	}
	x.on = cn
	if x.strewn {
		x.on = nil
	}
}

// errBefore: numbers before that of an acquire which is to be undone are open still.
var errBefore = protocol.Errorf(protocol.StatusUnavailable, "requests of the session that were sent earlier are not answered yet")

// ordered says whether a request may go over a connection now: nothing that it undoes can arrive behind it.
func (s *Session) ordered(cn *conn, x *numbered) bool {
	return x.after == 0 || x.on == cn || x.head.Low > x.after
}

// resend is the rest of send, after a first sending that failed.
func (s *Session) resend(ctx context.Context, kind protocol.Kind, bucket uint32, x *numbered, m, reply protocol.Message, tr trail, sent bool, err error) (trail, bool, error) {
	retry := backoff{base: retryBase, max: retryMax}
	refused := 0
	var last error
	for {
		switch {
		case s.over() != nil:
			return tr, sent, unanswered(s.over())
		case ctx.Err() != nil && !answered(err):
			return tr, sent, interrupted(ctx, s.why(last))
		}
		last = err
		switch st := protocol.StatusOf(err); {
		case st == protocol.StatusBadSession && refused < badSessions && !fenced(err):
			refused++
			s.mistrust(tr)
			sleep(ctx, s.ctx.Done(), retry.next())
		case st == protocol.StatusSessionExpired:
			s.serverSaid(err)
			if sent {
				return tr, sent, unanswered(s.over()) // it answers this sending, and not the one before
			}
			return tr, sent, s.over()
		case again(err):
			s.c.pause(ctx, tr.shard, tr.cn, err, &retry)
		default:
			return tr, sent, err
		}
		if ctx.Err() != nil && s.over() == nil {
			return tr, sent, interrupted(ctx, err)
		}
		if tr, err = s.place(ctx, bucket, x); err == nil {
			var in bool
			in, err = tr.cn.exchange(ctx, s, x.a, kind, tr.shard, uint64(bucket), m, reply)
			if err == nil {
				tr.wrote(s.c, x)
				return tr, false, nil
			}
			sent = sent || in && !answered(err)
		}
	}
}

// why is what the session waits for: the last error of a request, or that of its last attach while it is not attached.
func (s *Session) why(last error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last == nil && s.att == nil && s.away != nil {
		return fmt.Errorf("session is not attached: %w", s.away)
	}
	return last
}

// over is why the session is over, or nil. A session whose deadline has passed is over, however late the timer is.
func (s *Session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.stepLocked((*session.Machine).Tick)
	}
	return s.err
}

// place finds the connection for a bucket, makes sure that the session is known on it, and fills in what is of the session in the request.
func (s *Session) place(ctx context.Context, bucket uint32, x *numbered) (trail, error) {
	s.mu.Lock()
	att, err := s.att, s.err
	s.number(x)
	s.mu.Unlock()
	if err != nil {
		return trail{}, err
	}
	if att == nil {
		if att, err = s.attachment(ctx); err != nil {
			return trail{}, err
		}
		s.mu.Lock()
		s.number(x) // low may have risen
		s.mu.Unlock()
	}
	cn, shard, err := s.c.toBucket(ctx, s.node.tier, bucket)
	if err != nil {
		return trail{shard: shard}, err
	}
	if !s.ordered(cn, x) {
		return trail{shard: shard}, errBefore
	}
	if cn != att.cn {
		if err := s.present(ctx, cn, att); err != nil {
			return trail{cn: cn, shard: shard}, err
		}
	}
	tr := trail{att: att, cn: cn, shard: shard, way: s.c.routes.Load().way(s.node.tier, bucket)}
	x.sentOn(cn)
	if x.prepare != nil {
		x.prepare(tr)
	}
	return tr, nil
}

// number takes a number if there is none yet, and fills in the head. mu is held.
func (s *Session) number(x *numbered) {
	if x.head == nil {
		return
	}
	if x.seq == 0 {
		x.seq = s.numbers.take()
	}
	*x.head = protocol.Head{Session: s.id, Seq: x.seq, Low: s.numbers.low}
}

// moved says whether events about a bucket may come from another place by now.
func (c *Client) moved(tr trail, tier uint8, bucket uint32) bool {
	w := c.routes.Load().way(tier, bucket)
	return w == nil || w.shard != tr.shard || w.master.Load() != tr.cn.instance
}

// present shows the session's ticket on a connection it is not attached on, once per attach. It does not wait for the answer: what follows on the same connection
// is let in behind it, or refused and sent again.
func (s *Session) present(ctx context.Context, cn *conn, att *attachment) error {
	cn.mu.Lock()
	known := cn.guests[s] >= att.epoch
	cn.mu.Unlock()
	if known {
		return nil
	}
	_, _, err := cn.begin(ctx, s, protocol.KindPresent, 0, &protocol.Present{Ticket: att.ticket, Description: s.opts.description}, func(_ uint64, cl *call) {
		cn.guests[s] = att.epoch
		cl.reply = func(status protocol.Status, _ []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				cn.unknownGuest(s)
			}
		}
	})
	return err
}

func (cn *conn) unknownGuest(s *Session) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.guests, s)
}

// mistrust is told when a request was refused because the session is not known where it went.
func (s *Session) mistrust(tr trail) {
	if tr.cn != tr.att.cn {
		tr.cn.mu.Lock()
		_, presented := tr.cn.guests[s]
		delete(tr.cn.guests, s)
		tr.cn.mu.Unlock()
		if presented {
			return // show the ticket again
		}
	}
	s.doubt(tr.att)
}

// close says that the answer of a request has come, or that nobody wants it any more. 0 is no number.
func (s *Session) close(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq != 0 {
		s.numbers.done(seq)
	}
}

// once sends a request of which nothing is left to do when ctx ends: an outcome that is not known then is reported as such, and the request, should it still be on its
// way, is refused once a later one of its bucket has arrived.
func (s *Session) once(ctx context.Context, kind protocol.Kind, name string, head *protocol.Head, m, reply protocol.Message) error {
	bucket, err := s.node.bucket(ctx, name)
	if err != nil {
		return err
	}
	x := numbered{head: head}
	_, sent, err := s.send(ctx, kind, bucket, &x, m, reply)
	s.close(x.seq)
	if err != nil {
		err = unknown(sent && !answered(err), err)
	}
	return err
}

// settle goes on with work until it is done. Work takes up where it was interrupted, and says whether it is done; if ctx ends first, it goes on in the background for
// as long as the session lives.
func (s *Session) settle(ctx context.Context, work func(context.Context) (done bool, err error)) error {
	done, err := work(ctx)
	if !done {
		s.goOn(work)
	}
	return err
}

// goOn is the rest of settle, after work was interrupted.
func (s *Session) goOn(work func(context.Context) (done bool, err error)) {
	if s.over() == nil {
		s.c.run(func() {
			for done := false; !done && s.ctx.Err() == nil; {
				if done, _ = work(s.ctx); !done {
					sleep(s.ctx, nil, retryBase)
				}
			}
		})
	}
}

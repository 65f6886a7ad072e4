package core

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// shardStream is a subscription's part of one shard: a request that is sent again whenever the
// stream that it opened ends. So what holds for requests that are not served holds for streams.
//
//	Waiting, Sent   as any request
//	Over            answered: the stream is open on its connection, under the request's id
type shardStream struct {
	Request
	of     subscriber
	msg    protocol.Watch // of a Watch
	open   *Conn          // that it is open on, or was asked for on; nil: none
	stream uint64         // its id there
	live   bool           // its state is complete, and follows the shard

	home  uint64 // the shard
	seen  uint64 // the newest index of the shard's log that was taken in
	epoch uint64 // of the name's bucket, of a Watch of one name: the newest that was taken in
	known uint64 // of a Watch of one name: every change of the name up to here was taken in; 0: it is not known
	begun bool   // the present opening has begun behind it
	after uint64 // of a Watch: how far behind the replica that the client chose it is opened

	pages   pages         // of the snapshot that comes, or came last; of a Watch
	epochs  *BucketEpochs // which buckets the shard served by its last complete snapshot; nil: it did not say
	decoder Decoder       // of the present opening; of a Stream
}

func newShardStream(of subscriber, kind protocol.Kind, m protocol.Message, tier uint8) *shardStream {
	p := &shardStream{of: of}
	p.Request = Request{purpose: purpose{kind: kind, message: m, op: p, tier: tier}}
	p.to = p.where
	return p
}

// where is the connection that the stream is opened on.
func (p *shardStream) where(e *Engine, _ *Request) *Conn {
	p.lost(e)
	if p.unanswered { // it may have been opened
		p.unwatch(e)
		p.unanswered = false
	}
	p.drop(e)
	return p.of.place(e, p)
}

// follow makes a shard the part's, whose log has indexes of its own.
func (p *shardStream) follow(w *shardRoute) {
	if p.home != w.shard {
		p.leave()
		p.home, p.seen, p.known, p.epochs = w.shard, p.of.base().former[w.shard], 0, nil
	}
}

// leave: the part follows its shard no more. What it follows may come back there, and a replica that
// has not heard that it left would show its state from before.
func (p *shardStream) leave() {
	if p.seen > 0 {
		put(&p.of.base().former, p.home, p.seen)
	}
}

// prepare implements preparer: events may come before the reply.
func (p *shardStream) prepare(e *Engine, c *Conn, id uint64) {
	p.open, p.stream, p.begun = c, id, false
	p.of.opening(p)
	c.streams.add(p)
	c.keepAlive.update(e)
}

// drop forgets where the stream was opened.
func (p *shardStream) drop(e *Engine) {
	if c := p.open; c != nil {
		p.open = nil
		c.streams.remove(p)
		if !c.over {
			c.keepAlive.update(e)
		}
	}
}

// unwatch closes the stream at the server.
func (p *shardStream) unwatch(e *Engine) {
	if c := p.open; c != nil && !c.over {
		sendNotice(e, c, protocol.KindUnwatch, p.arg, &protocol.Unwatch{WatchID: p.stream})
	}
	p.drop(e)
}

// close ends the part.
func (p *shardStream) close(e *Engine) {
	asked := p.state == Sent || p.state == Over
	e.withdraw(&p.Request)
	p.state = Over
	if asked {
		p.unwatch(e)
	}
	p.drop(e)
}

// restart opens the stream again, elsewhere.
func (p *shardStream) restart(e *Engine) {
	p.lost(e)
	p.close(e)
	p.state = Waiting // it was open, not given up
	e.send(&p.Request)
}

// restartWhole opens the stream again, and takes the whole state in.
func (p *shardStream) restartWhole(e *Engine) {
	p.known = 0
	p.restart(e)
}

// lost: the stream is not live any more.
func (p *shardStream) lost(e *Engine) {
	if p.live {
		p.live, p.retry = false, retry{}
		p.of.interrupted(e)
	}
}

// cut ends an open stream. The next one is opened at the leader, and then at each replica in turn.
// For a Watch whose connection is lost see moveOn.
func (p *shardStream) cut(e *Engine, err error) {
	asked, c, live := p.state == Sent || p.state == Over, p.open, p.live
	p.drop(e)
	if !asked {
		return // it is not open there any more
	}
	p.lost(e)
	e.withdraw(&p.Request)
	p.last, p.state = err, Waiting
	switch {
	case err == errConnLost && p.kind == protocol.KindWatch:
		p.moveOn(e, c.instance, live)
		e.send(&p.Request)
	case err == errConnLost:
		p.retry.failures++
		e.send(&p.Request)
	case protocol.Retryable(err):
		e.pause(&p.Request)
	default:
		p.of.fail(e, err)
	}
}

// moveOn: the connection to an instance is lost, and the stream of a Watch goes on at another
// replica. Not at the leader: thousands that were spread over all replicas would come to sit on one.
// It goes to the replica that the client chose, or from that one to the next in the client's order.
func (p *shardStream) moveOn(e *Engine, lost uint64, live bool) {
	w := e.routes.table.shard(p.home)
	switch {
	case w != nil && e.routes.chosen(w, p.after).instance == lost && live && p.after > 0:
		p.after = 0
	case w != nil && e.routes.chosen(w, p.after).instance == lost:
		p.after++
	case !live:
		p.retry.failures++
	}
}

func (p *shardStream) turn(*Engine)                {}
func (p *shardStream) decode([]byte) (bool, error) { return false, nil }
func (p *shardStream) left(e *Engine, err error)   { p.of.fail(e, err) }
func (p *shardStream) over(e *Engine, err error)   { p.of.fail(e, err) }

func (p *shardStream) decided(e *Engine, err error) {
	p.state = Over
	if err != nil {
		p.drop(e)
		p.of.fail(e, err)
	}
}

// isLive: the present opening has sent its whole state.
func (p *shardStream) isLive() { p.live, p.last, p.retry = true, nil, retry{} }

// begin: the first event of an opening is as of an index, and of an epoch of the name's bucket if it
// has one. False: it is older than what was taken in before, maybe of another shard in which the
// bucket was meanwhile. So the replica is behind, and the subscription would go back in time. Another replica, or
// this one a moment later, has it. This is the one rule for such a replica. See R23.
func (p *shardStream) begin(e *Engine, index, epoch uint64) bool {
	if index >= p.seen && epoch >= p.epoch {
		p.begun, p.seen, p.epoch = true, index, epoch
		return true
	}
	p.lost(e)
	p.close(e)
	p.last, p.state = errReplicaBehind, Waiting
	e.pause(&p.Request)
	return false
}

var errReplicaBehind = protocol.Errorf(protocol.StatusUnavailable, "the replica is behind")

// took notes what was taken in. No RELAXED read that follows goes back in time.
func (p *shardStream) took(e *Engine, index uint64) {
	p.seen = max(p.seen, index)
	e.routes.memory(p.home).read(index)
}

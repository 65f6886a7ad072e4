package core

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// Stream follows a process or a rollout: its state, then every change, and the state again after
// whatever ended the stream. It carries the protocol's messages and does not know what they mean.
// It is its maker's, who sets the fields that begin with a capital before.
type Stream struct {
	Waiter Waiter           // is in Ready.Wake when there is something to take
	Kind   protocol.Kind    // of the request that opens it
	Msg    protocol.Message // that request
	To     Target           // where the object is: AtName, AtProcess or AtBucket
	Decode func() Decoder   // is called for each opening

	subscription
	events  []any
	stalled bool // the consumer fell behind: the stream is opened again when it has taken what there is
}

// Decoder decodes the events of one opening of a stream. The body is the reader's.
type Decoder func(h protocol.Header) (event any, step Step, err error)

// Step is what an event does to those that the consumer has not taken yet.
type Step uint8

const (
	Append  Step = iota // it follows them
	Replace             // it replaces them
	Partial             // it is a part of a later one, and is not taken
)

// Indexed is an event that names its place in the log of its shard. A stream of such events does
// not go back in time: an opening that begins before what was taken is not believed.
type Indexed interface {
	LogIndex() (shard, index uint64)
}

// maxBacklog is how many events a consumer may leave untaken before the stream is closed, and
// opened again when it has taken them.
const maxBacklog = 1024

var errConsumerBehind = protocol.Errorf(protocol.StatusOverloaded,
	"the consumer of the watch fell behind by %d events; read them faster", maxBacklog)

func (x *Stream) start(e *Engine) {
	x.begin(e, x, x.Waiter)
	x.events, x.stalled = nil, false
	p := newShardStream(x, x.Kind, x.Msg, x.To.Tier)
	x.parts = []*shardStream{p}
	e.send(&p.Request)
}

// place is the leader of the shard that owns the object.
func (x *Stream) place(e *Engine, p *shardStream) *Conn {
	bucket, home := x.To.owner(e.routes.table)
	if home != nil {
		p.arg = uint64(bucket)
		p.follow(home)
	}
	return e.routes.toLeader(e, &p.Request, home)
}

// layout: the object's bucket may be another shard's by now. The one that it has left cuts the
// stream, but that word may be lost.
func (x *Stream) layout(e *Engine) {
	p := x.parts[0]
	if _, home := x.To.owner(e.routes.table); home != nil && p.open != nil && p.home != home.shard {
		p.restart(e)
	}
}

func (x *Stream) opening(p *shardStream) { p.decoder = x.Decode() }

func (x *Stream) interrupted(*Engine) {}

func (x *Stream) fail(e *Engine, err error) { x.end(e, err) }

func (x *Stream) event(e *Engine, p *shardStream, h *protocol.Header) error {
	event, step, err := p.decoder(*h)
	if err != nil || step == Partial {
		return err
	}
	if i, ok := event.(Indexed); ok {
		_, index := i.LogIndex()
		if !p.begun && !p.begin(e, index, 0) {
			return nil
		}
		p.took(e, index)
	}
	p.isLive()
	if step == Replace {
		clear(x.events)
		x.events = x.events[:0]
	}
	if len(x.events) >= maxBacklog {
		p.close(e)
		p.live, p.last, x.stalled = false, errConsumerBehind, true
		return nil
	}
	x.events = append(x.events, event)
	x.wake(e)
	return nil
}

// Next is the next event; ok is false if there is none now. err is why the stream is over: it comes
// behind the events that there are.
func (x *Stream) Next() (event any, ok bool, err error) {
	if len(x.events) > 0 {
		event = x.events[0]
		x.events[0] = nil
		x.events = x.events[1:]
		return event, true, nil
	}
	if x.err != nil {
		return nil, false, x.err
	}
	x.events, x.notified = nil, false
	if x.stalled && !x.ended {
		x.stalled = false
		x.parts[0].state = Waiting
		x.e.send(&x.parts[0].Request)
		x.e.resolve()
	}
	return nil, false, nil
}

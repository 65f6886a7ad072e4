package client

import (
	"bytes"
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ProcessWay is the way to the coordination process with a name on the session's node. It carries the protocol's messages and knows nothing of what they mean: use package
// client/process, which is made of it.
type ProcessWay struct {
	n    *Node
	s    *Session // nil: for reading and operating only
	name string
}

// Process is the way to a coordination process on the session's node.
func (s *Session) Process(name string) *ProcessWay {
	return &ProcessWay{n: &s.node, s: s, name: name}
}

// Process is the way to a coordination process, for reading and for operators.
func (n *Node) Process(name string) *ProcessWay { return &ProcessWay{n: n, name: name} }

// Name is the process's name.
func (p *ProcessWay) Name() string { return p.name }

// Node is the id of the node, which reads carry.
func (p *ProcessWay) Node() uint64 { return p.n.id }

// Session is the session whose requests go this way, nil for none.
func (p *ProcessWay) Session() *Session { return p.s }

// errNeedsSession: a member has a session.
var errNeedsSession = protocol.Errorf(protocol.StatusBadRequest, "this way to the process is for reading; open it on a session to take part")

// ProcessHandler takes what the server tells a member, one of the two. It runs on a goroutine that reads for many sessions, and must not wait. The messages are its own.
type ProcessHandler func(*protocol.ProcessRound, *protocol.ProcessMessage)

// ErrAlreadyMember: the session is a member of the process already.
var ErrAlreadyMember = errors.New("this session is a member of the process already; leave first, or join with another session")

// Listen has what the server tells about the process heard, until stop is called. One listens at a time: ErrAlreadyMember.
func (p *ProcessWay) Listen(ear ProcessHandler) (stop func(), err error) {
	if p.s == nil {
		return nil, withOp("join process", p.name, errNeedsSession)
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.err != nil {
		return nil, p.s.err
	}
	if p.s.processHandlers[p.name] != nil {
		return nil, withOp("join process", p.name, ErrAlreadyMember)
	}
	if p.s.processHandlers == nil {
		p.s.processHandlers = make(map[string]ProcessHandler)
	}
	p.s.processHandlers[p.name] = ear
	return func() {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		delete(p.s.processHandlers, p.name)
	}, nil
}

func (p *ProcessWay) bucket(ctx context.Context) (uint32, error) {
	t, err := p.n.c.tierOf(ctx, p.n.tier)
	if err != nil {
		return 0, err
	}
	return protocol.ProcessBucket(p.n.id, []byte(p.name), t.buckets), nil
}

// Change sends a numbered request of the session until it is answered. Head is the request's, and is filled in. Errors: as those of a semaphore's changes,
// ErrOutcomeUnknown among them.
func (p *ProcessWay) Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	if p.s == nil {
		return withOp(opName(kind), p.name, errNeedsSession)
	}
	bucket, err := p.bucket(ctx)
	if err != nil {
		return withOp(opName(kind), p.name, err)
	}
	x := requestState{head: head}
	_, sent, err := p.s.send(ctx, kind, bucket, &x, m, reply)
	p.s.closeSeq(x.seq)
	if err != nil {
		err = outcomeUnknown(sent && !answered(err), err)
	}
	return withOp(opName(kind), p.name, err)
}

// Tell sends a request of the session that has no number until it is answered. It may arrive more than once.
func (p *ProcessWay) Tell(ctx context.Context, kind protocol.Kind, m protocol.Message) error {
	if p.s == nil {
		return withOp(opName(kind), p.name, errNeedsSession)
	}
	bucket, err := p.bucket(ctx)
	if err == nil {
		_, _, err = p.s.send(ctx, kind, bucket, &requestState{}, m, &protocol.Empty{})
	}
	return withOp(opName(kind), p.name, err)
}

// Follow calls connected whenever the way leads over another connection or attach than before, the first time too, until ctx or the session ends: what was told
// between may be lost.
func (p *ProcessWay) Follow(ctx context.Context, connected func()) {
	s := p.s
	retry := backoff{base: retryBase, max: retryMax}
	for ctx.Err() == nil && s.endErr() == nil {
		bucket, err := p.bucket(ctx)
		var route requestRoute
		if err == nil {
			route, err = s.routeRequest(ctx, bucket, &requestState{})
		}
		if err != nil {
			s.c.waitRetry(ctx, route.shard, route.cn, err, &retry)
			continue
		}
		retry.failures = 0
		connected()
		p.await(ctx, route, bucket)
	}
}

// await returns when the trail is lost, or leads elsewhere.
func (p *ProcessWay) await(ctx context.Context, route requestRoute, bucket uint32) {
	s := p.s
	for {
		mapped := s.c.mapChanged()
		if s.c.routeChanged(route, s.node.tier, bucket) {
			return
		}
		select {
		case <-mapped:
		case <-route.att.gone:
			return
		case <-route.cn.done:
			return
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// processEvent hands on what the server told a member.
func (c *Client) processEvent(h protocol.Header) error {
	body := bytes.Clone(h.Body) // it is kept
	var session uint64
	var name []byte
	var round *protocol.ProcessRound
	var message *protocol.ProcessMessage
	if h.Kind == protocol.KindProcessRound {
		round = new(protocol.ProcessRound)
		if err := round.DecodeBody(body); err != nil {
			return err
		}
		session, name = round.Session, round.Name
	} else {
		message = new(protocol.ProcessMessage)
		if err := message.DecodeBody(body); err != nil {
			return err
		}
		session, name = message.Session, message.Name
	}
	s := c.session(session)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	ear := s.processHandlers[string(name)]
	s.mu.Unlock()
	if ear != nil {
		ear(round, message)
	}
	return nil
}

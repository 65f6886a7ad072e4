package client

import (
	"bytes"
	"context"
	"iter"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Ask asks the shard of the process, until it is answered: to read it, or for an operator to change it. repeated says that an earlier sending of the request may have had
// its effect without an answer.
func (p *ProcessWay) Ask(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) (repeated bool, err error) {
	bucket, err := p.bucket(ctx)
	if err == nil {
		repeated, err = p.n.c.request(ctx, p.n.c.atBucket(p.n.tier, bucket), kind, m, reply)
	}
	return repeated, withOp(opName(kind), p.name, err)
}

// ProcessEvent is what a watch of a process tells: how it stands, or what changed since. One of the two is set.
type ProcessEvent struct {
	State   *protocol.ProcessState // replaces all that was told before; whole, not a page
	Changes *protocol.ProcessChanges
}

// Watch tells how the process stands, and then every change, until ctx ends; a process that does not exist is told as such, and watched for. It resumes by itself, with
// a new state: after a lost connection, a change of leader, or when the consumer fell behind. The last pair carries the error that ended it: ctx's, Forbidden, Unsupported.
func (p *ProcessWay) Watch(ctx context.Context) iter.Seq2[ProcessEvent, error] {
	req := &protocol.ProcessWatch{Node: p.n.id, Name: []byte(p.name)}
	bucket := func() (uint32, error) { return p.bucket(ctx) }
	return watchObject(ctx, p.n, p.name, bucket, protocol.KindProcessWatch, req, func() streamDecoder[ProcessEvent] {
		return new(processPages).read
	})
}

// processPages puts the pages of a state together.
type processPages struct {
	state *protocol.ProcessState // nil: no first page has come
}

func (p *processPages) read(h protocol.Header) (news ProcessEvent, step streamStep, err error) {
	body := bytes.Clone(h.Body) // it is kept
	if h.Kind == protocol.KindProcessChanges {
		news.Changes = new(protocol.ProcessChanges)
		return news, stepAppend, news.Changes.DecodeBody(body)
	}
	page := new(protocol.ProcessState)
	if err := page.DecodeBody(body); err != nil {
		return news, stepPartial, err
	}
	switch {
	case page.First:
		p.state = page
	case p.state == nil:
		return news, stepPartial, nil // a page without a first one
	default:
		p.state.Status.Members = append(p.state.Status.Members, page.Status.Members...)
		p.state.Status.History = append(p.state.Status.History, page.Status.History...)
	}
	if !page.Last {
		return news, stepPartial, nil
	}
	news.State, p.state = p.state, nil
	return news, stepReplace, nil
}

// Processes lists the coordination processes whose name begins with prefix, in order of name, over all shards. The sequence ends after its first error.
func (n *Node) Processes(ctx context.Context, prefix string) iter.Seq2[protocol.ProcessItem, error] {
	return func(yield func(protocol.ProcessItem, error) bool) {
		shards, err := n.shards(ctx)
		if err != nil {
			yield(protocol.ProcessItem{}, withOp("list processes", prefix, err))
			return
		}
		var pagers []*pager[protocol.ProcessItem]
		for _, shard := range shards {
			req := &protocol.ProcessList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Consistency: protocol.Strict}
			more := true
			pagers = append(pagers, &pager[protocol.ProcessItem]{read: func() ([]protocol.ProcessItem, error) {
				for more {
					var reply protocol.ProcessListReply
					if _, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindProcessList, req, &reply); err != nil {
						return nil, withOp("list processes", prefix, err)
					}
					req.Cursor, more = reply.Cursor, len(reply.Cursor) > 0
					if len(reply.Processes) > 0 {
						return reply.Processes, nil
					}
				}
				return nil, nil
			}})
		}
		merge(pagers, func(i *protocol.ProcessItem) string { return string(i.Name) }, yield)
	}
}

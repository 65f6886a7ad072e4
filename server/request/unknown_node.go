package request

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
)

const (
	textNodeNotInMap = "the map of this instance does not have the node yet; ask again"
	textNoNode       = "coordination node is not known; create it first, or resolve its path again"
	// unknownNodeTimeout bounds the wait for the meta shard. After it the client asks again.
	unknownNodeTimeout = 3 * time.Second
	// maxUnknownNodeRequests bounds how many requests wait at a time, a few hundred bytes each.
	// What comes then is to be asked again at once.
	maxUnknownNodeRequests = 1 << 14
)

// unknownNode is a right on a node whose id is higher than all ids in this instance's map. The node
// may have been made a moment ago.
type unknownNode struct {
	answer *protocol.Error // while it is not known
	right  auth.Right
	node   uint64
}

// unknownNodes are requests about such nodes, and describes of paths that the map does not have.
// They are answered when the meta shard has confirmed the map. An id that was never given out then
// gets the answer of a node that the identity may not use: if it were told apart at once, a client
// could count the nodes of others.
type unknownNodes struct {
	mu      sync.Mutex
	list    []unknownNodeRequest
	running bool
}

type unknownNodeRequest struct {
	unknownNode
	path string // of a describe, which was allowed; the id and the right do not count
	conn *Client
	kind protocol.Kind
	id   uint64
}

// reject answers a request that is not carried out. What allowed has just said of a node that this
// instance has not heard of is looked at again when its map is up to date.
func (p *cycle) reject(c *Client, h protocol.Header, bad *protocol.Error) {
	u := c.unknownNode
	if c.unknownNode = nil; u == nil || u.answer != bad {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return
	}
	p.awaitMap(unknownNodeRequest{unknownNode: *u, conn: c, kind: h.Kind, id: h.ID})
}

// awaitMap has a request answered when the map is up to date.
func (p *cycle) awaitMap(x unknownNodeRequest) {
	s := p.server
	q := &s.unknownNodes
	q.mu.Lock()
	if len(q.list) >= maxUnknownNodeRequests {
		q.mu.Unlock()
		p.out.FailError(x.conn, x.kind, x.id, x.answer)
		return
	}
	q.list = append(q.list, x)
	begin := !q.running
	q.running = true
	q.mu.Unlock()
	if begin {
		s.cfg.Go(func() { answerUnknownNodes(s) })
	}
}

// answerUnknownNodes answers what waits, and what comes meanwhile: one confirmation for all that
// came before it.
func answerUnknownNodes(s *Server) {
	defer s.Guard("unheard", func() {
		s.unknownNodes.mu.Lock()
		s.unknownNodes.running = false
		s.unknownNodes.mu.Unlock()
	})
	q := &s.unknownNodes
	for {
		q.mu.Lock()
		list := q.list
		q.list = nil
		q.running = len(list) > 0
		q.mu.Unlock()
		if len(list) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(s.cfg.Context, unknownNodeTimeout)
		confirmed := s.cfg.Cluster.Sync(ctx) == nil
		cancel()
		state := s.cfg.Cluster.State()
		o := s.BorrowOutbox()
		for i := range list {
			x := &list[i]
			if x.path != "" {
				x.describe(o, confirmed)
				continue
			}
			bad := x.answer
			if n, ok := state.Node(x.node); confirmed && !ok {
				if bad = x.conn.allowedPath(x.right, n.Path); bad == nil { // it has the right everywhere
					bad = protocol.Errorf(protocol.StatusNotFound, "%s", textNoNode)
				}
			} else if ok {
				if lacks := x.conn.allowedPath(x.right, n.Path); lacks != nil {
					bad = lacks
				}
			}
			o.FailError(x.conn, x.kind, x.id, bad)
		}
		s.ReturnOutbox(o)
	}
}

// describe answers a describe, by a map that is up to date if confirmed.
func (x *unknownNodeRequest) describe(o *Outbox, confirmed bool) {
	switch info, err := o.server.cfg.Cluster.Governor().DescribeNode(x.path); {
	case err == nil:
		o.Reply(x.conn, x.kind, x.id, &info)
	case confirmed:
		o.FailError(x.conn, x.kind, x.id, err)
	default:
		o.FailError(x.conn, x.kind, x.id, x.answer)
	}
}

package request

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/transport"
)

var errNoNode = protocol.Refuse(protocol.RefusalNoNode,
	"coordination node is not known; create it first, or resolve its path again")

const (
	// textMapBehind is the same for a node and for a right: an identity without rights must not
	// learn which nodes there are.
	textMapBehind = "the map of this instance may be behind, and does not have the node or the right yet; ask again"
	// unconfirmedTimeout bounds the wait for the meta shard. After it the client asks again.
	unconfirmedTimeout = 3 * time.Second
	// maxUnconfirmed bounds how many requests wait at a time, each with a path or a token at most.
	// Later ones are rejected, and the client asks again at once.
	maxUnconfirmed = 1 << 14
	// maxUnconfirmedRefusals is how many of them may lack a right or credentials by the map here.
	// Clients that have none must not keep others from learning of new nodes.
	maxUnconfirmedRefusals = maxUnconfirmed / 2
)

// unconfirmed is a need of a request that this instance's map does not meet: a right, or a node
// whose id is higher than all ids in the map. The right may have been granted, or the node made, a
// moment ago.
type unconfirmed struct {
	answer  *protocol.Error // while the map is not confirmed
	refused bool            // by the rights or tokens in the map here; counts as a rejection, whatever the answer
	right   auth.Right
	node    uint64
	path    string // if not empty, instead of the node
}

// unconfirmedRequests are the requests with unmet needs, describes of paths that the map does not
// have, and hellos whose credentials it does not have. They are answered when the meta shard has
// confirmed the map. An id that was never given out then gets the answer of a node that the
// identity may not use: a different answer at once would let a client count the nodes of others.
type unconfirmedRequests struct {
	mu       sync.Mutex
	list     []unconfirmedRequest
	refusals int // of list
	running  bool
}

type unconfirmedRequest struct {
	unconfirmed
	token []byte     // of a hello
	why   error      // the same: the error of its credentials
	view  *auth.View // the same: the view that why is from
	asks  bool       // the same: a console, see rejectCredentials
	conn  *Client
	kind  protocol.Kind
	id    uint64
}

// reject answers a request that is not carried out. A node or a right that this instance has not
// heard of is looked for again when its map is up to date.
func (p *cycle) reject(c *Client, h protocol.Header, bad *protocol.Error) {
	u := c.unconfirmed
	if c.unconfirmed = nil; u == nil || u.answer != bad {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return
	}
	p.out.awaitMap(unconfirmedRequest{unconfirmed: *u, conn: c, kind: h.Kind, id: h.ID})
}

// awaitMap has a request answered when the map is up to date.
func (o *Outbox) awaitMap(x unconfirmedRequest) {
	s := o.server
	q := &s.unconfirmed
	q.mu.Lock()
	if len(q.list) >= maxUnconfirmed || x.refused && q.refusals >= maxUnconfirmedRefusals {
		q.mu.Unlock()
		x.fail(o, x.answer)
		return
	}
	q.list = append(q.list, x)
	if x.refused {
		q.refusals++
	}
	begin := !q.running
	q.running = true
	q.mu.Unlock()
	if begin {
		s.cfg.Go(func() { answerUnconfirmed(s) })
	}
}

// answerUnconfirmed answers the waiting requests, and those that come meanwhile: one confirmation
// serves all requests that came before it. A stop of the instance ends them.
func answerUnconfirmed(s *Server) {
	q := &s.unconfirmed
	defer s.Guard("unconfirmed", func() {
		q.mu.Lock()
		q.running = false
		q.mu.Unlock()
	})
	for {
		q.mu.Lock()
		list := q.list
		q.list, q.refusals = nil, 0
		q.running = len(list) > 0
		q.mu.Unlock()
		if len(list) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(s.confirming, unconfirmedTimeout)
		confirmed := s.cfg.Cluster.Sync(ctx) == nil
		cancel()
		if !confirmed { // the answer also for the requests that came meanwhile
			q.mu.Lock()
			list = append(list, q.list...)
			q.list, q.refusals = nil, 0
			q.mu.Unlock()
		}
		state := s.cfg.Cluster.State()
		s.SetAuth(state)
		o := s.BorrowOutbox()
		for i := range list {
			x := &list[i]
			if x.kind == protocol.KindHello {
				x.refuseHello(o, confirmed)
				continue
			}
			path, known := x.path, true
			if path == "" {
				n, ok := state.Node(x.node)
				path, known = n.Path, ok
			}
			lacks := x.conn.allowedPath(x.right, path)
			switch {
			case lacks == nil && x.kind == protocol.KindNodeDescribe:
				x.describe(o, confirmed)
			case !confirmed, lacks == nil && known:
				x.fail(o, x.answer)
			case lacks != nil:
				x.fail(o, lacks)
			default: // it has the right everywhere
				x.fail(o, errNoNode)
			}
		}
		s.ReturnOutbox(o)
	}
}

// fail answers a request with an error. A client that goes on sending refused requests is paused
// even while the map cannot be confirmed.
func (u *unconfirmedRequest) fail(o *Outbox, bad *protocol.Error) {
	if u.kind == protocol.KindHello {
		u.conn.rejectCredentials(u.kind, u.id, u.why, bad, u.asks)
		return
	}
	if u.refused && !countsAsRejection(bad.Status) {
		u.conn.CountRejection()
	}
	o.FailError(u.conn, u.kind, u.id, bad)
}

// refuseHello refuses a hello for good if its credentials are not good by a confirmed map. If they
// are good by now, or have to be checked by other trusts, it is no failure.
func (u *unconfirmedRequest) refuseHello(o *Outbox, confirmed bool) {
	view := o.server.auth.Load()
	_, err := u.conn.authenticate(view, u.token, false)
	switch {
	case err == nil, errors.Is(err, auth.ErrUnchecked) && !view.SameTrusts(u.view):
		o.FailError(u.conn, u.kind, u.id, u.answer)
		u.conn.Close(transport.Graceful, u.answer.Status, u.answer.Message)
	case confirmed:
		u.fail(o, errCredentials())
	default:
		u.fail(o, u.answer)
	}
}

// describe answers a describe, by a map that is up to date if confirmed.
func (u *unconfirmedRequest) describe(o *Outbox, confirmed bool) {
	switch info, err := o.server.cfg.Cluster.Governor().DescribeNode(u.path); {
	case err == nil:
		o.Reply(u.conn, u.kind, u.id, &info)
	case confirmed:
		o.FailError(u.conn, u.kind, u.id, err)
	default:
		u.fail(o, u.answer)
	}
}

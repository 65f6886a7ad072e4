package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
)

// requestKind describes one kind of request to the server. A new kind is one row of its family's
// table, and a handler in the same file.
type requestKind struct {
	// body returns the buffer into which a request is decoded before anything else, and the session
	// or node that it names. Nil: the handler decodes.
	body func(*requestBuffers, protocol.Kind) (m request, id *uint64)
	// data returns the data that Limits.MaxData bounds, and its name in the refusal. Nil: no data.
	data func(request) (what string, data []byte)

	ofSession bool        // id is a session's, which must be bound to the connection; else a node's
	right     auth.Right  // on the node; 0: none, or the handler checks
	charge    quotaCharge // to the node's quota of requests
	grows     bool        // it takes memory until somebody releases it; rejected while memory is short
	routed    bool        // to the shard here that owns the bucket; otherwise the handler finds its shard, or needs none
	read      *readKind   // of describes and lists: how they are answered

	handle func(c *Client, p *cycle, h protocol.Header, t target)
}

// target is a request with the objects that it names, once the checks of its kind have passed.
type target struct {
	message request          // as its row's body decoded it
	binding *session.Binding // nil if the request names no session
	node    uint64
	shard   Shard // nil if not routed
}

// requestTable has a row for each kind that is served.
type requestTable [protocol.NumKinds]requestKind

// newRequestTable gathers the rows of all families.
func newRequestTable() *requestTable {
	t := new(requestTable)
	for _, family := range []map[protocol.Kind]requestKind{
		connRequests(), nodeRequests(), sessionRequests(), semaphoreRequests(), watchRequests(), readKinds(),
		processRequestKinds(), trackRequestKinds(), limitRequestKinds(),
	} {
		for kind, row := range family {
			t[kind] = row
		}
	}
	return t
}

// serve checks a request as its kind's row says, and hands it on. It checks the arguments before
// the session, and the session before the right.
func (c *Client) serve(p *cycle, h protocol.Header, k *requestKind) {
	if k.body == nil {
		k.handle(c, p, h, target{})
		return
	}
	m, named := k.body(&p.requests, h.Kind)
	if !p.decode(c, h, m) {
		return
	}
	if k.data != nil {
		if what, data := k.data(m); len(data) > c.server.cfg.Limits.MaxData {
			p.out.FailError(c, h.Kind, h.ID, protocol.Errorf(protocol.StatusBadRequest,
				"%s is %d bytes long; at most %d are allowed here", what, len(data), c.server.cfg.Limits.MaxData))
			return
		}
	}
	id := *named
	t := target{message: m, node: id}
	if k.ofSession {
		if t.binding = c.Binding(id); t.binding == nil {
			rejectUnbound(c, p.out, h.Kind, h.ID, id)
			return
		}
		t.node = t.binding.Node
	}
	if k.right != 0 {
		if bad := c.allowed(k.right, t.node); bad != nil {
			p.reject(c, h, bad)
			return
		}
	}
	if !chargeQuota(c, p, h, t.node) {
		return
	}
	if k.routed {
		tier := protocol.SessionTier(id)
		if !k.ofSession {
			tier = c.server.Routes().tierOf(id)
		}
		if t.shard = c.shardFor(p, h, tier); t.shard == nil {
			return
		}
	}
	k.handle(c, p, h, t)
}

// submitTarget hands a request on to the log as the bytes that came.
func submitTarget(c *Client, p *cycle, h protocol.Header, t target) {
	c.submitToShard(t.shard, p, h, t.command())
}

// command returns a command on behalf of the request's target.
func (t *target) command() shard.Command {
	if t.binding == nil {
		return shard.Command{Node: t.node}
	}
	return shard.Command{Node: t.node, Epoch: t.binding.Epoch}
}

// requestBuffers is memory for decoding requests: one of each kind that has come.
type requestBuffers [protocol.NumKinds]request

// buffer returns the decode buffer for a request of a kind. It is good until the next one of the
// kind.
func buffer[M any, P interface {
	*M
	request
}](b *requestBuffers, kind protocol.Kind) P {
	if b[kind] == nil {
		b[kind] = P(new(M))
	}
	return b[kind].(P)
}

// onSession is the row of a request on a session of the connection, which session finds in it. It
// is routed to the shard here that owns its bucket.
func onSession[M any, P interface {
	*M
	request
}](session func(P) *uint64, k requestKind) requestKind {
	k = onNode(session, k)
	k.ofSession, k.routed = true, true
	return k
}

// onNode is the row of a request about a coordination node, which node finds in it.
func onNode[M any, P interface {
	*M
	request
}](node func(P) *uint64, k requestKind) requestKind {
	k.body = func(b *requestBuffers, kind protocol.Kind) (request, *uint64) {
		m := buffer[M, P](b, kind)
		return m, node(m)
	}
	return k
}

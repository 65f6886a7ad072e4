package server

import "github.com/signalbox-dev/signalbox/protocol"

// Right is what an operation needs on its coordination node's path.
type Right uint8

const (
	RightRead  Right = 1 // start a session, describe, list, watch
	RightUse   Right = 2 // create, update, acquire, release
	RightAdmin Right = 3 // resize, delete, kill, and changes of nodes
)

// String is the right's name in messages.
func (r Right) String() string {
	switch r {
	case RightRead:
		return "read"
	case RightUse:
		return "use"
	case RightAdmin:
		return "admin"
	}
	return "unknown"
}

// Authenticator turns a hello's credentials into an identity. It is called on an event loop and must not block. An error refuses the
// connection with UNAUTHENTICATED.
type Authenticator interface {
	Authenticate(c Credentials) (identity string, err error)
}

// Authorizer says whether an identity has a right on a path. It is asked before anything is looked
// up, so that a missing right tells nothing about what exists; path is empty when the request names
// a node id that is not known. It is called on event loops and must not block.
type Authorizer interface {
	Allowed(identity string, right Right, path string) bool
}

// Anonymous accepts everybody as the identity "anonymous".
type Anonymous struct{}

// Authenticate never refuses.
func (Anonymous) Authenticate(Credentials) (string, error) { return "anonymous", nil }

// allowed checks a right on a node by its id. While auth is off and there is no Authorizer it costs two comparisons.
func (c *conn) allowed(right Right, node uint64) *protocol.Error {
	if v := c.server.auth.Load(); c.server.cfg.Authorizer == nil && (v == nil || !v.enabled) {
		return nil
	}
	state := c.server.routing().state
	n, ok := state.Node(node)
	if !ok && node > state.LastNode() && c.allowedAnywhere(right) {
		c.unknownNode = &unknownNode{answer: protocol.Errorf(protocol.StatusUnavailable, "%s", textNodeNotInMap), right: right, node: node}
		return c.unknownNode.answer
	}
	return c.allowedPath(right, n.Path)
}

// allowedAnywhere says whether the identity has the right on any path. One that has it nowhere is
// told the same of a node that does not exist as of one that it may not use.
func (c *conn) allowedAnywhere(right Right) bool {
	if a := c.server.cfg.Authorizer; a != nil {
		return a.Allowed(c.identity, right, "")
	}
	v := c.server.auth.Load()
	return v == nil || v.allowedAnywhere(c.identity, right)
}

func (c *conn) allowedPath(right Right, path string) *protocol.Error {
	if a := c.server.cfg.Authorizer; a != nil {
		if a.Allowed(c.identity, right, path) {
			return nil
		}
	} else if v := c.server.auth.Load(); v == nil || v.allowed(c.identity, right, path) {
		return nil
	}
	return protocol.Errorf(protocol.StatusForbidden, "identity %q lacks the right %s here; ask for it", c.identity, right)
}

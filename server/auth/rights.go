package auth

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

// Authorizer reports whether an identity has a right on a path. It is asked before anything is
// looked up, so that a missing right tells nothing about what exists; path is empty when the
// request names a node id that is not known. It is called on event loops and must not block.
type Authorizer interface {
	Allowed(identity string, right Right, path string) bool
}

package auth

import (
	"crypto/x509"
)

// Credentials are what a client shows.
type Credentials struct {
	Token       []byte            // of the hello; empty when it has none
	Certificate *x509.Certificate // over TLS, verified; nil when it shows none
	Remote      string            // its address
}

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

// Authenticator turns a hello's credentials into an identity. It is called on an event loop and
// must not block. An error refuses the connection with UNAUTHENTICATED.
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

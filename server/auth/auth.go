package auth

import "crypto/x509"

// Credentials are what a client shows.
type Credentials struct {
	Token       []byte            // of the hello; empty when it has none
	Certificate *x509.Certificate // over TLS, verified; nil when it shows none
	Remote      string            // its address
}

// Authenticator turns a hello's credentials into an identity. It is called on an event loop and
// must not block. An error refuses the connection with UNAUTHENTICATED.
type Authenticator interface {
	Authenticate(c Credentials) (identity string, err error)
}

package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

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

// Failures are the hosts whose credentials were refused lately.
type Failures struct {
	mu    sync.Mutex
	hosts map[string]*hostFailures
}

type hostFailures struct {
	count int
	last  time.Time
}

const (
	firstDelay = 10 * time.Millisecond // after the first failure of a host; each further one doubles it
	maxDelay   = 2 * time.Second
	failureTTL = time.Minute // without a failure, then a host's are forgotten
	maxHosts   = 4096        // that failures are kept of; beyond, all are forgotten
)

// Delay counts a failure, and says how late it is to be answered.
func (f *Failures) Delay(host string, now time.Time) (d time.Duration, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := f.hosts[host]
	if failures == nil {
		if f.hosts == nil || len(f.hosts) >= maxHosts {
			f.hosts = make(map[string]*hostFailures)
		}
		failures = new(hostFailures)
		f.hosts[host] = failures
	}
	if now.Sub(failures.last) > failureTTL {
		failures.count = 0
	}
	failures.last = now
	failures.count++
	return min(firstDelay<<min(failures.count-1, 10), maxDelay), failures.count
}

// Bounds of what people bring, in bytes.
const (
	MinSecretLen = 16
	MaxSecretLen = 1024
	MaxIdentity  = 255
)

// The first administrator.
const (
	AdminIdentity = meta.AdminIdentity
	AdminTokenID  = "admin"
)

// HashToken is what the cluster keeps of a token's secret. Secrets are random and long, so one
// round of a hash hides them.
func HashToken(secret []byte) [meta.HashLen]byte { return sha256.Sum256(secret) }

// BindKey has a session's protection key count for the identity that started the session alone: the
// shard is given a hash of both in its place. What is anonymous stays as it is.
func BindKey(key []byte, identity string) {
	if identity == meta.AnonymousIdentity {
		return
	}
	h := sha256.New()
	h.Write([]byte("signalbox session key 1\x00"))
	h.Write(key)
	h.Write([]byte(identity))
	copy(key, h.Sum(nil))
}

// NewSecret makes a token's secret.
func NewSecret() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "sbx_" + hex.EncodeToString(b[:])
}

package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

const (
	maxViewers     = 32 // sets of credentials in use at a time; each has connections of its own
	connectTimeout = 5 * time.Second
	rightsTime     = 2 * time.Second // how long an answer about identity and rights is used

	// refusedTime is how long it is remembered that the cluster requires credentials. Each attempt
	// without them counts there as a failure, and failures delay clients of the same host.
	refusedTime = 5 * time.Second
)

var errTooManyViewers = errors.New("people with 32 different credentials use this console; " +
	"try again when one of them has left")

// viewerKey is the hash of a token, or ownKey.
type viewerKey [sha256.Size]byte

// ownKey is of the console's own credentials.
var ownKey viewerKey

// hasToken reports whether a client shows a token.
func hasToken(cfg client.Config) bool { return len(cfg.Token) > 0 || cfg.GetToken != nil }

// viewer has one set of credentials: one client of the cluster.
type viewer struct {
	key    viewerKey
	client *client.Client
	admin  *admin.Client

	who   recent[*admin.Identity]
	past  recent[[]admin.TopPoint]
	auth  recent[*admin.AuthState]
	mu    sync.Mutex
	nodes map[string]*recent[*client.Node]
	users int // sessions; guarded by viewers.mu
}

// recent is an answer of the cluster that is used for a while.
type recent[T any] struct {
	mu   sync.Mutex
	last T
	at   time.Time
}

func (r *recent[T]) get(most time.Duration, ask func() (T, error)) (T, error) {
	r.mu.Lock()
	last, at := r.last, r.at
	r.mu.Unlock()
	if time.Since(at) < most {
		return last, nil
	}
	last, err := ask()
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last, r.at = last, time.Now()
	}
	return last, err
}

// pastTime is how long an answer about the last minutes is used: a point is added each 15 s.
const pastTime = 5 * time.Second

// history returns what the cluster did in the last 15 minutes, as of at most pastTime ago.
func (v *viewer) history(ctx context.Context) ([]admin.TopPoint, error) {
	return v.past.get(pastTime, func() ([]admin.TopPoint, error) { return v.admin.History(ctx) })
}

// identity says who the viewer is and whether rights count, as of at most rightsTime ago.
func (v *viewer) identity(ctx context.Context) (*admin.Identity, error) {
	return v.who.get(rightsTime, func() (*admin.Identity, error) { return v.admin.WhoAmI(ctx) })
}

// nodeTime is how long a path is taken for the same node. A node that was dropped and created again
// is found after it.
const nodeTime = 5 * time.Second

// maxNodes bounds the paths of a viewer that are remembered.
const maxNodes = 64

// node is the coordination node of a path, as of at most nodeTime ago: pages that are looked at are
// read again and again.
func (v *viewer) node(ctx context.Context, path string) (*client.Node, error) {
	v.mu.Lock()
	known := v.nodes[path]
	if known == nil {
		if known = new(recent[*client.Node]); v.nodes == nil || len(v.nodes) >= maxNodes {
			v.nodes = make(map[string]*recent[*client.Node])
		}
		v.nodes[path] = known
	}
	v.mu.Unlock()
	return known.get(nodeTime, func() (*client.Node, error) { return v.client.Node(ctx, path) })
}

// viewers are the clients of a console, by credentials.
type viewers struct {
	cfg client.Config

	mu         sync.Mutex
	byKey      map[viewerKey]*viewer
	connecting map[viewerKey]chan struct{} // closed when the attempt is over
	refusedAt  time.Time                   // when the cluster last refused clients without credentials
	closed     bool
}

func newViewers(cfg client.Config) *viewers {
	return &viewers{cfg: cfg, byKey: make(map[viewerKey]*viewer), connecting: make(map[viewerKey]chan struct{})}
}

// anonymous is the viewer with the console's own credentials, which are none if people log in.
func (s *viewers) anonymous(ctx context.Context) (*viewer, error) {
	s.mu.Lock()
	refused := !hasToken(s.cfg) && time.Since(s.refusedAt) < refusedTime
	s.mu.Unlock()
	if refused {
		return nil, client.ErrUnauthenticated
	}
	v, err := s.connected(ctx, ownKey, s.cfg)
	if errors.Is(err, client.ErrUnauthenticated) {
		s.refuse(nil)
	}
	return v, err
}

// refuse notes that the cluster refuses clients without credentials, and closes the one there is.
func (s *viewers) refuse(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedAt = time.Now()
	if v != nil && s.byKey[v.key] == v {
		s.drop(v)
	}
}

// get connects with a token, or returns the viewer that has it.
func (s *viewers) get(ctx context.Context, token []byte) (*viewer, error) {
	cfg := s.cfg
	cfg.Token, cfg.GetToken = token, nil
	return s.connected(ctx, sha256.Sum256(token), cfg)
}

// connected connects with credentials, or returns the viewer that has them.
func (s *viewers) connected(ctx context.Context, key viewerKey, cfg client.Config) (*viewer, error) {
	for {
		s.mu.Lock()
		v, attempt := s.byKey[key], s.connecting[key]
		switch {
		case s.closed:
			s.mu.Unlock()
			return nil, client.ErrClientClosed
		case v != nil:
			s.mu.Unlock()
			return v, nil
		case attempt == nil: // attempts to log in are bounded by themselves: see attempts
			done := make(chan struct{})
			s.connecting[key] = done
			s.mu.Unlock()
			return s.connect(ctx, key, cfg, done)
		}
		s.mu.Unlock()
		select {
		case <-attempt:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *viewers) connect(
	ctx context.Context, key viewerKey, cfg client.Config, done chan struct{},
) (*viewer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := client.Open(ctx, cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connecting, key)
	close(done)
	switch {
	case err != nil:
		return nil, err
	case s.closed:
		c.CloseWithoutRelease()
		return nil, client.ErrClientClosed
	case len(s.byKey) >= maxViewers && !s.dropUnused():
		c.CloseWithoutRelease()
		return nil, errTooManyViewers
	}
	v := &viewer{key: key, client: c, admin: admin.New(c)}
	s.byKey[key] = v
	return v, nil
}

// dropUnused closes a client that no session uses. The lock is held.
func (s *viewers) dropUnused() bool {
	for key, v := range s.byKey {
		if v.users == 0 && key != ownKey {
			s.drop(v)
			return true
		}
	}
	return false
}

// drop closes a client. The lock is held.
func (s *viewers) drop(v *viewer) {
	delete(s.byKey, v.key)
	go func() { _ = v.client.Close() }() // its sessions are short ones of actions, and end with their actions
}

// use counts a session that has the viewer; false: its client was closed.
func (s *viewers) use(v *viewer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[v.key] != v {
		return false
	}
	v.users++
	return true
}

// release counts a session off. The last one closes the client.
func (s *viewers) release(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.users--; v.users == 0 && s.byKey[v.key] == v && v.key != ownKey {
		s.drop(v)
	}
}

func (s *viewers) close() {
	s.mu.Lock()
	s.closed = true
	open := s.byKey
	s.byKey = make(map[viewerKey]*viewer)
	s.mu.Unlock()
	for _, v := range open {
		v.client.CloseWithoutRelease()
	}
}

// may reports whether an identity has a right on a path, as far as the cluster has said. It decides
// which buttons are shown; the server decides what is done.
func may(who *admin.Identity, right, path string) bool {
	if !who.Enabled {
		return true
	}
	ranks := map[string]int{"read": 1, "use": 2, "admin": 3}
	best, rank := -1, 0
	for _, r := range who.Rights {
		if within(r.Path, path) && len(r.Path) > best {
			best, rank = len(r.Path), ranks[r.Right]
		}
	}
	return rank >= ranks[right]
}

// within reports whether a path is a node's or below it.
func within(node, path string) bool {
	return node == "/" || node == path || strings.HasPrefix(path, node+"/")
}

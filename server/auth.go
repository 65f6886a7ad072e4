package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Credentials are what a client shows.
type Credentials struct {
	Token       []byte            // of the hello; empty when it has none
	Certificate *x509.Certificate // over TLS, verified; nil when it shows none
	Remote      string            // its address
}

// authView is who may do what, as the meta shard has it. It never changes; a newer one replaces it.
type authView struct {
	state    *meta.State
	enabled  bool
	revision uint64
	tokens   map[[meta.HashLen]byte]*meta.Token
}

// setAuth follows the meta shard. Who came in by what does not count any more is sent away, and may come again with what does.
func (s *Server) setAuth(state *meta.State) {
	s.authMu.Lock()
	defer s.authMu.Unlock()
	list, revision := state.Tokens()
	old := s.auth.Load()
	if old != nil && old.revision >= revision {
		return
	}
	v := &authView{state: state, enabled: state.AuthOn(), revision: revision, tokens: make(map[[meta.HashLen]byte]*meta.Token, len(list))}
	for i := range list {
		v.tokens[list[i].Hash] = &list[i]
	}
	s.auth.Store(v)
	if old == nil {
		return // nobody is connected yet
	}
	o := s.borrowOutbox()
	defer s.returnOutbox(o)
	lost := v.identitiesWithLostRights(old)
	s.conns.each(func(c *conn) {
		if c.helloDone.Load() {
			c.recheckCredentials(old, v, lost)
		}
	})
}

// identitiesWithLostRights finds the identities from which a right was taken away since an older view. What was opened with it (streams, watches, memberships) would go on, since rights are looked at when
// something is asked for.
func (v *authView) identitiesWithLostRights(old *authView) map[string]bool {
	before, _ := old.state.RightsList()
	now, _ := v.state.RightsList()
	found := make(map[string]bool)
	for _, list := range [][]meta.Right{before, now} {
		for i := range list {
			r := &list[i]
			if old.state.Rights(r.Identity, r.Prefix)&^v.state.Rights(r.Identity, r.Prefix) != 0 {
				found[r.Identity] = true
			}
		}
	}
	return found
}

// recheckCredentials sends a connection away that came in by what does not count any more, or whose identity may do less than before.
func (c *conn) recheckCredentials(old, v *authView, lost map[string]bool) {
	if c.server.cfg.Authenticator != nil {
		return
	}
	if c.server.cfg.Authorizer == nil && old.enabled && v.enabled && lost[plainIdentity(c.identity)] {
		c.close(closeGraceful, protocol.StatusUnavailable, "a right of this connection's identity was taken away; connect again with those that are left")
		return
	}
	if by := c.tokenHash.Load(); by != nil && v.tokens[*by] == nil {
		c.close(closeGraceful, protocol.StatusUnauthenticated, "the token that this connection came in with was revoked; get a new one")
	} else if by == nil && v.enabled && !old.enabled && !c.authExempt.Load() {
		c.close(closeGraceful, protocol.StatusUnavailable, "credentials count from now on; connect again, with some")
	}
}

// hashToken is what the cluster keeps of a token's secret. Secrets are random and long, so one round of a hash hides them.
func hashToken(secret []byte) [meta.HashLen]byte { return sha256.Sum256(secret) }

// certIdentity is who a verified certificate is of; empty if it does not say.
func certIdentity(c *x509.Certificate) string {
	if c == nil || c.Subject.CommonName == "" || len(c.Subject.CommonName) > maxIdentity-len(meta.CertIdentity) {
		return ""
	}
	return meta.CertIdentity + c.Subject.CommonName
}

var (
	errNoCredentials = errors.New("none were shown")
	errUnknownToken  = errors.New("the token is not known")
)

// authenticate says who a client is. A token that is known counts whether or not auth is on, so that clients can be given theirs before it is turned on.
func (v *authView) authenticate(k Credentials) (identity string, shown *[meta.HashLen]byte, err error) {
	if len(k.Token) > 0 {
		h := hashToken(k.Token)
		if t := v.tokens[h]; t != nil {
			return t.Identity, &h, nil
		}
		if v.enabled {
			return "", nil, errUnknownToken
		}
	}
	if id := certIdentity(k.Certificate); id != "" {
		return id, nil, nil
	}
	if v.enabled && !v.anonymousHasRights() {
		return "", nil, errNoCredentials
	}
	return meta.AnonymousIdentity, nil, nil
}

// anonymousHasRights says that somebody has thought of clients that show nothing.
func (v *authView) anonymousHasRights() bool {
	list, _ := v.state.RightsList()
	for i := range list {
		if list[i].Identity == "" && list[i].Rights != 0 {
			return true
		}
	}
	return false
}

// plainIdentity is an identity as entries name it.
func plainIdentity(identity string) string {
	if identity == meta.AnonymousIdentity {
		return ""
	}
	return identity
}

// allowed says whether an identity has a right on a path.
func (v *authView) allowed(identity string, right Right, path string) bool {
	if !v.enabled {
		return true
	}
	return v.state.Rights(plainIdentity(identity), path)&(meta.Read<<(right-1)) != 0
}

// allowedAnywhere says whether an identity has a right on any path.
func (v *authView) allowedAnywhere(identity string, right Right) bool {
	list, _ := v.state.RightsList()
	return !v.enabled || slices.ContainsFunc(list, func(r meta.Right) bool {
		return r.Identity == plainIdentity(identity) && r.Rights&(meta.Read<<(right-1)) != 0
	})
}

// authenticate authenticates a connection.
func (c *conn) authenticate(view *authView, token []byte) (identity string, err error) {
	k := Credentials{Token: token, Certificate: c.certificate, Remote: c.remote}
	if a := c.server.cfg.Authenticator; a != nil {
		return a.Authenticate(k)
	}
	identity, shown, err := view.authenticate(k)
	c.tokenHash.Store(shown)
	return identity, err
}

// rejectCredentials answers a hello whose credentials are not good, after a pause that grows with the failures of its host. Nothing more is read from it. The pause
// takes the place of a connection, and nothing else.
func (c *conn) rejectCredentials(h protocol.Header, why error) {
	s := c.server
	s.metrics.authFailures.Inc()
	host := c.remote
	if at, _, err := net.SplitHostPort(host); err == nil {
		host = at
	}
	pause, count := s.authFailures.pause(host, time.Now())
	if s.authFailures.allowLog(time.Now()) {
		s.log.Warn("credentials refused", "conn", c.id, "remote", c.remote, "error", why, "failures", count, "answered_after", pause)
	}
	c.endedAt.Store(int64(s.clock.Now() + pause))
	c.ending.Store(true)
	kind, id := h.Kind, h.ID
	time.AfterFunc(pause, func() {
		const text = "the credentials are missing, wrong or out of date; get new ones"
		o := s.borrowOutbox()
		defer s.returnOutbox(o)
		o.fail(c, kind, id, protocol.StatusUnauthenticated, text)
		c.close(closeGraceful, protocol.StatusUnauthenticated, text)
	})
}

// authFailures are the hosts whose credentials were refused lately.
type authFailures struct {
	mu    sync.Mutex
	hosts map[string]*hostFailures

	logged  int
	logFrom time.Time
}

type hostFailures struct {
	count int
	last  time.Time
}

const (
	authFailureDelay     = 10 * time.Millisecond // after the first failure of a host; each further one doubles it
	maxAuthFailureDelay  = 2 * time.Second
	authFailureTTL       = time.Minute // without a failure, then a host's are forgotten
	maxAuthFailureHosts  = 4096        // that failures are kept of; beyond, all are forgotten
	authFailureLogLines  = 10          // of the log in a period
	authFailureLogPeriod = 10 * time.Second
)

// pause counts a failure, and says how late it is to be answered.
func (s *authFailures) pause(host string, now time.Time) (d time.Duration, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.hosts[host]
	if f == nil {
		if s.hosts == nil || len(s.hosts) >= maxAuthFailureHosts {
			s.hosts = make(map[string]*hostFailures)
		}
		f = new(hostFailures)
		s.hosts[host] = f
	}
	if now.Sub(f.last) > authFailureTTL {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(authFailureDelay<<min(f.count-1, 10), maxAuthFailureDelay), f.count
}

// allowLog bounds the lines that strangers can cause.
func (s *authFailures) allowLog(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.logFrom) > authFailureLogPeriod {
		s.logged, s.logFrom = 0, now
	}
	s.logged++
	return s.logged <= authFailureLogLines
}

// bindKeyToIdentity has a session's protection key count for the identity that started the session alone: the shard is given a hash of both in its place. What is anonymous stays
// as it is.
func (c *conn) bindKeyToIdentity(key []byte) {
	if c.identity == meta.AnonymousIdentity {
		return
	}
	h := sha256.New()
	h.Write([]byte("signalbox session key 1\x00"))
	h.Write(key)
	h.Write([]byte(c.identity))
	copy(key, h.Sum(nil))
}

// newSecret makes a token's secret.
func newSecret() (string, error) {
	var b [24]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return "sbx_" + hex.EncodeToString(b[:]), nil
}

// adminTokenFile keeps the first administrator's token, which the instance that makes the cluster made up.
const adminTokenFile = "admin-token"

// The first administrator.
const (
	adminIdentity = "admin"
	adminTokenID  = "admin"
)

// openAuth turns auth on in a cluster that this instance makes, before clients are let in. It may have died in the middle before: the secret is on disk first.
func (s *Server) openAuth(ctx context.Context) error {
	if !s.cfg.Auth || !s.entry.Identity().Founder {
		return nil
	}
	state := s.meta.State()
	if list, _ := state.Tokens(); state.AuthOn() || len(list) != 0 {
		return nil // turning it off later is an administrator's word, which a restart does not undo
	}
	secret, where := s.cfg.AdminToken, "the one given"
	if secret == "" {
		if s.inMemory() {
			return errors.New("auth is wanted in memory, where no file can keep the administrator's token; give one")
		}
		path := filepath.Join(s.cfg.DataDir, adminTokenFile)
		where = path
		b, err := file.Read(path, maxTokenFile)
		switch {
		case err == nil && len(strings.TrimSpace(string(b))) >= minSecretLen:
			secret = strings.TrimSpace(string(b))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read the administrator's token: %w", err)
		default:
			if secret, err = newSecret(); err != nil {
				return err
			}
			if err := cluster.FileStore(path).Save([]byte(secret + "\n")); err != nil {
				return fmt.Errorf("keep the administrator's token: %w", err)
			}
		}
	}
	t := meta.Token{ID: adminTokenID, Identity: adminIdentity, Hash: hashToken([]byte(secret))}
	if err := s.governor.TurnAuth(ctx, true, t); err != nil && !errors.Is(err, protocol.StatusAlreadyExists) {
		return fmt.Errorf("turn auth on: %w", err)
	}
	s.setAuth(s.meta.State())
	s.log.Info("auth is on; the administrator's token is kept", "identity", adminIdentity, "file", where)
	return nil
}

// minSecretLen is the least length of a secret that people bring, in bytes.
const minSecretLen = 16

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
	on       bool
	revision uint64
	tokens   map[[meta.HashLen]byte]*meta.Token
}

// setAuth follows the meta shard. Who came in by what does not count any more is sent away, and may come again with what does.
func (s *Server) setAuth(state *meta.State) {
	s.authGate.Lock()
	defer s.authGate.Unlock()
	list, revision := state.Tokens()
	old := s.auth.Load()
	if old != nil && old.revision >= revision {
		return
	}
	v := &authView{state: state, on: state.AuthOn(), revision: revision, tokens: make(map[[meta.HashLen]byte]*meta.Token, len(list))}
	for i := range list {
		v.tokens[list[i].Hash] = &list[i]
	}
	s.auth.Store(v)
	if old == nil {
		return // nobody is connected yet
	}
	o := s.borrowOutbox()
	defer s.returnOutbox(o)
	poorer := v.poorer(old)
	s.conns.each(func(c *conn) {
		if c.said.Load() {
			c.stillWelcome(old, v, poorer)
		}
	})
}

// poorer finds the identities from which a right was taken away since an older view. What was opened with it (streams, watches, memberships) would go on, since rights are looked at when
// something is asked for.
func (v *authView) poorer(old *authView) map[string]bool {
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

// stillWelcome sends a connection away that came in by what does not count any more, or whose identity may do less than before.
func (c *conn) stillWelcome(old, v *authView, poorer map[string]bool) {
	if c.srv.cfg.Authenticator != nil {
		return
	}
	if c.srv.cfg.Authorizer == nil && old.on && v.on && poorer[plainIdentity(c.identity)] {
		c.end(endSoft, protocol.StatusUnavailable, "a right of this connection's identity was taken away; connect again with those that are left")
		return
	}
	if by := c.shown.Load(); by != nil && v.tokens[*by] == nil {
		c.end(endSoft, protocol.StatusUnauthenticated, "the token that this connection came in with was revoked; get a new one")
	} else if by == nil && v.on && !old.on && !c.spared.Load() {
		c.end(endSoft, protocol.StatusUnavailable, "credentials count from now on; connect again, with some")
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
		if v.on {
			return "", nil, errUnknownToken
		}
	}
	if id := certIdentity(k.Certificate); id != "" {
		return id, nil, nil
	}
	if v.on && !v.anonymous() {
		return "", nil, errNoCredentials
	}
	return meta.AnonymousIdentity, nil, nil
}

// anonymous says that somebody has thought of clients that show nothing.
func (v *authView) anonymous() bool {
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
	if !v.on {
		return true
	}
	return v.state.Rights(plainIdentity(identity), path)&(meta.Read<<(right-1)) != 0
}

// allowedSomewhere says whether an identity has a right on any path.
func (v *authView) allowedSomewhere(identity string, right Right) bool {
	list, _ := v.state.RightsList()
	return !v.on || slices.ContainsFunc(list, func(r meta.Right) bool {
		return r.Identity == plainIdentity(identity) && r.Rights&(meta.Read<<(right-1)) != 0
	})
}

// whoIs authenticates a connection.
func (c *conn) whoIs(view *authView, token []byte) (identity string, err error) {
	k := Credentials{Token: token, Certificate: c.certificate, Remote: c.remote}
	if a := c.srv.cfg.Authenticator; a != nil {
		return a.Authenticate(k)
	}
	identity, shown, err := view.authenticate(k)
	c.shown.Store(shown)
	return identity, err
}

// refuseCredentials answers a hello whose credentials are not good, after a pause that grows with the failures of its host. Nothing more is read from it. The pause
// takes the place of a connection, and nothing else.
func (c *conn) refuseCredentials(h protocol.Header, why error) {
	s := c.srv
	s.metrics.authFailures.Inc()
	host := c.remote
	if at, _, err := net.SplitHostPort(host); err == nil {
		host = at
	}
	pause, count := s.strangers.pause(host, time.Now())
	if s.strangers.mayLog(time.Now()) {
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
		c.end(endSoft, protocol.StatusUnauthenticated, text)
	})
}

// strangers are the hosts whose credentials were refused lately.
type strangers struct {
	mu    sync.Mutex
	hosts map[string]*failures

	logged  int
	logFrom time.Time
}

type failures struct {
	count int
	last  time.Time
}

const (
	refusalPause   = 10 * time.Millisecond // after the first failure of a host; each further one doubles it
	refusalLongest = 2 * time.Second
	refusalMemory  = time.Minute // without a failure, then a host's are forgotten
	refusalHosts   = 4096        // that failures are kept of; beyond, all are forgotten
	refusalLines   = 10          // of the log in a period
	refusalPeriod  = 10 * time.Second
)

// pause counts a failure, and says how late it is to be answered.
func (s *strangers) pause(host string, now time.Time) (d time.Duration, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.hosts[host]
	if f == nil {
		if s.hosts == nil || len(s.hosts) >= refusalHosts {
			s.hosts = make(map[string]*failures)
		}
		f = new(failures)
		s.hosts[host] = f
	}
	if now.Sub(f.last) > refusalMemory {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(refusalPause<<min(f.count-1, 10), refusalLongest), f.count
}

// mayLog bounds the lines that strangers can cause.
func (s *strangers) mayLog(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.logFrom) > refusalPeriod {
		s.logged, s.logFrom = 0, now
	}
	s.logged++
	return s.logged <= refusalLines
}

// bindKey has a session's protection key count for the identity that started the session alone: the shard is given a hash of both in its place. What is anonymous stays
// as it is.
func (c *conn) bindKey(key []byte) {
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

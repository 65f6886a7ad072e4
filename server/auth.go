package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// setAuth follows the meta shard. Who came in by what does not count any more is sent away, and may come again with what does.
func (s *Server) setAuth(state *meta.State) {
	s.authMu.Lock()
	defer s.authMu.Unlock()
	old := s.auth.Load()
	if _, revision := state.Tokens(); old != nil && old.Revision() >= revision {
		return
	}
	v := auth.NewView(state)
	s.auth.Store(v)
	if old == nil {
		return // nobody is connected yet
	}
	o := s.borrowOutbox()
	defer s.returnOutbox(o)
	lost := v.LostRights(old)
	s.eachConn(func(c *conn) {
		if c.Established() {
			c.recheckCredentials(old, v, lost)
		}
	})
}

// recheckCredentials sends a connection away that came in by what does not count any more, or whose identity may do less than before.
func (c *conn) recheckCredentials(old, v *auth.View, lost map[string]bool) {
	if c.server.cfg.Authenticator != nil {
		return
	}
	if c.server.cfg.Authorizer == nil && old.On() && v.On() && lost[auth.PlainIdentity(c.identity)] {
		c.Close(transport.Graceful, protocol.StatusUnavailable, "a right of this connection's identity was taken away; connect again with those that are left")
		return
	}
	if by := c.tokenHash.Load(); by != nil && !v.Knows(*by) {
		c.Close(transport.Graceful, protocol.StatusUnauthenticated, "the token that this connection came in with was revoked; get a new one")
	} else if by == nil && v.On() && !old.On() && !c.authExempt.Load() {
		c.Close(transport.Graceful, protocol.StatusUnavailable, "credentials count from now on; connect again, with some")
	}
}

// authenticate authenticates a connection.
func (c *conn) authenticate(view *auth.View, token []byte) (identity string, err error) {
	k := auth.Credentials{Token: token, Certificate: c.Certificate(), Remote: c.Remote()}
	if a := c.server.cfg.Authenticator; a != nil {
		return a.Authenticate(k)
	}
	identity, shown, err := view.Authenticate(k)
	c.tokenHash.Store(shown)
	return identity, err
}

// rejectCredentials answers a hello whose credentials are not good, after a pause that grows with the failures of its host. Nothing more is read from it. The pause
// takes the place of a connection, and nothing else.
func (c *conn) rejectCredentials(h protocol.Header, why error) {
	s := c.server
	s.metrics.AuthFailures.Inc()
	host := c.Remote()
	if at, _, err := net.SplitHostPort(host); err == nil {
		host = at
	}
	pause, count := s.authFailures.Delay(host, time.Now())
	if s.authFailures.AllowLog(time.Now()) {
		s.log.Warn("credentials refused", "conn", c.ID(), "remote", c.Remote(), "error", why, "failures", count, "answered_after", pause)
	}
	c.StopReading(pause)
	kind, id := h.Kind, h.ID
	time.AfterFunc(pause, func() {
		const text = "the credentials are missing, wrong or out of date; get new ones"
		o := s.borrowOutbox()
		defer s.returnOutbox(o)
		o.fail(c, kind, id, protocol.StatusUnauthenticated, text)
		c.Close(transport.Graceful, protocol.StatusUnauthenticated, text)
	})
}

// adminTokenFile keeps the first administrator's token, which the instance that makes the cluster made up.
const adminTokenFile = "admin-token"

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
		if s.cfg.inMemory() {
			return errors.New("auth is wanted in memory, where no file can keep the administrator's token; give one")
		}
		path := filepath.Join(s.cfg.DataDir, adminTokenFile)
		where = path
		b, err := file.Read(path, maxTokenFile)
		switch {
		case err == nil && len(strings.TrimSpace(string(b))) >= auth.MinSecretLen:
			secret = strings.TrimSpace(string(b))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read the administrator's token: %w", err)
		default:
			if secret, err = auth.NewSecret(); err != nil {
				return err
			}
			if err := cluster.FileStore(path).Save([]byte(secret + "\n")); err != nil {
				return fmt.Errorf("keep the administrator's token: %w", err)
			}
		}
	}
	t := meta.Token{ID: auth.AdminTokenID, Identity: auth.AdminIdentity, Hash: auth.HashToken([]byte(secret))}
	if err := s.governor.TurnAuth(ctx, true, t); err != nil && !errors.Is(err, protocol.StatusAlreadyExists) {
		return fmt.Errorf("turn auth on: %w", err)
	}
	s.setAuth(s.meta.State())
	s.log.Info("auth is on; the administrator's token is kept", "identity", auth.AdminIdentity, "file", where)
	return nil
}

// allowed checks a right on a node by its id. While auth is off and there is no Authorizer it costs two comparisons.
func (c *conn) allowed(right auth.Right, node uint64) *protocol.Error {
	if v := c.server.auth.Load(); c.server.cfg.Authorizer == nil && (v == nil || !v.On()) {
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
func (c *conn) allowedAnywhere(right auth.Right) bool {
	if a := c.server.cfg.Authorizer; a != nil {
		return a.Allowed(c.identity, right, "")
	}
	v := c.server.auth.Load()
	return v == nil || v.AllowedAnywhere(c.identity, right)
}

func (c *conn) allowedPath(right auth.Right, path string) *protocol.Error {
	if a := c.server.cfg.Authorizer; a != nil {
		if a.Allowed(c.identity, right, path) {
			return nil
		}
	} else if v := c.server.auth.Load(); v == nil || v.Allowed(c.identity, right, path) {
		return nil
	}
	return protocol.Errorf(protocol.StatusForbidden, "identity %q lacks the right %s here; ask for it", c.identity, right)
}

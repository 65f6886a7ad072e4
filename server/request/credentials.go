package request

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// SetAuth follows the meta shard. It disconnects clients whose credentials are no longer valid;
// they may come again with valid ones.
func (s *Server) SetAuth(state *meta.State) {
	s.authMu.Lock()
	defer s.authMu.Unlock()
	old := s.auth.Load()
	if _, revision := state.Tokens(); old != nil && old.Revision() >= revision {
		return
	}
	v := auth.NewView(state, old)
	s.auth.Store(v)
	s.Tokens.notify()
	if old == nil {
		return // nobody is connected yet
	}
	o := s.BorrowOutbox()
	defer s.ReturnOutbox(o)
	lost := v.LostRights(old)
	s.EachClient(func(c *Client) {
		if c.Established() {
			c.recheckCredentials(old, v, lost)
		}
	})
}

// recheckCredentials disconnects a client whose credentials are no longer valid, or whose identity
// has lost a right.
func (c *Client) recheckCredentials(old, v *auth.View, lost func(identity string) bool) {
	turnsOn := v.On() && !old.On()
	exempt := turnsOn && c.authSwitches.Load() > 0
	if c.server.cfg.Authenticator == nil && c.shown.Load() == nil && turnsOn && !exempt {
		c.Close(transport.Graceful, protocol.StatusUnavailable, "credentials count from now on; connect again, with some")
		return
	}
	if c.server.cfg.Authorizer == nil && lost(c.identity) && !exempt {
		c.Close(transport.Graceful, protocol.StatusUnavailable,
			"a right of this connection's identity was taken away; connect again with those that are left")
		return
	}
	by := c.shown.Load()
	switch {
	case c.server.cfg.Authenticator != nil:
	case by != nil:
		if why := v.TokenError(by, time.Now()); why != nil {
			closeForToken(c, why)
		}
	case c.Certificate() != nil && !v.SameTrusts(old):
		k := auth.Credentials{Certificate: c.Certificate()}
		if identity, _, err := v.Authenticate(k, time.Now(), false); err != nil || identity != c.identity {
			c.Close(transport.Graceful, protocol.StatusUnavailable,
				"this connection's certificate is of another identity since a trust has changed; connect again")
		}
	}
}

// authenticate authenticates a connection. See [auth.View.Authenticate] for check.
func (c *Client) authenticate(view *auth.View, token []byte, check bool) (identity string, err error) {
	k := auth.Credentials{Token: token, Certificate: c.Certificate(), Remote: c.Remote()}
	if a := c.server.cfg.Authenticator; a != nil {
		return a.Authenticate(k)
	}
	identity, shown, err := view.Authenticate(k, time.Now(), check)
	if c.shown.Store(shown); shown != nil && shown.Subject == nil {
		c.server.Tokens.add(shown.Hash)
	}
	return identity, err
}

// errCredentials refuses a hello whose credentials are not good.
func errCredentials() *protocol.Error {
	return protocol.Errorf(protocol.StatusUnauthenticated,
		"the credentials are missing, wrong or out of date; get new ones")
}

// rejectCredentials answers a hello whose credentials are not good, after a pause that grows with
// the failures of its host. Nothing more is read from it. The pause takes the place of a
// connection, and nothing else. A console that asks whether people must log in is not logged or
// counted: nobody failed.
func (c *Client) rejectCredentials(kind protocol.Kind, id uint64, why error, bad *protocol.Error, asks bool) {
	s := c.server
	host := clienthost.Of(c.Remote())
	pause, count := s.AuthFailures.Delay(host, time.Now())
	if !asks {
		s.cfg.Metrics.AuthFailures.Inc()
		if more, ok := s.refusedHellos.Allow(time.Now()); ok {
			s.cfg.Log.Warn("credentials refused", append([]any{"conn", c.ID(), "remote", c.Remote(), "error", why,
				"failures", count, "answered_after", pause}, more...)...)
		}
	}
	c.StopReading(pause)
	time.AfterFunc(pause, func() {
		o := s.BorrowOutbox()
		defer s.ReturnOutbox(o)
		o.FailError(c, kind, id, bad)
		c.Close(transport.Graceful, bad.Status, bad.Message)
	})
}

// allowed checks a right on a node by its id. What it refuses is for reject. While auth is off and
// there is no Authorizer it costs two comparisons.
func (c *Client) allowed(right auth.Right, node uint64) *protocol.Error {
	if v := c.server.auth.Load(); c.server.cfg.Authorizer == nil && (v == nil || !v.On()) {
		return nil
	}
	state := c.server.Routes().State
	n, ok := state.Node(node)
	unknown := !ok && node > state.LastNode() && c.allowedAnywhere(right)
	bad := c.allowedPath(right, n.Path)
	if unknown || bad != nil && c.server.cfg.Authorizer == nil {
		return c.mapBehind(unconfirmed{refused: !unknown, right: right, node: node})
	}
	return bad
}

// allowedAt checks a right on a path for a request. What it refuses is for reject.
func (c *Client) allowedAt(right auth.Right, path string) *protocol.Error {
	bad := c.allowedPath(right, path)
	if bad != nil && c.server.cfg.Authorizer == nil {
		return c.mapBehind(unconfirmed{refused: true, right: right, path: path})
	}
	return bad
}

// mapBehind records a refusal of allowed or allowedAt, for reject.
func (c *Client) mapBehind(u unconfirmed) *protocol.Error {
	u.answer = protocol.Errorf(protocol.StatusUnavailable, "%s", textMapBehind)
	c.unconfirmed = &u
	return u.answer
}

// allowedAnywhere reports whether the identity has the right on any path. Without it, the client
// gets the same answer for a missing node as for one that it may not use.
func (c *Client) allowedAnywhere(right auth.Right) bool {
	if a := c.server.cfg.Authorizer; a != nil {
		return a.Allowed(c.identity, right, "")
	}
	v := c.server.auth.Load()
	return v == nil || v.AllowedAnywhere(c.identity, right)
}

func (c *Client) allowedPath(right auth.Right, path string) *protocol.Error {
	if a := c.server.cfg.Authorizer; a != nil {
		if a.Allowed(c.identity, right, path) {
			return nil
		}
	} else if v := c.server.auth.Load(); v == nil || v.Allowed(c.identity, right, path) {
		return nil
	}
	return protocol.Errorf(protocol.StatusForbidden, "identity %q lacks the right %s here; ask for it", c.identity,
		right)
}

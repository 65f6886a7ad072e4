package request

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// hello answers the first frame.
func hello(c *Client, p *cycle, h protocol.Header) {
	var m protocol.Hello
	err := protocol.DecodeBody(&m, h.Body)
	if err == nil {
		err = protocol.Validate(&m)
	}
	if err != nil {
		p.out.FailError(c, h.Kind, h.ID, err)
		c.BadFrame(err)
		return
	}
	if c.server.draining.Load() {
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable, "server is stopping; connect to another instance")
		c.Close(transport.Graceful, protocol.StatusUnavailable, "server is stopping")
		return
	}
	if state := c.server.Routes().State; m.Cluster != "" && !means(m.Cluster, state) {
		rejectCluster(c, p, h, &m, state)
		return
	}
	c.via = faces[m.Client]
	// whether people must log in
	asks := m.Client == protocol.ConsoleClient && len(m.Token) == 0 && c.Certificate() == nil
	view := c.server.auth.Load()
	identity, err := c.authenticate(view, m.Token, false)
	a := helloAnswer{h.Kind, h.ID, m.Token, asks, view, identity, err}
	if !errors.Is(err, auth.ErrUnchecked) {
		answerHello(c, p.out, a)
		return
	}
	c.Hold()
	a.token = bytes.Clone(m.Token)
	checkToken(c, a, true)
}

// checkToken checks the token of a hello, and answers it. Keys that it lacks are fetched first:
// others of its host do not wait for them.
func checkToken(c *Client, a helloAnswer, fetch bool) {
	s := c.server
	defect := func() {
		c.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect; reconnect")
	}
	s.tokenChecks.run(s.cfg.Go, clienthost.Of(c.Remote()), func() {
		defer s.Guard("token", defect)
		if c.Ending() {
			return
		}
		a.view = s.auth.Load()
		a.identity, a.err = c.authenticate(a.view, a.token, true)
		if why, ok := errors.AsType[*trust.Error](a.err); ok && fetch && why.UnknownKey != nil {
			s.cfg.Go(func() {
				defer s.Guard("token", defect)
				fetchKeys(s, why.UnknownKey)
				checkToken(c, a, false)
			})
			return
		}
		o := s.BorrowOutbox()
		answerHello(c, o, a)
		s.ReturnOutbox(o)
		c.Release()
	})
}

// helloAnswer is a hello, and the client's identity, or an error, by a view.
type helloAnswer struct {
	kind     protocol.Kind
	id       uint64
	token    []byte
	asks     bool
	view     *auth.View
	identity string
	err      error
}

// answerHello lets a client in, or has the map be confirmed before it is refused.
func answerHello(c *Client, o *Outbox, a helloAnswer) {
	if a.err == nil && len(a.identity) > auth.MaxIdentity {
		a.err = fmt.Errorf("identity has %d bytes, at most %d are allowed", len(a.identity), auth.MaxIdentity)
	}
	switch {
	case a.err == nil:
	case c.server.cfg.Authenticator != nil:
		c.rejectCredentials(a.kind, a.id, a.err, errCredentials(), a.asks)
		return
	default: // the token may have been made a moment ago
		c.StopReading(2 * unconfirmedTimeout) // behind a confirmation that is under way
		late := protocol.Errorf(protocol.StatusUnavailable,
			"the map of this instance may be behind, and does not have these credentials yet; connect again")
		o.awaitMap(unconfirmedRequest{unconfirmed: unconfirmed{answer: late, refused: true},
			token: bytes.Clone(a.token), why: a.err, view: a.view, asks: a.asks, conn: c, kind: a.kind, id: a.id})
		return
	}
	c.identity = a.identity
	c.Establish()
	if now := c.server.auth.Load(); now != a.view {
		c.recheckCredentials(a.view, now, now.LostRights(a.view)) // it changed meanwhile, and did not find this connection yet
	}
	if by := c.shown.Load(); by != nil && by.Subject != nil {
		c.server.Tokens.expiring(by.Subject.Expires)
	}
	r := c.server.Routes()
	o.Reply(c, a.kind, a.id, &protocol.HelloReply{
		Version:    protocol.Version,
		Server:     serverName(),
		Cluster:    r.State.ClientCluster(),
		Instance:   c.server.cfg.Cluster.Instance(),
		MaxFrame:   c.server.cfg.Limits.MaxFrame,
		MaxData:    uint32(c.server.cfg.Limits.MaxData),
		Window:     uint32(c.server.cfg.Limits.Window),
		MapVersion: r.State.MapVersion(),
		Identity:   a.identity,
	})
}

// means reports whether a name or id that a client gives is this cluster's.
func means(cluster string, s *meta.State) bool {
	return cluster == s.ClientCluster() || cluster == s.Cluster() || cluster == s.ClusterName()
}

// rejectCluster refuses a client that means another cluster: this instance may have the address of
// one that is gone. The name of this cluster is not sent to a client that would have to
// authenticate. The lines in the log are bounded with those of refused credentials.
func rejectCluster(c *Client, p *cycle, h protocol.Header, m *protocol.Hello, state *meta.State) {
	text := fmt.Sprintf("it is not cluster %q, which the client means", m.Cluster)
	if view := c.server.auth.Load(); c.server.cfg.Authenticator == nil && (view == nil || !view.On()) {
		name := state.ClientCluster()
		if n := state.ClusterName(); n != "" {
			name = fmt.Sprintf("%q (%s)", n, name)
		}
		text = fmt.Sprintf("it is cluster %s, and the client means %q", name, m.Cluster)
	}
	if more, ok := c.server.refusedHellos.Allow(time.Now()); ok {
		c.server.cfg.Log.Warn("client means another cluster", append([]any{"conn", c.ID(), "remote", c.Remote(),
			"client", m.Client, "cluster", m.Cluster}, more...)...)
	}
	p.out.Fail(c, h.Kind, h.ID, protocol.StatusPreconditionFailed, text)
	c.Close(transport.Graceful, protocol.StatusPreconditionFailed, text)
}

// serverName has the module's version, as the build recorded it.
var serverName = sync.OnceValue(func() string {
	version := "devel"
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		version = b.Main.Version
	}
	return "signalbox/" + version
})

// ping answers for the connection, and has each home shard of its sessions renew their leases.
// Pings take no part in the window and wait for no request.
func ping(c *Client, p *cycle, h protocol.Header) {
	p.out.written += c.Append(protocol.KindPong, h.ID, 0, nil)
	c.CountPing()
	p.pings++
	p.lastPing = h.ID
}

// connRequests are the requests about the connection and the cluster.
func connRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindPresentTicket: {handle: presentTicket},
		protocol.KindMap:           {handle: clusterMap},
		protocol.KindCluster:       {handle: clusterRequest},
	}
}

// clusterMap answers with the routing table, or with its version alone when the client has it.
func clusterMap(c *Client, p *cycle, h protocol.Header, _ target) {
	var m protocol.MapRequest
	if !p.decode(c, h, &m) {
		return
	}
	reply := mapReply(c.server.Routes().State, c.server.cfg.Shards, m.Known)
	for i := range reply.Instances {
		reply.Instances[i].Address = transport.AddressFor(reply.Instances[i].Address, c.Secure())
	}
	p.out.Reply(c, h.Kind, h.ID, &reply)
}

// mapReply is the map for clients, with the masters as they are now.
func mapReply(state *meta.State, shards Shards, known uint64) protocol.MapReply {
	return governor.MapReply(state, known, func(shard uint64) (instance, term uint64) {
		if d := shards.Shard(shard); d != nil {
			return d.LeaderInstance(state)
		}
		return 0, 0
	})
}

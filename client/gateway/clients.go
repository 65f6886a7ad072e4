package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxClients bounds the connections to the cluster, and those in the making beside them. Each
	// token that the cluster knows has one, with a socket to each instance.
	maxClients = 1000
	// connectTimeout bounds the first connection of a token.
	connectTimeout = 10 * time.Second
	// endLead is how long before its token's end a connection's users are told, and closeLead how
	// long before it the connection is closed: to show the token again would be a failed attempt
	// to come in, and these delay all callers of the gateway.
	endLead, closeLead = time.Second, 250 * time.Millisecond
)

// Connection is a connection to the cluster with one token, for all callers that show it; that
// without one also for those whose token the cluster does not know.
type Connection[S any] struct {
	Client   *client.Client
	Identity string // as the cluster says
	Limiters *Limiters
	State    S // the gateway's own

	token string
	ready chan struct{} // closed when Client or err is set
	gone  chan struct{} // closed when it is not in the table any more
	err   error

	// Guarded by the table's lock.
	users    int    // calls and streams in progress
	lastUsed uint64 // rises with each use
}

// ClientsConfig says how Clients connect. Client is required, and its Token is not used.
type ClientsConfig[S any] struct {
	Client client.Config
	// Purpose describes the sessions of limiters.
	Purpose string
	// State makes the gateway's own part of a connection, before it is open; nil: the zero value.
	State func(c *Connection[S]) S
	// Busy reports whether a connection that no call uses is needed still; nil: it is not.
	Busy func(c *Connection[S]) bool
	// Ends is called shortly before a connection is closed because its platform's token expires.
	// What uses it has to end; sessions go on with the next token. May be nil.
	Ends func(c *Connection[S])
	// Changed is called with 1 and -1 for connections that were opened and closed, and Refused for
	// each token that the cluster refused when it was asked; nil: nobody counts.
	Changed func(by int64)
	Refused func()
	Logger  *slog.Logger
}

// Clients are a gateway's connections to the cluster, by token.
//
// Invariant: one that is in the making closes no other. It does when the cluster has taken its
// token.
type Clients[S any] struct {
	cfg    ClientsConfig[S]
	ctx    context.Context // of the gateway
	trials *trials

	mu      sync.Mutex
	closed  bool
	away    bool // the last new connection found no cluster
	uses    uint64
	byToken map[string]*Connection[S] // with those in the making
	making  int                       // of byToken
}

// NewClients makes a table without connections. What is in the making ends with ctx; the caller
// closes the table then.
func NewClients[S any](ctx context.Context, cfg ClientsConfig[S]) *Clients[S] {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Clients[S]{cfg: cfg, ctx: ctx, trials: newTrials(), byToken: make(map[string]*Connection[S])}
}

// Use gives the connection for a token, which is made if there is none, for a caller at a host. The
// caller calls release when it does not use it any more. Errors: ErrUnauthenticated for a wrong
// token; ErrOverloaded.
func (t *Clients[S]) Use(ctx context.Context, token, host string) (c *Connection[S], release func(), err error) {
	c, release, err = t.useOwn(ctx, token, host)
	if !errors.Is(err, errAnonymous) {
		return c, release, err
	}
	if c, release, err = t.useOwn(ctx, "", host); IsUnauthenticated(err) && t.trials.forgetAnonymous(token) {
		return t.useOwn(ctx, token, host) // authentication was enabled since
	}
	return c, release, err
}

// useOwn is Use of the connection with this very token. The error may be errAnonymous.
func (t *Clients[S]) useOwn(ctx context.Context, token, host string) (c *Connection[S], release func(), err error) {
	if c, err = t.take(token); err == nil && c == nil {
		var end func()
		if end, err = t.trials.begin(ctx, host); err == nil {
			c, err = t.try(token, end)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { t.giveBack(c) })
	select {
	case <-c.ready:
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
	if c.err != nil {
		release()
		return nil, nil, c.err
	}
	return c, release, nil
}

// take gives the connection for a token if there is one, or one is in the making.
func (t *Clients[S]) take(token string) (*Connection[S], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, client.ErrClientClosed
	}
	c := t.byToken[token]
	if c == nil {
		return nil, t.trials.refused(token, time.Now())
	}
	t.count(c)
	return c, nil
}

// count counts a use. The lock is held.
func (t *Clients[S]) count(c *Connection[S]) {
	t.uses++
	c.users, c.lastUsed = c.users+1, t.uses
}

// try begins to make a connection for a token. What has happened since take counts: a host's calls
// with one token wait for one trial. end is called when the trial is over.
func (t *Clients[S]) try(token string, end func()) (*Connection[S], error) {
	if c, err := t.take(token); c != nil || err != nil {
		end()
		return c, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byToken[token]
	switch {
	case c != nil: // of another host, in the same moment
		end()
	case t.making >= maxClients:
		end()
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d tokens are being checked, the most that may be; try again later", maxClients)
	default:
		c = &Connection[S]{token: token, ready: make(chan struct{}), gone: make(chan struct{})}
		c.Limiters = newLimiters(t.ctx, t.cfg.Purpose, &c.Client)
		if t.cfg.State != nil {
			c.State = t.cfg.State(c)
		}
		t.byToken[token] = c
		t.making++
		go t.connect(c, end)
	}
	t.count(c)
	return c, nil
}

// connect opens a connection, for all that wait for it.
func (t *Clients[S]) connect(c *Connection[S], end func()) {
	defer end()
	ctx, cancel := context.WithTimeout(t.ctx, connectTimeout)
	defer cancel()
	cfg := t.cfg.Client
	cfg.Token, cfg.Logger = []byte(c.token), t.cfg.Logger
	opened, err := client.Open(ctx, cfg)
	t.logReach(err)
	if err == nil {
		var info client.ServerInfo
		if info, err = opened.ServerInfo(ctx); err == nil {
			c.Identity = info.Identity
		} else {
			opened.CloseWithoutRelease()
			opened = nil
		}
	}
	if err == nil && c.token != "" && c.Identity == anonymous {
		opened.CloseWithoutRelease()
		opened, err = nil, errAnonymous
		t.trials.refuse(c.token, err, time.Now())
	} else if err != nil {
		if err = fmt.Errorf("connect to the cluster: %w", err); IsUnauthenticated(err) {
			if t.cfg.Refused != nil {
				t.cfg.Refused()
			}
			t.trials.refuse(c.token, err, time.Now())
		}
	}
	if err = t.made(c, err); err == nil {
		c.Client = opened
		if strings.Count(c.token, ".") == 2 { // it may be a platform's
			go t.follow(c)
		}
	} else if opened != nil {
		opened.CloseWithoutRelease()
	}
	c.err = err
	close(c.ready)
}

// follow closes a connection before its platform's token expires.
func (t *Clients[S]) follow(c *Connection[S]) {
	ctx, cancel := context.WithTimeout(t.ctx, connectTimeout)
	defer cancel()
	who, err := admin.New(c.Client).WhoAmI(ctx)
	if err != nil || who.ExpiresInMS == 0 {
		return
	}
	end := time.Now().Add(time.Duration(who.ExpiresInMS) * time.Millisecond)
	if !t.wait(c, end.Add(-endLead)) {
		return
	}
	if t.cfg.Ends != nil {
		t.cfg.Ends(c)
	}
	if !t.wait(c, end.Add(-closeLead)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byToken[c.token] == c && !t.closed {
		t.remove(c)
	}
}

// wait waits for a time. It is false if the connection is closed before.
func (t *Clients[S]) wait(c *Connection[S], until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
	case <-t.ctx.Done():
	}
	return false
}

// logReach says in the log when new connections begin to find no cluster, and when they find it
// again. A refused token is an answer.
func (t *Clients[S]) logReach(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil || IsUnauthenticated(err):
		if t.away {
			t.away = false
			t.cfg.Logger.Info("the cluster answers again")
		}
	case t.ctx.Err() == nil && !t.away:
		t.away = true
		t.cfg.Logger.Warn("the cluster does not answer, so clients wait", "error", err)
	}
}

// changed reports that connections were opened or closed.
func (t *Clients[S]) changed(by int64) {
	if t.cfg.Changed != nil {
		t.cfg.Changed(by)
	}
}

// made notes the outcome of making a connection, and returns the error for those that wait for it.
func (t *Clients[S]) made(c *Connection[S], err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making--
	switch {
	case err != nil:
	case t.closed:
		err = client.ErrClientClosed
	case len(t.byToken)-t.making > maxClients && !t.evict():
		err = protocol.Errorf(protocol.StatusOverloaded,
			"clients with %d different tokens use this gateway, the most it serves; use another gateway", maxClients)
	}
	if err != nil {
		delete(t.byToken, c.token)
		return err
	}
	t.changed(1)
	return nil
}

func (t *Clients[S]) giveBack(c *Connection[S]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.users--
}

// evict closes the connection that was not used for longest, of those that no call uses and that
// are not busy. It is false if there is none. The lock is held.
func (t *Clients[S]) evict() bool {
	var oldest *Connection[S]
	for _, c := range t.byToken {
		if c.users == 0 && (oldest == nil || c.lastUsed < oldest.lastUsed) && c.isReady() && !t.busy(c) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	t.remove(oldest)
	return true
}

// remove closes a connection, and leaves its sessions to the cluster. The lock is held.
func (t *Clients[S]) remove(c *Connection[S]) {
	delete(t.byToken, c.token)
	close(c.gone)
	t.changed(-1)
	go c.Client.CloseWithoutRelease()
}

// Close closes all connections, and leaves their sessions to the cluster.
func (t *Clients[S]) Close() {
	t.mu.Lock()
	t.closed = true
	open := slices.Collect(maps.Values(t.byToken))
	t.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range open {
		all.Go(func() {
			<-c.ready
			if c.Client != nil {
				c.Client.CloseWithoutRelease()
			}
		})
	}
	all.Wait()
}

// isReady reports whether client or err is set.
func (c *Connection[S]) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// busy reports whether a connection is needed though no call uses it.
func (t *Clients[S]) busy(c *Connection[S]) bool { return t.cfg.Busy != nil && t.cfg.Busy(c) }

// CallEnded has the cluster be asked again about a token that it did not know, if err says that a
// call with it was refused.
func (t *Clients[S]) CallEnded(token string, err error) { t.trials.callEnded(token, err) }

// errAnonymous: a token makes no difference: the cluster does not know it, and takes it
// because authentication is off. Its callers share the connection of those without a token.
var errAnonymous = errors.New("the token stands for no identity")

// anonymous is the identity of a client without credentials.
const anonymous = "anonymous"

// IsUnauthenticated reports whether the cluster does not take a caller's token.
func IsUnauthenticated(err error) bool { return errors.Is(err, protocol.StatusUnauthenticated) }

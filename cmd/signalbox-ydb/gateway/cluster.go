package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxClusters bounds the connections to the cluster, and those in the making beside them. Each
	// token that the cluster knows has one, with a socket to each instance.
	maxClusters = 1000
	// connectTimeout bounds the first connection of a token.
	connectTimeout = 10 * time.Second
)

// cluster is a connection to the cluster with one token, for all clients that show it; that without
// one also for those whose token the cluster does not know.
type cluster struct {
	g     *Gateway
	token string

	ready  chan struct{}  // closed when client or err is set
	client *client.Client // set before ready is closed, as err
	err    error

	// Guarded by the table's lock.
	users    int    // calls and streams in progress
	lastUsed uint64 // rises with each use

	checking atomic.Bool // checkToken runs
	limiters *limiters

	mu        sync.Mutex
	sessions  map[uint64]*session   // by id: those that are kept attached
	restoring map[uint64]*restoring // by id: the newest restore in progress
}

// clusterTable holds the connections by token.
//
// Invariant: one that is in the making closes no other. It does when the cluster has taken its
// token.
type clusterTable struct {
	g      *Gateway
	trials *trials
	away   atomic.Bool // the last new connection found no cluster

	mu      sync.Mutex
	closed  bool
	uses    uint64
	byToken map[string]*cluster // with those in the making
	making  int                 // of byToken
}

func newClusterTable(g *Gateway) *clusterTable {
	return &clusterTable{g: g, trials: newTrials(), byToken: make(map[string]*cluster)}
}

// use gives the connection for a token, which is made if there is none, for a caller at a host. The
// caller calls release when it does not use it any more. Errors: Unauthenticated for a wrong token;
// Overloaded.
func (t *clusterTable) use(ctx context.Context, token, host string) (c *cluster, release func(), err error) {
	c, release, err = t.useOwn(ctx, token, host)
	if !errors.Is(err, errAnonymous) {
		return c, release, err
	}
	if c, release, err = t.useOwn(ctx, "", host); isUnauthenticated(err) && t.trials.forgetAnonymous(token) {
		return t.useOwn(ctx, token, host) // authentication was enabled since
	}
	return c, release, err
}

// useOwn is use of the connection with this very token. The error may be errAnonymous.
func (t *clusterTable) useOwn(ctx context.Context, token, host string) (c *cluster, release func(), err error) {
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
func (t *clusterTable) take(token string) (*cluster, error) {
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
func (t *clusterTable) count(c *cluster) {
	t.uses++
	c.users, c.lastUsed = c.users+1, t.uses
}

// try begins to make a connection for a token. What has happened since take counts: a host's calls
// with one token wait for one trial. end is called when the trial is over.
func (t *clusterTable) try(token string, end func()) (*cluster, error) {
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
	case t.making >= maxClusters:
		end()
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d tokens are being checked, the most that may be; try again later", maxClusters)
	default:
		c = &cluster{g: t.g, token: token, ready: make(chan struct{}), sessions: make(map[uint64]*session),
			restoring: make(map[uint64]*restoring)}
		c.limiters = c.newLimiters()
		t.byToken[token] = c
		t.making++
		go t.connect(c, end)
	}
	t.count(c)
	return c, nil
}

// connect opens a connection, for all that wait for it.
func (t *clusterTable) connect(c *cluster, end func()) {
	defer end()
	ctx, cancel := context.WithTimeout(t.g.ctx, connectTimeout)
	defer cancel()
	cfg := t.g.cfg.Cluster
	cfg.Token, cfg.Logger = []byte(c.token), t.g.cfg.Logger
	opened, err := client.Open(ctx, cfg)
	t.logReach(err)
	if err == nil && c.token != "" && isAnonymous(ctx, opened) {
		opened.CloseWithoutRelease()
		opened, err = nil, errAnonymous
		t.trials.refuse(c.token, err, time.Now())
	} else if err != nil {
		if err = fmt.Errorf("connect to the cluster: %w", err); isUnauthenticated(err) {
			t.g.metrics.tokensRefused.Add(1)
			t.trials.refuse(c.token, err, time.Now())
		}
	}
	if err = t.made(c, err); err == nil {
		c.client = opened
	} else if opened != nil {
		opened.CloseWithoutRelease()
	}
	c.err = err
	close(c.ready)
}

// logReach says in the log when new connections begin to find no cluster, and when they find it
// again. A refused token is an answer.
func (t *clusterTable) logReach(err error) {
	switch {
	case err == nil || isUnauthenticated(err):
		if t.away.CompareAndSwap(true, false) {
			t.g.cfg.Logger.Info("the cluster answers again")
		}
	case t.g.ctx.Err() == nil && t.away.CompareAndSwap(false, true):
		t.g.cfg.Logger.Warn("the cluster does not answer, so clients wait", "error", err)
	}
}

// made ends the making of a connection, with its outcome. The result is the error of those that
// wait for it.
func (t *clusterTable) made(c *cluster, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making--
	switch {
	case err != nil:
	case t.closed:
		err = client.ErrClientClosed
	case len(t.byToken)-t.making > maxClusters && !t.evict():
		err = protocol.Errorf(protocol.StatusOverloaded,
			"clients with %d different tokens use this gateway, the most it serves; use another gateway", maxClusters)
	}
	if err != nil {
		delete(t.byToken, c.token)
		return err
	}
	t.g.metrics.clusters.Add(1)
	return nil
}

func (t *clusterTable) giveBack(c *cluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.users--
}

// evict closes the connection that was not used for longest, of those without calls and sessions.
// It is false if there is none. The lock is held.
func (t *clusterTable) evict() bool {
	var oldest *cluster
	for _, c := range t.byToken {
		if c.users == 0 && (oldest == nil || c.lastUsed < oldest.lastUsed) && c.isReady() && !c.hasSessions() {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	delete(t.byToken, oldest.token)
	t.g.metrics.clusters.Add(-1)
	go oldest.client.CloseWithoutRelease()
	return true
}

// close leaves all sessions to the cluster.
func (t *clusterTable) close() {
	t.mu.Lock()
	t.closed = true
	open := slices.Collect(maps.Values(t.byToken))
	t.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range open {
		all.Go(func() {
			<-c.ready
			if c.client != nil {
				c.client.CloseWithoutRelease()
			}
		})
	}
	all.Wait()
}

// isReady reports whether client or err is set.
func (c *cluster) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

func (c *cluster) hasSessions() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)+len(c.restoring) > 0
}

// errAnonymous: a token makes no difference: the cluster does not know it, and takes it
// because authentication is off. Its callers share the connection of those without a token.
var errAnonymous = errors.New("the token stands for no identity")

// isAnonymous reports whether a connection has the identity of a client without credentials.
func isAnonymous(ctx context.Context, c *client.Client) bool {
	info, err := c.ServerInfo(ctx)
	return err == nil && info.Identity == "anonymous"
}

// isUnauthenticated reports whether the cluster does not take a caller's token.
func isUnauthenticated(err error) bool { return errors.Is(err, protocol.StatusUnauthenticated) }

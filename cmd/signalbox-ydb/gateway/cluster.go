package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxClusters bounds the connections to the cluster. Each token has one, with a socket to each
	// instance.
	maxClusters = 1000
	// connectTimeout bounds the first connection of a token.
	connectTimeout = 10 * time.Second
)

// cluster is a connection to the cluster with one token, for all clients that show it.
type cluster struct {
	g     *Gateway
	token string

	ready  chan struct{}  // closed when client or err is set
	client *client.Client // set before ready is closed, as err
	err    error

	// Guarded by the table's lock.
	users    int    // calls and streams in progress
	lastUsed uint64 // rises with each use

	mu        sync.Mutex
	sessions  map[uint64]*session   // by id: those that are kept attached
	restoring map[uint64]*restoring // by id: the newest restore in progress
}

// clusterTable holds the connections by token.
type clusterTable struct {
	g *Gateway

	mu      sync.Mutex
	closed  bool
	uses    uint64
	byToken map[string]*cluster
}

func newClusterTable(g *Gateway) *clusterTable {
	return &clusterTable{g: g, byToken: make(map[string]*cluster)}
}

// use gives the connection for a token, which is made if there is none. The caller calls release
// when it does not use it any more. Errors: Unauthenticated for a wrong token; Overloaded.
func (t *clusterTable) use(ctx context.Context, token string) (c *cluster, release func(), err error) {
	c, err = t.take(token)
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

func (t *clusterTable) take(token string) (*cluster, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, client.ErrClientClosed
	}
	c := t.byToken[token]
	if c == nil {
		if len(t.byToken) >= maxClusters && !t.evict() {
			return nil, protocol.Errorf(protocol.StatusOverloaded, "clients with %d different tokens use this gateway, the most it serves; use another gateway", maxClusters)
		}
		c = &cluster{g: t.g, token: token, ready: make(chan struct{}), sessions: make(map[uint64]*session), restoring: make(map[uint64]*restoring)}
		t.byToken[token] = c
		t.g.metrics.clusters.Add(1)
		go t.connect(c)
	}
	t.uses++
	c.users, c.lastUsed = c.users+1, t.uses
	return c, nil
}

// connect opens a connection, for all that wait for it.
func (t *clusterTable) connect(c *cluster) {
	ctx, cancel := context.WithTimeout(t.g.ctx, connectTimeout)
	defer cancel()
	cfg := t.g.cfg.Cluster
	cfg.Token, cfg.Logger = []byte(c.token), t.g.cfg.Logger
	c.client, c.err = client.Open(ctx, cfg)
	if c.err != nil {
		c.err = fmt.Errorf("connect to the cluster: %w", c.err)
		t.remove(c)
	}
	close(c.ready)
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed && c.client != nil {
		c.client.CloseWithoutRelease()
	}
}

func (t *clusterTable) giveBack(c *cluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.users--
}

func (t *clusterTable) remove(c *cluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byToken[c.token] == c {
		delete(t.byToken, c.token)
		t.g.metrics.clusters.Add(-1)
	}
}

// evict closes the connection that was not used for longest, of those without calls and sessions.
// One that is still being made stays, so that the tries in progress are bounded too. It is false if
// there is none. The table's lock is held.
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
	var open []*cluster
	for _, c := range t.byToken {
		open = append(open, c)
	}
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

// isReady says whether client or err is set.
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

// isUnauthenticated says whether the cluster does not take a caller's token.
func isUnauthenticated(err error) bool { return errors.Is(err, protocol.StatusUnauthenticated) }

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// sessionStopTimeout bounds how long Client.Close waits for its sessions' stops.
const sessionStopTimeout = 2 * time.Second

// Client is a connection to a cluster, for any number of goroutines. It keeps one connection to
// each instance that it talks to, and replaces a connection that is lost. Make one with Dial or
// Open; one per process is enough.
type Client struct {
	*cluster
	*sessionTable
	readIndexes
	watches     watchTable
	lastWatchID atomic.Uint64 // id of the last one-shot watch
	dispatcher  *dispatcher
	values      sync.Map // of the packages below this one, by internal/rpc
}

func newClient(cfg Config) *Client {
	c := &Client{dispatcher: newDispatcher()}
	c.cluster = newCluster(newLifetime(), &dialer{cfg: cfg, clock: cfg.clock, handler: c})
	c.sessionTable = &sessionTable{cluster: c.cluster, sessions: make(map[uint64]*Session)}
	c.cluster.shortestTimeout, c.mapFetched, c.watching = c.sessionTable.shortestTimeout, c.handleMap, c.watches.any
	return c
}

// errClosedWithClient is what sessions end with when their client is closed. It is both, because
// such a session has given back everything, as any that was closed.
var errClosedWithClient = fmt.Errorf("%w: %w", ErrClientClosed, ErrSessionClosed)

// Close ends all sessions of the client, so that what they hold is free at once. It waits up to 2 s
// for that, and closes the connections. Calls in progress return ErrClientClosed. Close may be
// called again. An error means that a stop was not answered in time: that session ends with its
// timeout.
func (c *Client) Close() error {
	if c.isClosed() {
		return nil
	}
	open := c.allSessions()
	ctx, cancel := context.WithTimeoutCause(c.ctx, sessionStopTimeout,
		errors.New("a session's stop was not answered in time"))
	defer cancel()
	failed := make(chan error, len(open))
	for _, s := range open {
		go func() { failed <- s.closeAs(ctx, errClosedWithClient) }()
	}
	var err error
	for range open {
		err = errors.Join(err, <-failed)
	}
	c.CloseWithoutRelease()
	return err
}

// CloseWithoutRelease closes the connections and leaves the sessions to their timeouts, as a crash
// of the process would. It is for tests.
func (c *Client) CloseWithoutRelease() {
	if !c.beginClose() {
		return
	}
	left := c.sessionTable.close()
	c.stop(ErrClientClosed)
	c.watches.notify()
	// After the stop: a goroutine that has just made a connection stores it first and looks for the
	// stop then, so that one of the two ends it.
	conns := c.allConns()
	for _, s := range left {
		s.closeWithoutRelease()
	}
	for _, cn := range conns {
		cn.end(ErrClientClosed)
	}
	c.goroutines.Go(c.dispatcher.end) // not here: the last calls must not run on the closer's stack
	c.goroutines.Wait()
}

// ServerInfo is what an instance said about itself and about the client.
type ServerInfo struct {
	Cluster  string // id
	Instance uint64
	Version  string // name and version, for people
	Identity string // who the credentials say the client is
}

// ServerInfo describes one of the instances that the client is connected to.
func (c *Client) ServerInfo(ctx context.Context) (ServerInfo, error) {
	cn, err := c.anyConn(ctx)
	if err != nil {
		return ServerInfo{}, err
	}
	return ServerInfo{Cluster: cn.hello.Cluster, Instance: cn.instance, Version: cn.hello.Server,
		Identity: cn.hello.Identity}, nil
}

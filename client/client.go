package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
)

// sessionStopTimeout bounds how long Client.Close waits for its sessions' stops.
const sessionStopTimeout = 2 * time.Second

// Client is a connection to a cluster, for any number of goroutines. It keeps one connection to
// each instance that it talks to, and replaces a connection that is lost. Make one with Dial or
// Open, or with New, which does not wait for the cluster; one per process is enough.
type Client struct {
	d      *driver.Driver
	cfg    Config
	values sync.Map // what packages below this one keep
}

func (c *Client) handle() handle.Client {
	return handle.Client{Driver: c.d, Logger: c.cfg.Logger, Values: &c.values}
}

// errClosedWithClient is what sessions end with when their client is closed. It is both, because
// such a session has given back everything, as any that was closed.
var errClosedWithClient = fmt.Errorf("%w: %w", ErrClientClosed, ErrSessionClosed)

// Close ends all sessions of the client, so that what they hold is free at once. It waits up to 2 s
// for that, and closes the connections. Calls in progress return ErrClientClosed, and a release that
// was not answered ErrOutcomeUnknown. Close may be called again. An error means that a stop was not
// answered in time: that session ends with its timeout.
func (c *Client) Close() error {
	if c.d.IsClosed() {
		return nil
	}
	open := c.d.Sessions()
	ctx, cancel := context.WithTimeoutCause(c.d.Context(), sessionStopTimeout,
		errors.New("a session's stop was not answered in time"))
	defer cancel()
	failed := make(chan error, len(open))
	for _, s := range open {
		go func() {
			var err error
			defer func() { failed <- err }() // also if an observer ends the goroutine
			err = closeError(s.Close(ctx, errClosedWithClient))
		}()
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
func (c *Client) CloseWithoutRelease() { c.d.Close() }

// ServerInfo is an instance's description of itself and of the client.
type ServerInfo struct {
	Cluster  string // id
	Instance uint64
	Version  string // name and version, for people
	Identity string // who the credentials say the client is
}

// ServerInfo describes one of the instances that the client is connected to.
func (c *Client) ServerInfo(ctx context.Context) (ServerInfo, error) {
	h, err := c.d.Hello(ctx)
	if err != nil {
		return ServerInfo{}, err
	}
	return ServerInfo{Cluster: h.Cluster, Instance: h.Instance, Version: h.Server, Identity: h.Identity}, nil
}

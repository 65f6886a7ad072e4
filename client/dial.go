package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/reread"
)

// Version is how this client calls itself in its hello: its name, and the release it belongs to.
const Version = "signalbox-go/0.3"

const openTimeoutDefault = 10 * time.Second // for Dial, when its context has no deadline

// Config says how to reach a cluster. Only Endpoints is required.
type Config struct {
	// Endpoints are addresses (host:port) of instances, in any order. One that is up is enough: the
	// client learns the others from it. They are tried in this order. While one has not answered,
	// or has failed, the next is tried beside it: after 300 ms, or at once. The IP addresses of a
	// name are tried in the same way.
	Endpoints []string

	// Token is the client's credentials. Without it the identity is anonymous.
	Token []byte

	// GetToken, if not nil, gives the token of each connection, in place of Token; TokenFile reads
	// it from a file. It is asked again when a token is refused. So tokens can be replaced while
	// the client runs: an instance closes the connections of a revoked token, and the client makes
	// new ones. Sessions whose token is refused wait for another one until their deadline, calls
	// and watches for up to 10 s. If GetToken fails, the former token is shown; before the first
	// connection, that fails. It may be called by several goroutines.
	GetToken func(ctx context.Context) ([]byte, error)

	// TLS, if not nil, is used for every connection. Without a ServerName, the certificate must be
	// good for the host that is dialled. GetClientCertificate in it is asked for each connection.
	TLS *tls.Config

	// GetRootCAs, if not nil, gives the authorities that each connection trusts, in place of
	// TLS.RootCAs; CAFile reads them from a file. It turns TLS on. If it fails, the former ones
	// count; before the first connection, that fails. It may be called by several goroutines.
	GetRootCAs func(ctx context.Context) (*x509.CertPool, error)

	// Cluster is the id or the name of the cluster that is meant. An instance of another one, which
	// may have got the address of one that is gone, is refused with ErrOtherCluster. Default: the
	// cluster of the first instance that answers.
	Cluster string

	// Parent is the session whose command started this program, in the same cluster; 0: none. The
	// parent is taken to give nothing back before the client's sessions end, so a deadlock of nested
	// commands is seen. FromEnv reads it.
	Parent uint64

	// Name is what instances show as this client's name. Default: Version.
	Name string

	// Dial replaces the function that makes TCP connections. It gets addresses as they are given,
	// so it looks names up. It must respect its context, and may be called again meanwhile.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Logger gets lost and new connections and sessions that were taken over at debug, and expired
	// sessions, and another cluster that answers in place of this client's, at warn. Calls of the
	// SDK may log on their caller's goroutine what they learn of other sessions, so its handler
	// must not wait for a lock that is held in such a call. Default: nothing is logged.
	Logger *slog.Logger

	// Observer, if not nil, is notified of acquires and holds, connections, sessions and retries, for
	// logs, traces and metrics. Default: nothing is observed.
	Observer Observer
}

// New returns a client that connects in the background, so that a program can start while the
// cluster is away. Use it for services: calls wait for the cluster until their contexts end,
// discovery.Serve and Supervise for as long as it takes. Calls fail at once when the credentials,
// the cluster or the protocol version are refused, or with ErrHandshake; the next call connects
// again. Errors: a Config without Endpoints.
func New(cfg Config) (*Client, error) {
	c, err := configured(cfg)
	if err != nil {
		return nil, err
	}
	c.d.Begin()
	return c, nil
}

// Dial connects to the first of the endpoints (host:port) that answers, and fetches the cluster
// map. The client then reconnects by itself until Close. Dial fails at once when the credentials or
// the protocol version are refused, or with ErrHandshake. Otherwise it tries until ctx ends; a
// context without a deadline gets one of 10 s. A service that is to start while the cluster is away
// uses New.
func Dial(ctx context.Context, endpoints ...string) (*Client, error) {
	return Open(ctx, Config{Endpoints: endpoints})
}

// Open is Dial with all options.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	ctx, cancel := openContext(ctx, "no endpoint answered")
	defer cancel()
	c, err := configured(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.d.Connect(ctx); err != nil {
		c.d.Close()
		return nil, dialError(&cfg, err)
	}
	return c, nil
}

// OpenSession is Open and Client.Session in one: the start of the session goes out together with
// the first words to the server. That saves a round trip if the instance that answers leads the
// session's home shard, which one of a single instance does. It is for a program that needs one
// session. Close the session's Client in the end: that ends both. A context without a deadline gets
// one of 10 s. Errors: those of Dial and of Client.Session. If ctx ends before the start is
// answered, a session that was started all the same ends with its timeout.
func OpenSession(ctx context.Context, cfg Config, nodePath string, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := openContext(ctx, "no endpoint has started the session")
	defer cancel()
	c, err := configured(cfg)
	if err != nil {
		return nil, err
	}
	s := c.newSession(nodePath, o)
	if r := c.d.ConnectWith(ctx, s.d); r.Err != nil {
		return nil, c.openSessionFailed(s, &cfg, r)
	}
	s.started()
	return s, nil
}

// openSessionFailed gives up what OpenSession has begun. An error without a connection is that of
// Dial.
func (c *Client) openSessionFailed(s *Session, cfg *Config, r core.Result) error {
	err := dialError(cfg, driver.Err(r))
	if r.Answered || c.d.WasConnected() {
		err = withOp("start session on", s.node.h.Path, driver.Err(r))
	}
	s.d.Drop(err)
	_ = c.Close()
	return err
}

func dialError(cfg *Config, err error) error { return fmt.Errorf("dial %v: %w", cfg.Endpoints, err) }

// openContext gives a context without a deadline one of openTimeoutDefault, with this cause.
func openContext(ctx context.Context, cause string) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, openTimeoutDefault, fmt.Errorf("%s within %s", cause, openTimeoutDefault))
}

// configured returns a client that is not connected yet. Tests change its driver's settings.
func configured(cfg Config, change ...func(*driver.Config)) (*Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, fmt.Errorf("no endpoint given; name at least one instance as host:port")
	}
	cfg.Name = cmp.Or(cfg.Name, Version)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var notice func(core.Notice)
	if to := cfg.Observer; to != nil {
		notice = func(n core.Notice) { notify(to, n) }
	}
	settings := driver.Config{
		Endpoints: cfg.Endpoints, Name: cfg.Name, Cluster: cfg.Cluster, Token: cfg.Token, GetToken: cfg.GetToken,
		TLS: cfg.TLS, GetRootCAs: cfg.GetRootCAs, Dial: cfg.Dial, Logger: cfg.Logger, Notice: notice,
	}
	for _, f := range change {
		f(&settings)
	}
	return &Client{d: driver.New(settings), cfg: cfg}, nil
}

// TokenFile is a Config.GetToken that reads a file, and removes the white space around the token.
// Replace the file and revoke the token in it later: sessions and their leases stay. A path that is
// no regular file, such as a pipe, is read once.
func TokenFile(path string) func(context.Context) ([]byte, error) {
	return reread.File(path, func(b []byte) ([]byte, error) {
		if b = bytes.TrimSpace(b); len(b) == 0 {
			return nil, fmt.Errorf("%s is empty", path)
		}
		return b, nil
	})
}

// CAFile is a Config.GetRootCAs that reads a file with the certificates of one or more authorities
// in PEM form. To change the authority, put both into the file first. A path that is not a
// regular file, such as a pipe, is read once.
func CAFile(path string) func(context.Context) (*x509.CertPool, error) {
	return reread.File(path, func(b []byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s has no certificate in PEM form; give those of the CA", path)
		}
		return pool, nil
	})
}

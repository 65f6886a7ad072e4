package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Version is how this client calls itself in its hello: its name, and the release it belongs to.
const Version = "signalbox-go/0.2"

const (
	dialTimeout        = 5 * time.Second  // for one address: looking its name up, or connecting and the hello
	openTimeoutDefault = 10 * time.Second // for Dial, when its context has no deadline
)

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

	// Name is what instances show as this client's name. Default: Version.
	Name string

	// Dial replaces the function that makes TCP connections. It gets addresses as they are given,
	// so it looks names up. It must respect its context, and may be called again meanwhile.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Logger gets lost and new connections and sessions that were taken over at debug, and expired
	// sessions at warn. Calls of the SDK may log on their caller's goroutine what they learn of
	// other sessions, so its handler must not wait for a lock that is held in such a call. Default:
	// nothing is logged.
	Logger *slog.Logger

	// Observer, if not nil, is notified of acquires and holds, for traces and metrics. Default:
	// nothing is observed.
	Observer Observer

	clock  clock // tests bring their own
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Dial connects to the first of the endpoints (host:port) that answers, and fetches the cluster
// map. The client then reconnects by itself until Close. Dial fails at once when the credentials or
// the protocol version are refused, or with ErrHandshake. Otherwise it tries until ctx ends; a
// context without a deadline gets one of 10 s.
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
	if err := open(ctx, c, nil); err != nil {
		return nil, err
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
	s := c.newSessionAt(nodePath, o)
	first := newHelloStart(s)
	if err := open(ctx, c, first); err != nil {
		s.cancel(err)
		return nil, err
	}
	if err := s.startAtPath(ctx, first); err != nil {
		s.cancel(err)
		_ = c.Close()
		return nil, withOp("start session on", nodePath, err)
	}
	return s, nil
}

// openContext gives a context without a deadline one of openTimeoutDefault, with this cause.
func openContext(ctx context.Context, cause string) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, openTimeoutDefault, fmt.Errorf("%s within %s", cause, openTimeoutDefault))
}

// configured is a client that is not connected yet.
func configured(cfg Config) (*Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, fmt.Errorf("no endpoint given; name at least one instance as host:port")
	}
	cfg.Name = cmp.Or(cfg.Name, Version)
	if cfg.clock == nil {
		cfg.clock = systemClock{}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.GetRootCAs != nil && cfg.TLS == nil {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.Dial == nil {
		d := net.Dialer{KeepAlive: -1} // pings find a dead connection
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
		cfg.lookup = lookupHost
	}
	return newClient(cfg), nil
}

// open connects, and fetches the map. It closes the client if that fails. start, if not nil, goes
// out with the hello.
func open(ctx context.Context, c *Client, start *helloStart) error {
	first := c.connectFirst(ctx, start)
	err := first
	if first == nil || canResend(first) {
		_, err = c.currentRoutes(ctx)
		if first != nil && ctx.Err() != nil && !errors.Is(err, ErrUnreachable) {
			err = interrupted(ctx, first) // the second attempt has not failed yet
		}
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("dial %v: %w", c.cfg.Endpoints, err)
	}
	return nil
}

// permanentError is an answer to the hello that another try would get again.
type permanentError struct{ err error }

func (r *permanentError) Error() string { return r.err.Error() }
func (r *permanentError) Unwrap() error { return r.err }

// dialer makes connections to instances of one cluster.
type dialer struct {
	cfg     Config
	clock   clock
	handler connHandler // of what arrives on them
	state   credentialState

	mu        sync.Mutex
	clusterID string // of the first instance that answered
}

// lookupHost finds the IP addresses of a host.
func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout,
		fmt.Errorf("the name %s could not be looked up within %s", host, dialTimeout))
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return list, err
}

// silentAddress: an address did not answer in time.
type silentAddress string

func (a silentAddress) Error() string {
	return fmt.Sprintf("%s did not answer within %s", string(a), dialTimeout)
}

// connectWith makes a connection to one address: transport, hello, and the goroutine that serves
// it. With askMap the request for the map goes out together with the hello, and the start of a
// session if start is not nil.
func (d *dialer) connectWith(
	ctx context.Context, to dial.Target, creds credentials, askMap bool, start *helloStart,
) (*conn, error) {
	raw, err := d.cfg.Dial(ctx, to.Dial)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	nc := raw
	if d.cfg.TLS != nil {
		conf := d.cfg.TLS.Clone()
		if conf.ServerName == "" {
			conf.ServerName, _, _ = net.SplitHostPort(to.Address)
		}
		conf.RootCAs = cmp.Or(creds.roots, conf.RootCAs)
		offerCertificate(conf)
		nc = tls.Client(raw, conf)
	}
	hello, rest, err := d.handshake(nc, creds.token, askMap, start)
	if err != nil {
		err = diagnoseHandshake(to.String(), d.cfg.TLS != nil, err, rest)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.checkHello(to.String(), &hello)
	}
	if err != nil {
		_ = nc.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrHandshake) {
			err = cause
		}
		return nil, err
	}
	cn := newConn(d.handler, nc, hello, rest, d.clock)
	cn.tokenChange = creds.change
	if askMap {
		expectMap(cn)
	}
	if start != nil {
		start.expect(cn)
	}
	cn.serve()
	return cn, nil
}

// Ids of the requests of a handshake.
const (
	helloID      = 1
	helloMapID   = 2
	helloStartID = 3
)

// helloRoom is room for what a client sends first, tokens and long names apart.
const helloRoom = 256

// handshakeBuffers are of the size of the largest answer to a hello.
var handshakeBuffers = sync.Pool{New: func() any { return new([protocol.MaxHelloLen + 4]byte) }}

// handshake sends the hello and reads the answer. rest is what came after it, or instead of it, and
// has room for the reads that follow.
func (d *dialer) handshake(
	nc net.Conn, token []byte, askMap bool, start *helloStart,
) (hello protocol.HelloReply, rest []byte, err error) {
	out := protocol.AppendFrame(make([]byte, 0, helloRoom+len(token)), protocol.KindHello, helloID, 0, &protocol.Hello{
		Magic: protocol.Magic, Version: protocol.Version, Client: d.cfg.Name, Token: token,
		Cluster: cmp.Or(d.knownCluster(), d.cfg.Cluster),
	})
	if askMap {
		out = protocol.AppendFrame(out, protocol.KindMap, helloMapID, 0, &protocol.MapRequest{})
	}
	if start != nil {
		out = start.append(out)
	}
	if _, err := nc.Write(out); err != nil {
		return hello, nil, err
	}
	room := handshakeBuffers.Get().(*[protocol.MaxHelloLen + 4]byte)
	buf := room[:0]
	for {
		frame, n, err := protocol.SplitFrame(buf, protocol.MaxHelloLen)
		if err != nil {
			return hello, buf, fmt.Errorf("%w: %w", errNotProtocol, err)
		}
		if n > 0 {
			h, err := protocol.ParseFrame(frame)
			if err != nil {
				return hello, buf, fmt.Errorf("%w: %w", errNotProtocol, err)
			}
			switch {
			case h.Kind == protocol.KindGoodbye:
				var g protocol.Goodbye
				_ = g.DecodeBody(h.Body)
				return hello, nil, permanent(&protocol.Error{Status: g.Status, Message: g.Message})
			case h.Kind != protocol.KindHello|protocol.KindReply:
				return hello, nil, fmt.Errorf("server answered the hello with a message of kind %d", h.Kind)
			case h.Arg != uint64(protocol.StatusOK):
				return hello, nil, permanent(failure(protocol.Status(min(h.Arg, 0xff)), h.Body))
			}
			err = hello.DecodeBody(h.Body)
			rest = append(make([]byte, 0, max(len(buf)-n, minReadBuffer)), buf[n:]...)
			handshakeBuffers.Put(room) // what is kept for the life of a connection is small
			return hello, rest, err
		}
		read, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+read]
		if err != nil && read == 0 {
			return hello, buf, err
		}
	}
}

// permanent makes a permanentError of an answer that another try would get again.
func permanent(err error) error {
	switch protocol.StatusOf(err) {
	case protocol.StatusUnsupported, protocol.StatusUnauthenticated, protocol.StatusForbidden, protocol.StatusBadRequest:
		return &permanentError{err}
	}
	return err
}

// knownCluster is the id of the cluster of the first instance that answered; empty before.
func (d *dialer) knownCluster() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clusterID
}

func (d *dialer) checkHello(address string, hello *protocol.HelloReply) error {
	if hello.Version != protocol.Version {
		return &permanentError{protocol.Errorf(protocol.StatusUnsupported,
			"server speaks protocol version %d, this client version %d", hello.Version, protocol.Version)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clusterID = cmp.Or(d.clusterID, hello.Cluster)
	if d.clusterID != hello.Cluster {
		// Ids of sessions and nodes mean something else there.
		return otherCluster(address, "it is cluster %s, and the client was connected to cluster %s", hello.Cluster, d.clusterID)
	}
	return nil
}

package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/client/internal/wire"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Config says how to reach a cluster. Only Endpoints is required.
type Config struct {
	Endpoints  []string
	Name       string // of the client
	Cluster    string // id that it has to have; empty: that of the first instance that answers
	Token      []byte
	GetToken   func(context.Context) ([]byte, error) // nil: Token
	TLS        *tls.Config                           // nil: none
	GetRootCAs func(context.Context) (*x509.CertPool, error)
	Dial       func(ctx context.Context, address string) (net.Conn, error) // nil: TCP
	Logger     *slog.Logger                                                // nil: nothing is logged
	Notice     func(core.Notice)                                           // must not block; nil: there are none

	// RefusalPatience is how long a token that was refused is not shown again: an instance answers a
	// wrong one up to 2 s late, and a new one would wait for that. A client that was accepted before
	// waits as long for another token, and tries again what it does meanwhile. Default: 10 s.
	RefusalPatience time.Duration

	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	now    func() time.Duration // the clock of leases
	wall   func() time.Duration // the time of day
	asleep func() time.Duration // for how long the machine has slept, as now shows it
}

func (c *Config) setDefaults() {
	if c.now == nil {
		c.now, c.wall, c.asleep = boottime.Now, wall, boottime.Suspended
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.RefusalPatience = cmp.Or(c.RefusalPatience, 10*time.Second)
	if c.GetRootCAs != nil && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.Dial == nil {
		d := net.Dialer{KeepAlive: -1} // pings find a dead connection
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
		c.lookup = lookupHost
	}
}

// Connect makes the first connection, on the goroutine of the caller, and waits for the map. A
// failure that another try may not meet is tried again until ctx ends.
func (d *Driver) Connect(ctx context.Context) error {
	now := d.beginStep()
	d.readClocks(now)
	d.engine.Open(now)
	w := newWaiter()
	x := &core.MapWait{Any: true}
	x.Waiter = w
	d.engine.AwaitMap(now, x)
	d.connectFirst(ctx, now)
	return d.wait(ctx, &x.Request, w).Err
}

// Begin makes the first connection in the background, and waits for nothing.
func (d *Driver) Begin() {
	now := d.beginStep()
	d.readClocks(now)
	d.engine.Open(now)
	d.endStep(now)
}

// ConnectWith makes the first connection, on the goroutine of the caller, and starts a session behind
// its hello.
func (d *Driver) ConnectWith(ctx context.Context, s *Session) core.Result {
	x, w := newStart(), newWaiter()
	x.Waiter = w
	now := d.beginStep()
	d.readClocks(now)
	d.engine.Open(now)
	d.engine.StartSession(now, &s.Session, x)
	d.connectFirst(ctx, now)
	return d.wait(ctx, &x.Request, w)
}

// connectFirst ends a step, and makes the connection that it wants here.
func (d *Driver) connectFirst(ctx context.Context, now time.Duration) {
	var first func(context.Context)
	d.first = &first
	d.endStep(now)
	if first != nil {
		first(ctx)
	}
}

// dialTimeout is for one address: looking its name up, or connecting and the hello.
const dialTimeout = 5 * time.Second

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

// dialled is a connection whose hello was answered.
type dialled struct {
	link    *link
	address string
}

// connect makes a connection to the first address that answers. behind goes out with each hello.
func (d *Driver) connect(ctx context.Context, c *core.Conn, behind []byte) {
	race := dial.Race[dialled]{
		Lookup: d.cfg.lookup,
		Go:     d.Run,
		Connect: func(ctx context.Context, to dial.Target) (dialled, error) {
			won, err := d.connectTo(ctx, to, behind)
			if errors.Is(err, core.ErrOtherCluster) {
				err = d.staysElsewhere(to.String(), err)
			}
			if err != nil && ctx.Err() == nil {
				d.cfg.Logger.Debug("connection could not be made", "address", to.String(), "error", err)
			}
			return won, err
		},
		Discard: func(late dialled) { late.link.wire.Close() },
	}
	won, ok, failed := race.Run(ctx, c.Addresses)
	now := d.beginStep()
	if !ok || d.closed {
		if ok {
			defer won.link.wire.Close()
		}
		if !d.closed {
			d.engine.Lost(now, c, d.worst(ctx, failed))
		}
		d.endStep(now)
		return
	}
	l := won.link
	l.conn, c.Owner = c, l
	d.engine.Connected(now, c, won.address, &l.hello)
	defer l.start()
	d.endStep(now)
	d.cfg.Logger.Debug("connected", "address", won.address, "instance", l.hello.Instance)
}

// otherClusterPeriod is how often the log says that another cluster answers.
const otherClusterPeriod = time.Minute

// staysElsewhere adds to the error that another cluster answers what is to be done where this client
// was connected before. It says so in the log too: programs that go on whatever happens, such as
// members and callers of services, do not look at errors of calls.
func (d *Driver) staysElsewhere(address string, err error) error {
	own := d.knownCluster()
	if own == "" {
		return err
	}
	err = &configError{fmt.Sprintf("%v; this client stays with cluster %s: "+
		"if that was restored from a backup, restart the program, or open another client", err, own), core.ErrOtherCluster, false}
	now := int64(d.cfg.now())
	if last := d.otherCluster.Load(); (last == 0 || now-last >= int64(otherClusterPeriod)) &&
		d.otherCluster.CompareAndSwap(last, now) {
		d.cfg.Logger.Warn("another cluster answers", "address", address, "error", err)
	}
	return err
}

// worst chooses the error of an attempt among those of its addresses: one that another attempt
// would get again, or else a mistake in the configuration, which says more than what may pass. If
// there are only such mistakes, or one is about TLS, which all instances share, a client that was
// never connected gives up. So does one that finds another cluster, and has no connection: its own
// may be gone. With one, it is only the address of an instance that has changed hands, and its
// shards are led elsewhere by now. mu is held.
func (d *Driver) worst(ctx context.Context, failed []error) error {
	switch {
	case len(failed) > 0:
	case isClosed(ctx.Done()):
		return fmt.Errorf("%w: %w", core.ErrUnreachable, context.Cause(ctx))
	default:
		return fmt.Errorf("%w: no address is known", core.ErrUnreachable)
	}
	return worstOf(failed, d.engine.Map() != nil, d.engine.IsConnected())
}

// worstOf is worst of a client that was connected before, or is. An instance that refuses the token
// or the certificate says more than an address that is down or has changed hands.
func worstOf(failed []error, before, connected bool) error {
	var passing, mistake, refusal error
	for _, err := range failed {
		switch {
		case core.IsPermanent(err):
			return err
		case disagreesOnTLS(err) && !before:
			return core.Permanent(err)
		case disagreesOnTLS(err), errors.Is(err, protocol.StatusUnauthenticated):
			refusal = err
		case errors.Is(err, core.ErrHandshake):
			mistake = err
		default:
			passing = err
		}
	}
	if passing == nil && (!before || refusal == nil && errors.Is(mistake, core.ErrOtherCluster) && !connected) {
		return core.Permanent(cmp.Or(refusal, mistake))
	}
	if before {
		mistake = cmp.Or(passing, mistake) // it was right before: one address has changed hands
	}
	return fmt.Errorf("%w: %w", core.ErrUnreachable, cmp.Or(refusal, mistake, passing))
}

// connectTo makes a connection to one address. If the token is refused and another one is given by
// then, it shows that.
func (d *Driver) connectTo(ctx context.Context, to dial.Target, behind []byte) (won dialled, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, silentAddress(to.String()))
	defer cancel()
	shown, err := d.shown.next(ctx)
	if err != nil {
		return won, err
	}
	if d.cfg.GetToken == nil {
		won, err = d.connectWith(ctx, to, shown, behind)
		return won, d.shown.outcome(shown, err)
	}
	if err := d.shown.refused(shown); err != nil {
		return won, err
	}
	won, err = d.connectWith(ctx, to, shown, behind)
	if errors.Is(err, protocol.StatusUnauthenticated) {
		if next, _ := d.shown.next(ctx); next.change != shown.change {
			shown = next
			won, err = d.connectWith(ctx, to, shown, behind)
		}
	}
	err = d.shown.outcome(shown, err)
	if errors.Is(err, protocol.StatusUnauthenticated) {
		err = d.shown.bePatient(err)
	}
	return won, err
}

// connectWith makes a connection to one address: transport, hello, and its answer.
func (d *Driver) connectWith(
	ctx context.Context, to dial.Target, creds credentials, behind []byte,
) (won dialled, err error) {
	raw, err := d.dial(ctx, to)
	if err != nil {
		return won, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	nc := raw
	if d.cfg.TLS != nil {
		nc = d.secured(raw, to, creds)
	}
	w, hello, received, err := wire.Handshake(nc, &protocol.Hello{
		Magic: protocol.Magic, Version: protocol.Version, Client: d.cfg.Name, Token: creds.token,
		Cluster: cmp.Or(d.knownCluster(), d.cfg.Cluster),
	}, behind)
	if err != nil {
		hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		if d.cfg.TLS == nil && hungUp && len(received) == 0 && !d.WasConnected() && d.speaksTLS(ctx, to) {
			received = prefixTLSAlert
		}
		err = core.RefusedForGood(diagnose(to.String(), d.cfg.TLS != nil, err, received))
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.checkHello(to.String(), &hello)
	}
	if err != nil {
		_ = nc.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, core.ErrHandshake) {
			err = cause
		}
		return won, err
	}
	return dialled{newLink(d, w, nc, hello, creds.change), to.Address}, nil
}

func (d *Driver) dial(ctx context.Context, to dial.Target) (net.Conn, error) {
	return alone("Dial", func() (net.Conn, error) { return d.cfg.Dial(ctx, to.Dial) })
}

// alone calls a function of the configuration on a goroutine of its own. It may end that, as FailNow of
// a test does: the attempt fails then, and the call that waits for it is told.
func alone[T any](what string, f func() (T, error)) (v T, err error) {
	err = fmt.Errorf("%s ended its goroutine", what)
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = f()
	}()
	<-done
	return v, err
}

// secured is the connection in TLS.
func (d *Driver) secured(raw net.Conn, to dial.Target, creds credentials) net.Conn {
	conf := d.cfg.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(to.Address)
	}
	conf.RootCAs = cmp.Or(creds.roots, conf.RootCAs)
	offerCertificate(conf)
	return tls.Client(raw, conf)
}

// knownCluster is the id of the cluster of the first instance that answered; empty before.
func (d *Driver) knownCluster() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Cluster()
}

// checkHello refuses what the engine would refuse, as long as another address may do better.
func (d *Driver) checkHello(address string, hello *protocol.HelloReply) error {
	if hello.Version != protocol.Version {
		return core.Permanent(protocol.Errorf(protocol.StatusUnsupported,
			"server speaks protocol version %d, this client version %d", hello.Version, protocol.Version))
	}
	if known := d.knownCluster(); known != "" && known != hello.Cluster {
		// Ids of sessions and nodes mean something else there.
		return otherCluster(address, "it is cluster %s, and the client was connected to cluster %s", hello.Cluster, known)
	}
	return nil
}

// WasConnected reports whether an instance has answered.
func (d *Driver) WasConnected() bool { return d.knownCluster() != "" }

// Hello returns an instance's description of itself and of the client. It waits for a connection.
func (d *Driver) Hello(ctx context.Context) (*protocol.HelloReply, error) {
	x := new(core.ConnWait)
	if r := d.send(ctx, &x.Request, func(now time.Duration) { d.engine.AwaitConn(now, x) }); r.Err != nil {
		return nil, Err(r)
	}
	return &x.Conn.Owner.(*link).hello, nil
}

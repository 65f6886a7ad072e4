package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/release"
)

// errUnreachable marks errors of reaching the server at all: exit code 5.
var errUnreachable = errors.New("no instance answered")

// timeoutError is the end of --timeout. It matches errUnreachable only if no instance was reached:
// a request that was sent may have taken effect, or may yet.
type timeoutError struct{ inv *invocation }

func (e *timeoutError) Error() string {
	if e.inv.conn == nil {
		return fmt.Sprintf("gave up after %s", e.inv.timeout) // what wraps it says that no instance answered
	}
	return fmt.Sprintf("gave up after %s: an instance was reached, but this was not done in time", e.inv.timeout)
}

func (e *timeoutError) Is(target error) bool { return target == errUnreachable && e.inv.conn == nil }

// invocation is one run of a verb that talks to a server.
type invocation struct {
	*app
	ctx     context.Context // ends with --timeout
	cancel  context.CancelFunc
	longCtx context.Context // ends with a signal only: for holding and watching
	node    string
	timeout time.Duration // of --timeout
	ttl     time.Duration // of --session-timeout

	ttlGiven bool // on the command line

	outer      outerCommand
	cfg        client.Config
	conn       *client.Client  // once connected
	cleanupCtx context.Context // of ending
}

// beginTimeout begins --timeout, also again: it does not count the time that a person or another
// program takes to write the input.
func (inv *invocation) beginTimeout() {
	if inv.cancel != nil {
		inv.cancel()
	}
	inv.ctx, inv.cancel = context.WithTimeoutCause(inv.longCtx, inv.timeout, &timeoutError{inv})
}

// disconnect closes the connection, if there is one. It leaves sessions alone: verbs close theirs.
func (inv *invocation) disconnect() {
	if inv.conn != nil {
		inv.conn.CloseWithoutRelease()
	}
}

func (a *app) newInvocation(cmd *cobra.Command) (*invocation, error) {
	if err := a.resolveClient(cmd); err != nil {
		return nil, err
	}
	inv := &invocation{app: a, ttlGiven: given(cmd, "session-timeout")}
	inv.cfg.Name = "signalbox-cli/" + release.Current().Version
	if err := inv.readValues(a.values); err != nil {
		return nil, err
	}
	if isOffline(cmd) {
		return inv, nil
	}
	// A command may hold a lock longer than its token, its certificate or the instances' authority
	// is valid, so the files are read for each connection.
	if f := a.values["token-file"]; f != "" {
		inv.cfg.GetToken = client.TokenFile(f)
		if _, err := inv.cfg.GetToken(cmd.Context()); err != nil {
			return nil, usagef("cannot read --token-file: %v", err)
		}
	}
	if f := a.values["tls-ca"]; f != "" {
		inv.cfg.GetRootCAs = client.CAFile(f)
		if _, err := inv.cfg.GetRootCAs(cmd.Context()); err != nil {
			return nil, usagef("cannot read --tls-ca: %v", err)
		}
	}
	var err error
	inv.cfg.TLS, err = tlsConfig(a.values)
	return inv, err
}

// offline is the annotation of a command that asks no instance, so that it needs no credentials and
// works where their files cannot be read. Its value is the flag that makes it so; empty: always.
const offline = "offline"

func isOffline(cmd *cobra.Command) bool {
	flag, ok := cmd.Annotations[offline]
	return ok && (flag == "" || cmd.Flag(flag).Value.String() == "true")
}

// readValues reads and checks the settings of a connection that name no files.
func (inv *invocation) readValues(values map[string]string) (err error) {
	inv.node = values["node"]
	if inv.timeout, err = duration("timeout", values["timeout"]); err != nil {
		return err
	}
	if inv.timeout <= 0 {
		return usagef("--timeout %s is not above 0; give a duration like 15s", inv.timeout)
	}
	if inv.ttl, err = duration("session-timeout", values["session-timeout"]); err != nil {
		return err
	}
	if err := protocol.ValidatePath(inv.node); err != nil {
		return usagef("--node %q: %v", inv.node, err)
	}
	inv.cfg.Cluster = values["cluster"]
	inv.outer = outerCommandOf(values)
	inv.cfg.Parent = inv.outer.session
	inv.cfg.Endpoints = settings.Split(values["endpoints"])
	for _, e := range inv.cfg.Endpoints {
		_, port, err := net.SplitHostPort(e)
		if err != nil {
			return usagef("--endpoints: %q is not host:port", e)
		}
		if n, err := strconv.Atoi(port); err == nil && (n < 1 || n > 65535) { // it may be a name too
			return usagef("--endpoints: %q has no port from 1 to 65535", e)
		}
	}
	if len(inv.cfg.Endpoints) == 0 {
		return usagef("--endpoints is empty; name at least one instance as host:port")
	}
	return nil
}

// client connects, the first time.
func (inv *invocation) client() (*client.Client, error) {
	if inv.conn != nil {
		return inv.conn, nil
	}
	c, err := client.Open(inv.ctx, inv.cfg)
	if err != nil {
		if protocol.StatusOf(err) == protocol.StatusInternal &&
			(!errors.Is(err, client.ErrHandshake) || inv.ctx.Err() != nil) {
			err = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		return nil, err
	}
	inv.conn = c
	return c, nil
}

// awayAfter is how long a cluster may leave a program unanswered before it counts as away, if
// nothing refuses a connection sooner.
const awayAfter = 5 * time.Second

// clientAtOnce is client for a program that starts while the cluster is away. away has why, once no
// connection could be made, for a reason that passes, or answered was not called in time.
func (inv *invocation) clientAtOnce() (c *client.Client, away <-chan error, answered func(), err error) {
	reasons := make(chan error, 1)
	notice := func(err error) {
		select {
		case reasons <- err:
		default:
		}
	}
	cfg := inv.cfg
	cfg.Observer = connectionObserver(func(x client.ConnectionChange) {
		if x.State == client.ConnectionFailed && errors.Is(x.Err, client.ErrUnreachable) {
			notice(x.Err)
		}
	})
	patience := min(inv.timeout, awayAfter)
	silent := time.AfterFunc(patience, func() { notice(fmt.Errorf("it has not answered within %s", patience)) })
	inv.conn, err = client.New(cfg)
	return inv.conn, reasons, func() { silent.Stop() }, err
}

// connectionObserver is notified of connections alone.
type connectionObserver func(client.ConnectionChange)

func (connectionObserver) AcquireStarted(context.Context, client.AcquireStart) client.AcquireObserver {
	return nil
}
func (f connectionObserver) ConnectionChanged(x client.ConnectionChange) { f(x) }
func (connectionObserver) SessionChanged(client.SessionChange)           {}
func (connectionObserver) RequestRetried(client.RequestRetry)            {}

func (inv *invocation) admin() (*admin.Client, error) {
	c, err := inv.client()
	if err != nil {
		return nil, err
	}
	return admin.New(c), nil
}

func (inv *invocation) openNode() (*client.Node, error) {
	inv.right = cmp.Or(inv.right, "read")
	c, err := inv.client()
	if err != nil {
		return nil, err
	}
	return c.Node(inv.ctx, inv.node)
}

// withSession runs fn with a session that is closed afterwards.
func (inv *invocation) withSession(fn func(s *client.Session) error) error {
	inv.right = "use"
	c, err := inv.client()
	if err != nil {
		return err
	}
	s, err := c.Session(inv.ctx, inv.node, inv.sessionOptions()...)
	if err != nil {
		return err
	}
	defer inv.closeSession(s)
	return fn(s)
}

func (inv *invocation) sessionOptions() []client.SessionOption {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	about := fmt.Sprintf("%s@%s pid %d", inv.verbPath, host, os.Getpid())
	return []client.SessionOption{client.Timeout(inv.ttl), client.Description(about)}
}

// closeSession ends a session, which releases what it holds.
func (inv *invocation) closeSession(s *client.Session) { _ = s.Close(inv.cleanup()) }

// cleanup bounds all that is done to leave nothing behind, from its first call on: the server may
// be gone.
func (inv *invocation) cleanup() context.Context {
	if inv.cleanupCtx == nil {
		var cancel context.CancelFunc
		inv.cleanupCtx, cancel = context.WithTimeout(context.WithoutCancel(inv.longCtx), 2*time.Second)
		context.AfterFunc(inv.cleanupCtx, cancel)
	}
	return inv.cleanupCtx
}

func (a *app) code(err error) int {
	var ce *codeError
	var ue *settings.Error
	var te *timeoutError
	switch {
	case errors.As(err, &ce):
		return ce.code
	case errors.As(err, &ue), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case errors.Is(err, client.ErrNotAcquired):
		return exitNotAcquired
	case errors.Is(err, client.ErrOutcomeUnknown), errors.As(err, &te) && te.inv.conn != nil:
		return exitError
	case errors.Is(err, errUnreachable), errors.Is(err, protocol.StatusUnavailable):
		return exitUnreachable
	default:
		return exitError
	}
}

// hint is the next step after an error that cannot name it.
func (a *app) hint(err error, code int) string {
	var te *timeoutError
	loss, lost := errors.AsType[*client.Loss](err)
	switch {
	case lost && code == exitLost && loss.Advice != "" && !errors.Is(err, protocol.StatusUnauthenticated):
		return strings.ToUpper(loss.Advice[:1]) + loss.Advice[1:] + "."
	case errors.Is(err, client.ErrOtherCluster):
		return "--endpoints names instances of the cluster that is meant; --cluster says which one, by its id or name."
	case errors.Is(err, client.ErrHandshake):
		return "--endpoints names the addresses for clients (--listen or --listen-tls of serve); for TLS there are --tls, --tls-ca, --tls-server-name, --tls-cert and --tls-key."
	case errors.Is(err, client.ErrOutcomeUnknown):
		return "It may have taken effect, or may yet: look before you repeat it. `signalbox cluster health` says what works."
	case code == exitError && errors.As(err, &te):
		return "Look at the cluster with `signalbox cluster status`; --timeout gives more time."
	case errors.Is(err, protocol.StatusUnavailable) && !errors.Is(err, errUnreachable):
		return "Look at the cluster with `signalbox cluster health`."
	case code == exitUnreachable:
		return fmt.Sprintf("Is an instance running at %s? Start one with `signalbox dev`, or name another with --endpoints.",
			a.values["endpoints"])
	case errors.Is(err, protocol.StatusUnauthenticated):
		return "Show credentials with --token-file; an administrator makes them with `signalbox auth create`."
	case errors.Is(err, protocol.StatusForbidden):
		return rightsHint(a.verbPath, a.right, a.values["node"])
	case errors.Is(err, protocol.StatusUnsupported):
		return "The instance is older than this program; upgrade it."
	}
	return refusalHint(err, a.verbPath)
}

// maxPEM is the longest file of certificates or keys, in bytes.
const maxPEM = 4 << 20

// tlsConfig is how to connect over TLS; nil: without it. It does not read the file of tls-ca.
func tlsConfig(v map[string]string) (*tls.Config, error) {
	ca, cert, key, name := v["tls-ca"], v["tls-cert"], v["tls-key"], v["tls-server-name"]
	if v["tls"] != "true" && ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--tls-cert and --tls-key go together: give the certificate and its key, or neither")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if cert != "" {
		if _, err := keyPair(cert, key); err != nil {
			return nil, usagef("cannot use --tls-cert with --tls-key: %v", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := keyPair(cert, key)
			return &pair, err
		}
	}
	return c, nil
}

func keyPair(cert, key string) (pair tls.Certificate, err error) {
	c, err := file.Read(cert, maxPEM)
	if err != nil {
		return pair, err
	}
	k, err := file.Read(key, maxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(c, k)
}

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TokenFile is a Config.GetToken that reads a file, and removes the white space around the token.
// Replace the file and revoke the token in it later: sessions and their leases stay. A path that is
// no regular file, such as a pipe, is read once.
func TokenFile(path string) func(context.Context) ([]byte, error) {
	return readAgain(path, func(b []byte) ([]byte, error) {
		if b = bytes.TrimSpace(b); len(b) == 0 {
			return nil, fmt.Errorf("%s is empty", path)
		}
		return b, nil
	})
}

// CAFile is a Config.GetRootCAs that reads a file with the certificates of one or more authorities
// in PEM form. To change the authority, put both into the file first. A path that is no regular
// file, such as a pipe, is read once.
func CAFile(path string) func(context.Context) (*x509.CertPool, error) {
	return readAgain(path, func(b []byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s has no certificate in PEM form; give those of the CA", path)
		}
		return pool, nil
	})
}

// readAgain reads a file at each call, unless it is none that can be read again.
func readAgain[T any](path string, parse func([]byte) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var once *T
	return func(context.Context) (value T, err error) {
		mu.Lock()
		defer mu.Unlock()
		if once != nil {
			return *once, nil
		}
		b, regular, err := readFile(path)
		if err == nil {
			value, err = parse(b)
		}
		if err == nil && !regular {
			once = &value
		}
		return value, err
	}
}

// maxFileSize bounds a file of credentials, in bytes: a device given by mistake may have no end.
const maxFileSize = 4 << 20

func readFile(path string) (b []byte, regular bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil {
		regular = fi.Mode().IsRegular()
	}
	b, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(b) > maxFileSize {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFileSize)
	}
	return b, regular, err
}

// refusalPatience is how long a token that was refused is not shown again: an instance answers a
// wrong one up to 2 s late, and a new one would wait for that. A client that was accepted before
// waits as long for another token, and tries again what it does meanwhile.
const refusalPatience = 10 * time.Second

// credentials are what a connection shows, and whom it trusts.
type credentials struct {
	token  []byte
	change uint64         // how often the token has changed
	roots  *x509.CertPool // nil: those of Config.TLS
	stale  error          // why some of them are the former ones; nil: none is
}

// credentialState is what became of a client's credentials.
type credentialState struct {
	mu       sync.Mutex
	last     credentials // those of the last connection
	accepted bool        // an instance has accepted some

	// Of refusals that no acceptance has followed.
	refusal     error         // the last; nil: there is none
	change      uint64        // of the token that was refused last
	first, when time.Duration // of the first and the last
}

// credentials asks for the credentials of a connection. Where they cannot be had, the former ones
// count.
func (d *dialer) credentials(ctx context.Context) (credentials, error) {
	c := credentials{token: d.cfg.Token}
	var noToken, noRoots error
	if d.cfg.GetToken != nil {
		if c.token, noToken = d.cfg.GetToken(ctx); noToken != nil {
			noToken = fmt.Errorf("there is no new token: %w", noToken)
		}
	}
	if d.cfg.GetRootCAs != nil {
		if c.roots, noRoots = d.cfg.GetRootCAs(ctx); noRoots != nil {
			noRoots = fmt.Errorf("there are no new authorities: %w", noRoots)
		}
	}
	c.stale = errors.Join(noToken, noRoots)
	s := &d.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.stale != nil && !s.accepted {
		return c, &permanentError{c.stale}
	}
	if noToken != nil {
		c.token = s.last.token
	}
	if noRoots != nil {
		c.roots = s.last.roots
	}
	if c.change = s.last.change; !bytes.Equal(c.token, s.last.token) {
		c.change++
	}
	s.last = c
	return c, nil
}

// connect makes a connection to one address. If the token is refused and another one is given by
// then, it shows that.
func (d *dialer) connect(ctx context.Context, to dial.Target, askMap bool, start *helloStart) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, silentAddress(to.String()))
	defer cancel()
	shown, err := d.credentials(ctx)
	if err != nil {
		return nil, err
	}
	if d.cfg.GetToken == nil {
		cn, err := d.connectWith(ctx, to, shown, askMap, start)
		return cn, d.state.outcome(shown, err, d.clock.now())
	}
	if err := d.state.refused(shown, d.clock.now()); err != nil {
		return nil, err
	}
	cn, err := d.connectWith(ctx, to, shown, askMap, start)
	if errors.Is(err, protocol.StatusUnauthenticated) {
		if next, _ := d.credentials(ctx); next.change != shown.change {
			shown = next
			cn, err = d.connectWith(ctx, to, shown, askMap, start)
		}
	}
	err = d.state.outcome(shown, err, d.clock.now())
	if errors.Is(err, protocol.StatusUnauthenticated) {
		err = d.state.bePatient(err, d.clock.now())
	}
	return cn, err
}

// outcome notes what became of a connection, nil if it was made. The result is err, with the reason
// why the credentials were the former ones.
func (s *credentialState) outcome(c credentials, err error, now time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.accepted, s.refusal = true, nil
		return nil
	}
	if errors.Is(err, protocol.StatusUnauthenticated) {
		s.refuse(err, c.change, now)
	}
	return c.explain(err)
}

// explain adds to an error why the credentials were the former ones.
func (c *credentials) explain(err error) error {
	if err == nil || c.stale == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, c.stale)
}

// refuse notes a refusal. mu is held.
func (s *credentialState) refuse(err error, change uint64, now time.Duration) {
	if s.refusal == nil {
		s.first = now
	}
	s.refusal, s.change, s.when = err, change, now
}

// revoked is called when an instance ends a connection because of the token that it showed.
func (s *credentialState) revoked(err error, change uint64, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change == s.last.change { // else another one is shown by now
		s.refuse(&permanentError{err}, change, now)
	}
}

// refused is the error of a token that was refused a moment ago, or nil.
func (s *credentialState) refused(c credentials, now time.Duration) error {
	s.mu.Lock()
	err := s.refusal
	known := err != nil && c.change == s.change && now-s.when < refusalPatience
	s.mu.Unlock()
	if !known {
		return nil
	}
	return s.bePatient(c.explain(err), now)
}

// bePatient makes a refusal one that is tried again, if other credentials may come.
func (s *credentialState) bePatient(err error, now time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted && now-s.first < refusalPatience {
		return &passingRefusal{err}
	}
	return err
}

// lastRefusal is why the credentials are refused, nil if they are not.
func (s *credentialState) lastRefusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.explain(s.refusal)
}

// passingRefusal is a refusal of a connection that another try may not get: other credentials may
// come. It has no status, since it answers no request, but is Unauthenticated by errors.Is.
type passingRefusal struct{ err error }

func (p *passingRefusal) Error() string { return p.err.Error() }

func (p *passingRefusal) Is(target error) bool {
	return target == ErrUnreachable || target == protocol.StatusUnauthenticated
}

// notRenewed is the end of a session whose last attach failed: ErrNotRenewed, and by errors.Is also
// what the user can mend.
type notRenewed struct{ why error }

func (n *notRenewed) Error() string { return fmt.Sprintf("%v (%v)", ErrNotRenewed, n.why) }
func (n *notRenewed) Unwrap() error { return ErrNotRenewed }

func (n *notRenewed) Is(target error) bool {
	return (target == protocol.StatusUnauthenticated || target == ErrHandshake) && errors.Is(n.why, target)
}

// offerCertificate has a client show its certificate also to an instance that names other
// authorities: the instance then says what is wrong with it, and not that there is none.
func offerCertificate(c *tls.Config) {
	if c.GetClientCertificate != nil || len(c.Certificates) == 0 {
		return
	}
	c.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		for i := range c.Certificates {
			if asked.SupportsCertificate(&c.Certificates[i]) == nil {
				return &c.Certificates[i], nil
			}
		}
		return &c.Certificates[0], nil
	}
}

package driver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// credentials are a connection's token and certificates, and the authorities that it trusts.
type credentials struct {
	token  []byte
	change uint64         // how often the token has changed
	roots  *x509.CertPool // nil: those of Config.TLS
	stale  error          // why some of them are the former ones; nil: none is
}

// credentialState is the state of a client's credentials. The driver's mu guards it.
type credentialState struct {
	d        *Driver
	last     credentials // those of the last connection
	accepted bool        // an instance has accepted some

	// Of refusals that no acceptance has followed.
	refusal     error         // the last; nil: there is none
	change      uint64        // of the token that was refused last
	first, when time.Duration // of the first and the last
}

// credentials asks for the credentials of a connection. Where they cannot be had, the former ones
// count.
func (s *credentialState) next(ctx context.Context) (credentials, error) {
	d := s.d
	c := credentials{token: d.cfg.Token}
	var noToken, noRoots error
	if d.cfg.GetToken != nil {
		if c.token, noToken = alone("GetToken", func() ([]byte, error) { return d.cfg.GetToken(ctx) }); noToken != nil {
			noToken = fmt.Errorf("there is no new token: %w", noToken)
		}
	}
	if d.cfg.GetRootCAs != nil {
		if c.roots, noRoots = alone("GetRootCAs", func() (*x509.CertPool, error) { return d.cfg.GetRootCAs(ctx) }); noRoots != nil {
			noRoots = fmt.Errorf("there are no new authorities: %w", noRoots)
		}
	}
	c.stale = errors.Join(noToken, noRoots)
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.stale != nil && !s.accepted {
		return c, core.Permanent(c.stale)
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

// outcome notes what became of a connection, nil if it was made. The result is err, with the reason
// why the credentials were the former ones.
func (s *credentialState) outcome(c credentials, err error) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err == nil {
		s.accepted, s.refusal = true, nil
		return nil
	}
	if errors.Is(err, protocol.StatusUnauthenticated) {
		s.refuse(err, c.change, s.d.cfg.now())
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

// refuse notes a refusal.
func (s *credentialState) refuse(err error, change uint64, now time.Duration) {
	if s.refusal == nil {
		s.first = now
	}
	s.refusal, s.change, s.when = err, change, now
}

// revoked is called when an instance ends a connection because of the token that it showed.
func (s *credentialState) revoked(err error, change uint64, now time.Duration) {
	if change == s.last.change { // else another one is shown by now
		s.refuse(core.Permanent(err), change, now)
	}
}

// refused is the error of a token that was refused a moment ago, or nil.
func (s *credentialState) refused(c credentials) error {
	now := s.d.cfg.now()
	s.d.mu.Lock()
	err := s.refusal
	known := err != nil && c.change == s.change && now-s.when < s.d.cfg.RefusalPatience
	s.d.mu.Unlock()
	if !known {
		return nil
	}
	return s.bePatient(c.explain(err))
}

// bePatient makes a refusal one that is tried again, if other credentials may come.
func (s *credentialState) bePatient(err error) error {
	now := s.d.cfg.now()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.accepted && now-s.first < s.d.cfg.RefusalPatience {
		return &passingRefusal{err}
	}
	return err
}

// passingRefusal is a refusal of a connection that another try may not get: other credentials may
// come. It has no status, since it answers no request, but is ErrUnauthenticated by errors.Is.
type passingRefusal struct{ err error }

func (p *passingRefusal) Error() string { return p.err.Error() }

func (p *passingRefusal) Is(target error) bool {
	return target == core.ErrUnreachable || target == protocol.StatusUnauthenticated
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

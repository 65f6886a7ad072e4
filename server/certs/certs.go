// Package certs keeps TLS configurations up to date with their files.
//
//	files := certs.Files{Cert: "server.pem", Key: "server.key", CA: "clients.pem", Require: true}
//	c, err := certs.Open(files, log)
//	go c.Watch(ctx)
//	tls.NewListener(l, c.Server())
//
// New files apply to new connections; open connections keep their certificates. Unusable files
// change nothing: the last good ones stay in use. A certificate and its key are two files, which do
// not match between the writes of the two. So only files that are unusable at the next look too are
// logged, and counted by [Certs.Failures].
//
// Content is compared, not the time of change: mounted secrets are swapped by a symbolic link,
// often with an older time. Each reload makes a new configuration, so that no session of the old
// one can be resumed.
package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// pollPeriod is how often the files are read.
const pollPeriod = time.Second

// maxFileSize is the longest file that is read, in bytes.
const maxFileSize = 4 << 20

// Files are paths of PEM files.
type Files struct {
	// Cert is this end's certificate with its chain, and Key its private key. Both are needed.
	Cert, Key string
	// CA are the certificates of the authorities that sign the other end's. Without it, a server
	// does not check clients' certificates, and a client uses the system's authorities.
	CA string
	// Require has a server reject clients without a certificate; it needs CA. Otherwise a
	// certificate is optional, and checked if it is shown.
	Require bool
}

// Certs are certificates read from files. Its methods may be called from any goroutine.
type Certs struct {
	files    Files
	log      *slog.Logger
	current  atomic.Pointer[loadedFiles]
	failures atomic.Uint64

	mu       sync.Mutex        // held while files are read
	unusable bool              // so the files were at the last look
	logged   [sha256.Size]byte // of the files that were logged as unusable last
	invalid  bool              // by its dates, at the last look
}

// loadedFiles is the content of the files at one time.
type loadedFiles struct {
	sum       [sha256.Size]byte // of the files
	cert      tls.Certificate
	ca        *x509.CertPool
	caExpires time.Time // of the authority that expires last
	srv       *tls.Config
}

// Open reads the files, which must be usable.
func Open(f Files, log *slog.Logger) (*Certs, error) {
	switch {
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("TLS needs both a certificate and its key; give the two files")
	case f.Require && f.CA == "":
		return nil,
			errors.New("certificates of clients are required, and nothing says who signs them; give the file of the CA's certificates")
	}
	c := &Certs{files: f, log: log}
	parts, sum, err := c.read()
	if err != nil {
		return nil, err
	}
	now, err := c.parse(parts, sum)
	if err != nil {
		return nil, err
	}
	c.current.Store(now)
	c.look(time.Now())
	return c, nil
}

// look logs once that the certificate in use is not valid by this machine's clock, from the beginning or
// since it expired. It is used all the same: the other end decides by its own clock. mu is held, or c is
// nobody else's.
func (c *Certs) look(now time.Time) {
	own, _ := c.Invalid(now)
	if own != "" && !c.invalid {
		leaf := c.current.Load().cert.Leaf
		c.log.Error("the certificate is not valid now, the other end will refuse it", "file", c.files.Cert,
			"from", leaf.NotBefore, "until", leaf.NotAfter)
	}
	c.invalid = own != ""
}

// Failures is how often changed files could not be used, at two looks.
func (c *Certs) Failures() uint64 { return c.failures.Load() }

// Expires is when the certificate in use expires.
func (c *Certs) Expires() time.Time { return c.current.Load().cert.Leaf.NotAfter }

// Invalid says why the other end refuses the certificate in use at a time, and why this end refuses
// all certificates that CA signs; empty: they are not refused for their dates.
func (c *Certs) Invalid(at time.Time) (own, authorities string) {
	now := c.current.Load()
	switch leaf := now.cert.Leaf; {
	case at.Before(leaf.NotBefore):
		own = "is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339)
	case at.After(leaf.NotAfter):
		own = "expired at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	if now.ca != nil && at.After(now.caExpires) {
		authorities = "expired at " + now.caExpires.UTC().Format(time.RFC3339)
	}
	return own, authorities
}

// Check returns an error while new connections fail by the dates of the certificate in use, which a
// flag names.
func (c *Certs) Check(flag string) error {
	if own, _ := c.Invalid(time.Now()); own != "" {
		return fmt.Errorf("the certificate of %s %s; replace the file, which is loaded within seconds", flag, own)
	}
	return nil
}

// Server is the configuration of a listener. Each handshake uses the present certificates.
func (c *Certs) Server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load().srv, nil },
	}
}

// Client is a configuration to dial with, of the present certificates. It also shows its
// certificate to a server that names other authorities, so that the server says what is wrong with
// it, and not that there is none.
func (c *Certs) Client() *tls.Config {
	now := c.current.Load()
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: now.ca,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &now.cert, nil }}
}

// Reload reads the files again, and uses them if they have changed. After an error the old
// certificates stay in use. An error is logged if the call before had one too, and once for the
// same files.
func (c *Certs) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.look(time.Now()) }()
	var next *loadedFiles
	parts, sum, err := c.read()
	switch {
	case err != nil:
		sum = sha256.Sum256([]byte(err.Error()))
	case sum != c.current.Load().sum:
		next, err = c.parse(parts, sum)
	}
	if err != nil {
		again := c.unusable
		if c.unusable = true; again && sum != c.logged {
			c.logged = sum
			c.failures.Add(1)
			c.log.Warn("certificates are not reloaded, the former ones stay in use", "error", err)
		}
		return err
	}
	c.unusable, c.logged = false, [sha256.Size]byte{}
	if next != nil {
		files := []any{"file", c.files.Cert, "expires", next.cert.Leaf.NotAfter}
		if c.files.CA != "" {
			files = append(files, "authority", c.files.CA)
		}
		c.log.Info("certificates reloaded", files...)
		c.current.Store(next)
		c.invalid = false // of the one before
	}
	return nil
}

// Watch reloads changed files until ctx ends.
func (c *Certs) Watch(ctx context.Context) {
	t := time.NewTimer(beat.Next(pollPeriod))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_ = c.Reload()
			t.Reset(beat.Next(pollPeriod))
		}
	}
}

// read returns the content of the files, and its digest. It does not trust modification times: a
// file may be replaced by an older one.
func (c *Certs) read() (parts [3][]byte, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for i, path := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		if path == "" {
			continue
		}
		if parts[i], err = file.Read(path, maxFileSize); err != nil {
			return parts, sum, fmt.Errorf("TLS file: %w", err)
		}
		one := sha256.Sum256(parts[i])
		h.Write(one[:])
	}
	return parts, [sha256.Size]byte(h.Sum(nil)), nil
}

func (c *Certs) parse(parts [3][]byte, sum [sha256.Size]byte) (*loadedFiles, error) {
	l := &loadedFiles{sum: sum}
	var err error
	if l.cert, err = tls.X509KeyPair(parts[0], parts[1]); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", c.files.Cert, c.files.Key, err)
	}
	if l.cert.Leaf == nil {
		if l.cert.Leaf, err = x509.ParseCertificate(l.cert.Certificate[0]); err != nil {
			return nil, fmt.Errorf("certificate %s: %w", c.files.Cert, err)
		}
	}
	// Sessions are not resumed: a resumed one would use the CA of its first handshake.
	l.srv = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{l.cert},
		SessionTicketsDisabled: true}
	if c.files.CA == "" {
		return l, nil
	}
	if l.ca, l.caExpires, err = parseAuthorities(c.files.CA, parts[2]); err != nil {
		return nil, err
	}
	l.srv.ClientCAs, l.srv.ClientAuth = l.ca, tls.VerifyClientCertIfGiven
	if c.files.Require {
		l.srv.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return l, nil
}

func parseAuthorities(path string, b []byte) (pool *x509.CertPool, expires time.Time, err error) {
	for pool = x509.NewCertPool(); ; {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			pool.AddCert(ca)
			if ca.NotAfter.After(expires) {
				expires = ca.NotAfter
			}
		}
	}
	if expires.IsZero() {
		return nil, expires, fmt.Errorf("%s has no certificate in PEM form; give those of the CA", path)
	}
	return pool, expires, nil
}

package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
)

var silent = slog.New(slog.DiscardHandler)

// tcpPair is a connection with buffers at both ends, as handshakes that fail need: both ends may
// write at once.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return a, b
}

// handshake does a handshake between two ends, and gives what each made of it and the name on the
// server's certificate.
func handshake(t *testing.T, srv, cli *tls.Config) (name string, serverErr, clientErr error) {
	a, b := tcpPair(t)
	done := make(chan error, 1)
	go func() {
		s := tls.Server(a, srv)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // TLS 1.3 tells a client of its certificate's refusal with the first bytes only
		}
		_ = a.Close()
		done <- err
	}()
	c := tls.Client(b, cli)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = io.ReadFull(c, make([]byte, 1))
	}
	if certs := c.ConnectionState().PeerCertificates; len(certs) > 0 {
		name = certs[0].Subject.CommonName
	}
	_ = b.Close()
	return name, <-done, clientErr
}

func TestHandshakes(t *testing.T) {
	dir, ours, theirs := t.TempDir(), certstest.New(t), certstest.New(t)
	cert, key := ours.Issue(t, dir, "server", certstest.Host("box.example"))
	ca := ours.Write(t, dir)
	open := func(f certs.Files) *certs.Certs {
		c, err := certs.Open(f, silent)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	as := func(a *certstest.Authority, name string, opts ...certstest.Option) *tls.Config {
		cert, key := a.Issue(t, dir, name, opts...)
		c := open(certs.Files{Cert: cert, Key: key, CA: ca}).Client()
		c.ServerName = "box.example"
		return c
	}
	plain := func() *tls.Config { return &tls.Config{RootCAs: ours.Pool(), ServerName: "box.example"} }
	elsewhere := plain()
	elsewhere.ServerName = "other.example"
	foreign := plain()
	foreign.RootCAs = theirs.Pool()
	old := plain()
	old.MaxVersion, old.MinVersion = tls.VersionTLS11, tls.VersionTLS10

	none := open(certs.Files{Cert: cert, Key: key})
	asked := open(certs.Files{Cert: cert, Key: key, CA: ca})
	required := open(certs.Files{Cert: cert, Key: key, CA: ca, Require: true})
	for _, c := range []struct {
		name string
		srv  *certs.Certs
		cli  *tls.Config
		ok   bool
	}{
		{"no certificate asked for", none, plain(), true},
		{"another host", none, elsewhere, false},
		{"another authority of the server", none, foreign, false},
		{"TLS 1.1", none, old, false},
		{"none shown where one may be", asked, plain(), true},
		{"one shown where it may be", asked, as(ours, "client"), true},
		{"a wrong one shown where it may be", asked, as(theirs, "stranger"), false},
		{"none shown where one must be", required, plain(), false},
		{"one shown where it must be", required, as(ours, "client"), true},
		{"a wrong one where it must be", required, as(theirs, "stranger"), false},
		{"an expired one", required, as(ours, "late", certstest.Expired()), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, serverErr, clientErr := handshake(t, c.srv.Server(), c.cli)
			if ok := serverErr == nil && clientErr == nil; ok != c.ok {
				t.Errorf("server: %v, client: %v", serverErr, clientErr)
			}
			if unknown := (x509.UnknownAuthorityError{}); strings.Contains(c.name, "a wrong one") && !errors.As(serverErr, &unknown) {
				t.Errorf("the server does not say that the authority is wrong: %v", serverErr)
			}
		})
	}
}

func TestReload(t *testing.T) {
	dir, a := t.TempDir(), certstest.New(t)
	cert, key := a.Issue(t, dir, "server", certstest.Host("box.example"))
	c, err := certs.Open(certs.Files{Cert: cert, Key: key}, silent)
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.Server() // made once, as a listener does
	look := func() *tls.Config { return &tls.Config{RootCAs: a.Pool(), ServerName: "box.example"} }
	serial := func() string {
		l, r := tcpPair(t)
		go func() {
			_ = tls.Server(l, cfg).Handshake()
			_ = l.Close()
		}()
		x := tls.Client(r, look())
		defer r.Close()
		if err := x.Handshake(); err != nil {
			t.Fatal(err)
		}
		return x.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if err := c.Reload(); err != nil || serial() != first {
		t.Fatal("files that did not change were reloaded", err)
	}
	a.Issue(t, dir, "server", certstest.Host("box.example"))
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	second := serial()
	if second == first {
		t.Fatal("the former certificate is still shown")
	}

	// Half a change, a missing file, garbage: the last good ones stay.
	other, _ := a.Issue(t, t.TempDir(), "server", certstest.Host("box.example"))
	good, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	half, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for i, spoil := range []func() error{
		func() error { return os.WriteFile(cert, half, 0o600) },
		func() error { return os.Remove(cert) },
		func() error { return os.WriteFile(cert, []byte("garbage"), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for range 3 { // counted once
			if err := c.Reload(); err == nil {
				t.Errorf("spoiled files %d were accepted", i)
			}
		}
		if c.Failures() != uint64(i+1) || serial() != second {
			t.Errorf("after spoiled files %d: %d failures, or another certificate", i, c.Failures())
		}
	}
	if err := os.WriteFile(cert, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Reload(); err != nil || serial() != second {
		t.Error("files that are good again", err)
	}
}

// TestReplacedOneByOne: a look between the writes of a certificate and its key is no failure. Files
// that do not match at the next look either are logged, once.
func TestReplacedOneByOne(t *testing.T) {
	dir, a := t.TempDir(), certstest.New(t)
	var log bytes.Buffer
	cert, key := a.Issue(t, dir, "server")
	ca := a.Write(t, dir)
	c, err := certs.Open(certs.Files{Cert: cert, Key: key, CA: ca}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		looksBetween int
		warnings     int
	}{{1, 0}, {3, 1}, {1, 0}} {
		log.Reset()
		failures := c.Failures()
		newCert, newKey := a.Issue(t, t.TempDir(), "server")
		if err := os.Rename(newCert, cert); err != nil {
			t.Fatal(err)
		}
		for range x.looksBetween {
			if err := c.Reload(); err == nil {
				t.Error("a certificate is used with another one's key")
			}
		}
		if err := os.Rename(newKey, key); err != nil {
			t.Fatal(err)
		}
		if err := c.Reload(); err != nil {
			t.Errorf("the pair is whole: %v", err)
		}
		warned, failed := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=ERROR")
		if warned != x.warnings || failed != 0 || c.Failures() != failures+uint64(x.warnings) ||
			!strings.Contains(log.String(), `msg="certificates reloaded" file=`+cert) || !strings.Contains(log.String(), "authority="+ca) {
			t.Errorf("after %d looks: %d failures, and the log\n%s", x.looksBetween, c.Failures()-failures, log.String())
		}
	}
}

func TestWrongFiles(t *testing.T) {
	dir, a := t.TempDir(), certstest.New(t)
	cert, key := a.Issue(t, dir, "one")
	_, otherKey := a.Issue(t, dir, "two")
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files certs.Files
		want  string
	}{
		{certs.Files{Cert: cert}, "both a certificate and its key"},
		{certs.Files{Key: key}, "both a certificate and its key"},
		{certs.Files{Cert: cert, Key: otherKey}, "does not match"},
		{certs.Files{Cert: junk, Key: key}, "failed to find any PEM data"},
		{certs.Files{Cert: cert, Key: key, Require: true}, "nothing says who signs them"},
		{certs.Files{Cert: cert, Key: key, CA: junk}, "no certificate in PEM form"},
	} {
		if _, err := certs.Open(c.files, silent); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.files, err)
		}
	}
	if _, err := certs.Open(certs.Files{Cert: filepath.Join(dir, "none"), Key: key}, silent); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestNotValidNow: a certificate that the other end will refuse is used, and the log says so.
func TestNotValidNow(t *testing.T) {
	dir, a := t.TempDir(), certstest.New(t)
	var log bytes.Buffer
	cert, key := a.Issue(t, dir, "server")
	c, err := certs.Open(certs.Files{Cert: cert, Key: key}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || log.Len() > 0 {
		t.Fatal(err, log.String())
	}
	a.Issue(t, dir, "server", certstest.Expired())
	if err := c.Reload(); err != nil || time.Until(c.Expires()) > 0 {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `msg="the certificate is not valid now, the other end will refuse it"`) {
		t.Errorf("the log is %s", log.String())
	}
	if err := c.Reload(); err != nil || strings.Count(log.String(), "not valid now") != 1 {
		t.Errorf("%v; one certificate is logged again and again: %s", err, log.String())
	}
	now := time.Now()
	if own, authorities := c.Invalid(now); !strings.HasPrefix(own, "expired at "+c.Expires().UTC().Format(time.RFC3339)) ||
		authorities != "" {
		t.Errorf("now it %q, its authorities %q", own, authorities)
	}
	if err := c.Check("--cert"); err == nil || !strings.HasPrefix(err.Error(), "the certificate of --cert expired at ") {
		t.Errorf("it says %v", err)
	}
	if own, _ := c.Invalid(c.Expires()); own != "" {
		t.Errorf("at its last moment it %q", own)
	}
	if own, _ := c.Invalid(now.AddDate(-1, 0, 0)); !strings.HasPrefix(own, "is not valid before ") {
		t.Errorf("a year before it %q", own)
	}
	if c, err = certs.Open(certs.Files{Cert: cert, Key: key, CA: a.Write(t, dir)}, silent); err != nil {
		t.Fatal(err)
	}
	if _, authorities := c.Invalid(now); authorities != "" {
		t.Errorf("the authorities %q", authorities)
	}
	if _, authorities := c.Invalid(now.AddDate(1, 0, 0)); !strings.HasPrefix(authorities, "expired at ") {
		t.Errorf("in a year the authorities %q", authorities)
	}
}

// TestExpiresInUse: a certificate that expires while it is used is logged then, once, and so is the next one.
func TestExpiresInUse(t *testing.T) {
	dir, a := t.TempDir(), certstest.New(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cert, key := a.Issue(t, dir, "server")
		c, err := certs.Open(certs.Files{Cert: cert, Key: key}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			for _, hours := range []time.Duration{23, 2, 1} {
				time.Sleep(hours * time.Hour)
				if err := c.Reload(); err != nil {
					t.Fatal(err)
				}
				want := round
				if time.Until(c.Expires()) < 0 {
					want++
				}
				if n := strings.Count(log.String(), "not valid now"); n != want {
					t.Errorf("round %d, %s before it expires: %d lines, want %d: %s", round, time.Until(c.Expires()), n, want, log.String())
				}
			}
			a.Issue(t, dir, "server")
		}
	})
}

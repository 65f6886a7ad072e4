package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/file"
)

// webConfig is a web server of this process, the console or the gateway for locks by HTTP, as a
// client of the cluster.
type webConfig struct {
	addr    string
	anyPort bool        // take another port of loopback if addr is taken
	ca      string      // file with the authorities of the instances, for an instance without a plain address
	hosts   []string    // names under which it is reached, beside loopback
	certs   certs.Files // for an instance, which follows them
	tls     *tls.Config // nil: no TLS
	client  client.Config
	log     *slog.Logger
}

// webServer is a web server that runs.
type webServer struct {
	url    string
	failed chan error // holds one
	close  func()
}

// listen listens for connections.
func (c *webConfig) listen(who string) (net.Listener, error) {
	l, err := net.Listen("tcp", c.addr)
	if err != nil && c.anyPort {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s on %s: %w; choose another address", who, c.addr, err)
	}
	return l, nil
}

func (c *webConfig) scheme() string {
	if c.tls != nil {
		return "https"
	}
	return "http"
}

// serve serves until close is called, which waits for as long as patience for answers.
func (c *webConfig) serve(srv *http.Server, l net.Listener, name string, patience time.Duration) *webServer {
	running := &webServer{url: c.scheme() + "://" + l.Addr().String(), failed: make(chan error, 1)}
	serve := func() error { return srv.Serve(l) }
	if c.tls != nil {
		srv.TLSConfig = withHTTP2(c.tls) // it has no limit of six streams for a browser
		serve = func() error { return srv.ServeTLS(l, "", "") }
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			running.failed <- fmt.Errorf("%s stopped by itself: %w", name, err)
		}
	}()
	running.close = func() {
		quit, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if srv.Shutdown(quit) != nil {
			_ = srv.Close()
		}
		<-served
	}
	return running
}

// webOf is the web server that serve's settings ask for with flag, console or http; its address is
// empty if they ask for none.
func webOf(v map[string]string, flag string, log *slog.Logger) (webConfig, error) {
	cfg := webConfig{ca: v[flag+"-ca"], hosts: settings.Split(v[flag+"-host"]), log: log}
	if v[flag] == server.Off {
		return cfg, nil
	}
	cfg.addr, cfg.certs = v[flag], certs.Files{Cert: v[flag+"-tls-cert"], Key: v[flag+"-tls-key"]}
	if _, _, err := net.SplitHostPort(cfg.addr); err != nil {
		return cfg, usagef("--%s %q is neither host:port nor off", flag, cfg.addr)
	}
	if err := checkCertificate(flag, cfg.certs); err != nil {
		return cfg, err
	}
	if v["listen"] == server.Off && v["listen-tls-require-client-cert"] == "true" {
		return cfg, usagef("--%s has no certificate to show to this instance: give --listen too, "+
			"or run `signalbox %[1]s` elsewhere with --tls-cert", flag)
	}
	for _, own := range []string{"advertise", "advertise-tls"} {
		if h, _, err := net.SplitHostPort(v[own]); err == nil {
			cfg.hosts = append(cfg.hosts, h)
		}
	}
	return cfg, nil
}

// devWeb is webOf for signalbox dev, where a web server is on unless it is turned off. If no address
// is chosen and the usual one is taken, it gets another.
func devWeb(v map[string]string, flag string, chosen bool, log *slog.Logger) (webConfig, error) {
	cfg, err := webOf(v, flag, log)
	cfg.anyPort = !chosen && os.Getenv("SIGNALBOX_"+strings.ToUpper(flag)) == ""
	return cfg, err
}

// checkCertificate refuses one of a certificate and its key.
func checkCertificate(flag string, files certs.Files) error {
	if (files.Cert == "") != (files.Key == "") {
		return usagef("--%s-tls-cert and --%[1]s-tls-key go together: give the certificate and its key, or neither", flag)
	}
	return nil
}

// connect makes the web server a client of an instance.
func (c *webConfig) connect(flag string, s *server.Server, own certs.Files) (err error) {
	c.client.Endpoints = []string{s.Addr()}
	if s.Addr() == "" {
		c.client.Endpoints = []string{s.TLSAddr()}
		c.client.Dial, err = instanceDialer(flag+"-ca", c.ca, own.Cert)
	}
	return err
}

// withHTTP2 has a listener offer HTTP/2.
func withHTTP2(secure *tls.Config) *tls.Config {
	current := secure.GetConfigForClient
	secure.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := current(h)
		if err == nil {
			now = now.Clone()
			now.NextProtos = []string{"h2", "http/1.1"}
		}
		return now, err
	}
	return secure
}

// instanceDialer is how the console, or the gateway, of an instance without a plain address
// connects. flag names ca. The instance's own certificate is known from its file; those of other
// instances have to be good for the host that is dialled, which the state of a connection does not
// have if it is an IP address.
func instanceDialer(flag, ca, own string) (func(ctx context.Context, address string) (net.Conn, error), error) {
	roots := func(context.Context) (*x509.CertPool, error) { return nil, nil } // the system's
	if ca != "" {
		roots = client.CAFile(ca)
	}
	if _, err := roots(context.Background()); err != nil {
		return nil, usagef("cannot read --%s: %v", flag, err)
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		trusted, err := roots(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot read --%s: %w", flag, err)
		}
		raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		host = cmp.Or(host, "localhost")
		conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host,
			InsecureSkipVerify: true, // VerifyConnection checks
			VerifyConnection:   func(now tls.ConnectionState) error { return checkInstance(now, own, trusted, host) }})
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to the instance at %s by TLS: %w", address, err)
		}
		return conn, nil
	}, nil
}

// checkInstance reports whether a certificate is the one in the file own, or is good for a host.
func checkInstance(now tls.ConnectionState, own string, roots *x509.CertPool, host string) error {
	leaf := now.PeerCertificates[0]
	if b, err := file.Read(own, maxPEM); err == nil {
		if block, _ := pem.Decode(b); block != nil && bytes.Equal(block.Bytes, leaf.Raw) {
			return nil
		}
	}
	opts := x509.VerifyOptions{Roots: roots, DNSName: host, Intermediates: x509.NewCertPool()}
	for _, x := range now.PeerCertificates[1:] {
		opts.Intermediates.AddCert(x)
	}
	_, err := leaf.Verify(opts)
	return err
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
)

// defaultConsole is the default address of the console.
const defaultConsole = "127.0.0.1:7073"

func consoleCmd(a *app) *cobra.Command {
	c := command("console", "Serve web pages that show who holds what, who waits and why",
		`Serve web pages that show the cluster: instances, shards and plan; nodes, semaphores with their
owners and queues, sessions, rollouts, processes, and the audit logs. The pages are live. Ctrl-C
stops it.

The console is a client: it sees and does what your credentials allow. With a token or a client
certificate it prints a link that works once; without the link its pages are closed. It listens on
loopback only. For a console that others reach, with a login of their own, see --console of
"signalbox serve". If no address is chosen and the usual port is taken, it gets another one.`)
	c.Example = `  signalbox console
  signalbox console --endpoints db-1:7070,db-2:7070 --listen 127.0.0.1:8000`
	listen := c.Flags().String("listen", defaultConsole, "Loopback address of the console.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, _ []string) error {
		host, _, err := net.SplitHostPort(*listen)
		if err != nil {
			return usagef("--listen %q is not host:port", *listen)
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usagef("--listen %q is not on loopback: other machines would get your rights; use --console of signalbox serve, where people log in", *listen)
		}
		cfg := consoleConfig{addr: *listen, anyPort: !cmd.Flags().Changed("listen"), client: inv.cfg}
		if cfg.client.GetToken != nil || cfg.client.TLS != nil && cfg.client.TLS.GetClientCertificate != nil {
			var b [24]byte
			_, _ = rand.Read(b[:]) // it never fails
			cfg.secret = base64.RawURLEncoding.EncodeToString(b[:])
		}
		running, err := startConsole(cfg)
		if err != nil {
			return err
		}
		defer running.close()
		if cfg.secret == "" {
			fmt.Fprintf(a.reports, "The console is on %s\n", running.url)
		} else {
			fmt.Fprintf(a.reports,
				"The console is on %s\nThis link opens it once, with your credentials: %s/enter?secret=%s\n",
				running.url, running.url, cfg.secret)
		}
		select {
		case <-inv.longCtx.Done():
			return nil
		case err := <-running.failed:
			return err
		}
	})
	settings.AddFlags(c.Flags(), settings.Client, "endpoints", "node", "timeout", "cluster", "token-file", "tls",
		"tls-ca", "tls-cert",
		"tls-key", "tls-server-name", "context", "client-config")
	return c
}

// consoleConfig is a console of this process.
type consoleConfig struct {
	addr    string
	anyPort bool        // take another port of loopback if addr is taken
	ca      string      // file with the authorities of the instances, for an instance without a plain address
	hosts   []string    // names under which people reach it, beside loopback
	certs   certs.Files // for an instance, which follows them
	tls     *tls.Config // nil: no TLS
	client  client.Config
	secret  string
	log     *slog.Logger
}

// runningConsole is a console that is served.
type runningConsole struct {
	url    string
	failed chan error // holds one
	close  func()
}

func startConsole(cfg consoleConfig) (*runningConsole, error) {
	cfg.log = cmp.Or(cfg.log, slog.New(slog.DiscardHandler))
	secure := cfg.tls
	if secure != nil {
		secure = withHTTP2(secure) // it has no limit of six streams for a browser
	}
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil && cfg.anyPort {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the console on %s: %w; choose another address", cfg.addr, err)
	}
	addr := l.Addr().(*net.TCPAddr)
	if h, _, err := net.SplitHostPort(cfg.addr); err == nil && !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		cfg.hosts = append(cfg.hosts, h)
	}
	c, err := console.New(console.Config{
		Client: cfg.client, Secret: cfg.secret, Hosts: cfg.hosts, CookieName: fmt.Sprintf("signalbox-%d",
			addr.Port), Secure: secure != nil, Log: cfg.log,
	})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	srv := console.Server(c, cfg.log)
	srv.TLSConfig = secure
	running := &runningConsole{url: "http://" + addr.String(), failed: make(chan error, 1)}
	if addr.IP.IsUnspecified() {
		running.url = fmt.Sprintf("http://localhost:%d", addr.Port)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		var err error
		if secure != nil {
			err = srv.ServeTLS(console.LimitListener(l), "", "")
		} else {
			err = srv.Serve(console.LimitListener(l))
		}
		if !errors.Is(err, http.ErrServerClosed) {
			running.failed <- fmt.Errorf("the console stopped by itself: %w", err)
		}
	}()
	if secure != nil {
		running.url = "https" + running.url[len("http"):]
	}
	running.close = func() {
		c.Close()
		quit, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(quit) != nil {
			_ = srv.Close()
		}
		<-served
	}
	return running, nil
}

// consoleOf is the console that serve's settings ask for; its address is empty if they ask for
// none.
func consoleOf(v map[string]string, log *slog.Logger) (consoleConfig, error) {
	cfg := consoleConfig{ca: v["console-ca"], hosts: settings.Split(v["console-host"]), log: log}
	if v["console"] == server.Off {
		return cfg, nil
	}
	cfg.addr, cfg.certs = v["console"], certs.Files{Cert: v["console-tls-cert"], Key: v["console-tls-key"]}
	if _, _, err := net.SplitHostPort(cfg.addr); err != nil {
		return cfg, usagef("--console %q is neither host:port nor off", cfg.addr)
	}
	if (cfg.certs.Cert == "") != (cfg.certs.Key == "") {
		return cfg, usagef("--console-tls-cert and --console-tls-key go together: give the certificate and its key, or neither")
	}
	if v["listen"] == server.Off && v["listen-tls-require-client-cert"] == "true" {
		return cfg, usagef(
			"--console has no certificate to show to this instance: give --listen too, or run `signalbox console` elsewhere with --tls-cert")
	}
	for _, flag := range []string{"advertise", "advertise-tls"} {
		if h, _, err := net.SplitHostPort(v[flag]); err == nil {
			cfg.hosts = append(cfg.hosts, h)
		}
	}
	return cfg, nil
}

// devConsole is the console of signalbox dev: on unless it is turned off. If no address is chosen
// and the usual one is taken, it gets another.
func devConsole(v map[string]string, chosen bool, log *slog.Logger) (consoleConfig, error) {
	cfg, err := consoleOf(v, log)
	cfg.anyPort = !chosen && os.Getenv("SIGNALBOX_CONSOLE") == ""
	return cfg, err
}

// serveConsole starts the console of an instance, as a client of that instance.
func serveConsole(cfg consoleConfig, s *server.Server, own certs.Files) (_ *runningConsole, err error) {
	cfg.client.Endpoints, cfg.tls = []string{s.Addr()}, s.ConsoleTLS()
	if s.Addr() == "" {
		cfg.client.Endpoints = []string{s.TLSAddr()}
		if cfg.client.Dial, err = instanceDialer("console-ca", cfg.ca, own.Cert); err != nil {
			return nil, err
		}
	}
	return startConsole(cfg)
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

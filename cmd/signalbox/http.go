package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/admin"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/httpapi"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/metrics"
)

// defaultHTTP is the default address of locks by HTTP.
const defaultHTTP = "127.0.0.1:7074"

// httpStopTime is how long a stop waits for the answers to requests that wait.
const httpStopTime = 3 * time.Second

func httpCmd(a *app) *cobra.Command {
	c := command("http", "Serve locks by HTTP, for programs without an SDK",
		`Serve locks by HTTP, for programs without an SDK: scripts, CI jobs, any language. server/httpapi/README.md
has the requests. SIGTERM and Ctrl-C stop it; sessions of its callers go on at another gateway.

It has no rights of its own: each caller shows its own token. Over other than loopback, give a
certificate: tokens can be read on the way otherwise.`)
	c.Example = `  signalbox http
  signalbox http --endpoints db-1:7070,db-2:7070 --listen :7074 --http-tls-cert web.pem --http-tls-key web.key`
	f := c.Flags()
	listen := f.String("listen", defaultHTTP, "Address on which callers connect.")
	hosts := f.StringSlice("http-host", nil,
		"Names, without ports, under which callers reach it, separated by commas or in several "+
			"flags. Loopback and its IP addresses need not be listed; a request for any other name is refused.")
	cert := f.String("http-tls-cert", "",
		"PEM file with its certificate and the chain; with it TLS and HTTP/2 are served.")
	key := f.String("http-tls-key", "",
		"File with the private key of --http-tls-cert. Changed files are loaded within seconds, or at SIGHUP.")
	operators := f.String("admin", server.Off, "Address for operators, with metrics, health and profiles; or off.")
	operatorsHosts := f.StringSlice("admin-host", nil,
		"Names, without ports, under which --admin is reached, separated by commas or in several flags. "+
			"IP addresses and the host name need not be listed; a request for any other name is refused.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, _ []string) error {
		if _, _, err := net.SplitHostPort(*listen); err != nil {
			return usagef("--listen %q is not host:port", *listen)
		}
		if (*cert == "") != (*key == "") {
			return usagef("--http-tls-cert and --http-tls-key go together: give the certificate and its key, or neither")
		}
		if inv.cfg.GetToken != nil || len(inv.cfg.Token) > 0 {
			return usagef("a token is set, and signalbox http has none: unset the variable or leave the context's; each caller shows its own")
		}
		log, err := logging.New(a.stderr, "info", "text")
		if err != nil {
			return err
		}
		cfg := httpConfig{addr: *listen, hosts: *hosts, client: inv.cfg, log: log.Logger(),
			tokenRequired: inv.cfg.TLS != nil && inv.cfg.TLS.GetClientCertificate != nil}
		var ready func() error
		if *cert != "" {
			followed, err := certs.Open(certs.Files{Cert: *cert, Key: *key}, cfg.log)
			if err != nil {
				return usagef("TLS of callers: %v", err)
			}
			hangups := notifyHangup()
			defer signal.Stop(hangups)
			defer onHangup(hangups, func() { _ = followed.Reload() })() // it logs what stays wrong
			go followed.Watch(inv.longCtx)
			cfg.tls, ready = followed.Server(), func() error { return followed.Check("--http-tls-cert") }
		}
		running, err := startHTTP(cfg)
		if err != nil {
			return err
		}
		defer running.close()
		go tuneGC(inv.longCtx)
		if *operators != server.Off {
			l, err := net.Listen("tcp", *operators)
			if err != nil {
				return fmt.Errorf("listen for operators on --admin: %w; choose another address", err)
			}
			page := func(w io.Writer) { metrics.WritePage(w, running.writeMetrics) }
			srv := admin.Server(admin.Handler(admin.Config{Hosts: *operatorsHosts, Metrics: page, Ready: ready}), cfg.log)
			defer srv.Close()
			go func() { _ = srv.Serve(admin.LimitListener(l, admin.MaxConnections)) }()
			fmt.Fprintf(a.reports, "Metrics are on http://%s/metrics\n", l.Addr())
		}
		fmt.Fprintf(a.reports, "Locks are served on %s\n", running.url)
		select {
		case <-inv.longCtx.Done():
			return nil
		case err := <-running.failed:
			return err
		}
	})
	settings.AddFlags(f, settings.Client, "endpoints", "timeout", "cluster", "tls", "tls-ca", "tls-cert", "tls-key",
		"tls-server-name", "context",
		"client-config")
	return c
}

// httpConfig is a gateway of this process for locks by HTTP.
type httpConfig struct {
	addr          string
	anyPort       bool        // take another port of loopback if addr is taken
	ca            string      // file with the authorities of the instances, for an instance without a plain address
	hosts         []string    // names under which callers reach it, beside loopback
	certs         certs.Files // for an instance, which follows them
	tls           *tls.Config // nil: no TLS
	client        client.Config
	tokenRequired bool
	log           *slog.Logger
}

// runningHTTP is a gateway that is served.
type runningHTTP struct {
	url    string
	failed chan error // holds one
	stop   func()     // waits are answered, and requests refused
	close  func()

	writeMetrics func(*metrics.Page)
}

func startHTTP(cfg httpConfig) (*runningHTTP, error) {
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil && cfg.anyPort {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("listen for callers on %s: %w; choose another address", cfg.addr, err)
	}
	api, err := httpapi.New(httpapi.Config{Client: cfg.client, Hosts: cfg.hosts, Log: cfg.log,
		TokenRequired: cfg.tokenRequired})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	running := &runningHTTP{url: "http://" + l.Addr().String(), failed: make(chan error, 1), stop: api.Stop,
		writeMetrics: api.WriteMetrics}
	secure := cfg.tls
	if secure != nil {
		secure = withHTTP2(secure)
		running.url = "https" + running.url[len("http"):]
	} else if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		cfg.log.Warn("callers' tokens can be read on the way, because there is no TLS", "address", l.Addr().String())
	}
	srv := httpapi.Server(api, cfg.log)
	srv.TLSConfig = secure
	served := make(chan struct{})
	go func() {
		defer close(served)
		var err error
		if secure != nil {
			err = srv.ServeTLS(httpapi.LimitListener(l), "", "")
		} else {
			err = srv.Serve(httpapi.LimitListener(l))
		}
		if !errors.Is(err, http.ErrServerClosed) {
			running.failed <- fmt.Errorf("the gateway for HTTP stopped by itself: %w", err)
		}
	}()
	running.close = func() {
		api.Stop()
		quit, cancel := context.WithTimeout(context.Background(), httpStopTime)
		defer cancel()
		if srv.Shutdown(quit) != nil {
			_ = srv.Close()
		}
		<-served
		api.Close()
	}
	return running, nil
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

// httpOf is the gateway that serve's settings ask for; its address is empty if they ask for none.
func httpOf(v map[string]string, log *slog.Logger) (httpConfig, error) {
	cfg := httpConfig{ca: v["http-ca"], hosts: settings.Split(v["http-host"]), log: log}
	if v["http"] == server.Off {
		return cfg, nil
	}
	cfg.addr, cfg.certs = v["http"], certs.Files{Cert: v["http-tls-cert"], Key: v["http-tls-key"]}
	if _, _, err := net.SplitHostPort(cfg.addr); err != nil {
		return cfg, usagef("--http %q is neither host:port nor off", cfg.addr)
	}
	if (cfg.certs.Cert == "") != (cfg.certs.Key == "") {
		return cfg, usagef("--http-tls-cert and --http-tls-key go together: give the certificate and its key, or neither")
	}
	if v["listen"] == server.Off && v["listen-tls-require-client-cert"] == "true" {
		return cfg, usagef(
			"--http has no certificate to show to this instance: give --listen too, or run `signalbox http` elsewhere with --tls-cert")
	}
	for _, flag := range []string{"advertise", "advertise-tls"} {
		if h, _, err := net.SplitHostPort(v[flag]); err == nil {
			cfg.hosts = append(cfg.hosts, h)
		}
	}
	return cfg, nil
}

// devHTTP is the gateway of signalbox dev: on unless it is turned off. If no address is chosen and
// the usual one is taken, it gets another.
func devHTTP(v map[string]string, chosen bool, log *slog.Logger) (httpConfig, error) {
	cfg, err := httpOf(v, log)
	cfg.anyPort = !chosen && os.Getenv("SIGNALBOX_HTTP") == ""
	return cfg, err
}

// serveHTTP starts the gateway of an instance, as a client of that instance.
func serveHTTP(cfg httpConfig, s *server.Server, own certs.Files) (_ *runningHTTP, err error) {
	cfg.client.Endpoints, cfg.tls = []string{s.Addr()}, s.HTTPTLS()
	if s.Addr() == "" {
		cfg.client.Endpoints = []string{s.TLSAddr()}
		if cfg.client.Dial, err = instanceDialer("http-ca", cfg.ca, own.Cert); err != nil {
			return nil, err
		}
	}
	running, err := startHTTP(cfg)
	if err == nil {
		s.CollectMetrics(running.writeMetrics)
	}
	return running, err
}

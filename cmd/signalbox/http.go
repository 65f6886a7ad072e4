package main

import (
	"fmt"
	"io"
	"net"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

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
		files := certs.Files{Cert: *cert, Key: *key}
		if err := checkCertificate("http", files); err != nil {
			return err
		}
		if inv.cfg.GetToken != nil || len(inv.cfg.Token) > 0 {
			return usagef("a token is set, and signalbox http has none: unset the variable or leave the context's; each caller shows its own")
		}
		log, err := logging.New(a.stderr, "info", "text")
		if err != nil {
			return err
		}
		cfg := httpConfig{webConfig: webConfig{addr: *listen, hosts: *hosts, client: inv.cfg, log: log.Logger()},
			tokenRequired: inv.cfg.TLS != nil && inv.cfg.TLS.GetClientCertificate != nil}
		var ready func() error
		if *cert != "" {
			followed, err := certs.Open(files, cfg.log)
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
			go func() { _ = srv.Serve(admin.LimitListener(l)) }()
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
	webConfig
	tokenRequired bool
}

// runningHTTP is a gateway that is served.
type runningHTTP struct {
	*webServer
	stop         func() // waits are answered, and requests refused
	writeMetrics func(*metrics.Page)
}

func startHTTP(cfg httpConfig) (*runningHTTP, error) {
	l, err := cfg.listen("callers")
	if err != nil {
		return nil, err
	}
	api, err := httpapi.New(httpapi.Config{Client: cfg.client, Hosts: cfg.hosts, Log: cfg.log,
		TokenRequired: cfg.tokenRequired})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	if cfg.tls == nil && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		cfg.log.Warn("callers' tokens can be read on the way, because there is no TLS", "address", l.Addr().String())
	}
	web := cfg.serve(httpapi.Server(api, cfg.log), httpapi.LimitListener(l), "the gateway for HTTP", httpStopTime)
	end := web.close
	web.close = func() {
		api.Stop()
		end()
		api.Close()
	}
	return &runningHTTP{web, api.Stop, api.WriteMetrics}, nil
}

// serveHTTP starts the gateway of an instance, as a client of that instance.
func serveHTTP(cfg webConfig, s *server.Server, own certs.Files) (*runningHTTP, error) {
	cfg.tls = s.HTTPTLS()
	if err := cfg.connect("http", s, own); err != nil {
		return nil, err
	}
	running, err := startHTTP(httpConfig{webConfig: cfg})
	if err == nil {
		s.CollectMetrics(running.writeMetrics)
	}
	return running, err
}

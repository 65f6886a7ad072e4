package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/httpapi"
	"github.com/signalbox-dev/signalbox/server/logging"
)

// defaultHTTP is where locks are served by HTTP if nobody gives an address.
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
	hosts := f.StringSlice("http-host", nil, "Names, without ports, under which callers reach it, separated by commas or in several "+
		"flags. Loopback and its IP addresses need not be listed; a request for any other name is refused.")
	cert := f.String("http-tls-cert", "", "PEM file with its certificate and the chain; with it TLS and HTTP/2 are served.")
	key := f.String("http-tls-key", "", "File with the private key of --http-tls-cert.")
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
		return serveHTTP(inv, a, *listen, certs.Files{Cert: *cert, Key: *key}, *hosts)
	})
	addFlags(f, scopeClient, "endpoints", "timeout", "cluster", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "context",
		"client-config")
	return c
}

// serveHTTP serves until the invocation ends.
func serveHTTP(inv *invocation, a *app, listen string, files certs.Files, hosts []string) error {
	log, err := logging.New(a.stderr, "info", "text")
	if err != nil {
		return err
	}
	var secure *tls.Config
	if files.Cert != "" {
		current, err := certs.Open(files, log.Logger())
		if err != nil {
			return usagef("TLS of callers: %v", err)
		}
		secure = current.Server()
		base := secure.GetConfigForClient
		secure.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := base(h)
			if err == nil {
				now = now.Clone()
				now.NextProtos = []string{"h2", "http/1.1"}
			}
			return now, err
		}
	}
	api, err := httpapi.New(httpapi.Config{Client: inv.cfg, Hosts: hosts, Log: log.Logger(),
		TokenRequired: inv.cfg.TLS != nil && inv.cfg.TLS.GetClientCertificate != nil})
	if err != nil {
		return err
	}
	defer api.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for callers on %s: %w; choose another address", listen, err)
	}
	addr := l.Addr().(*net.TCPAddr)
	scheme := "http"
	if secure != nil {
		scheme = "https"
	} else if !addr.IP.IsLoopback() {
		log.Logger().Warn("callers' tokens can be read on the way, because there is no TLS", "address", addr.String())
	}
	fmt.Fprintf(a.reports, "Locks are served on %s://%s\n", scheme, cmp.Or(addr.String(), listen))
	srv := httpapi.Server(api, log.Logger())
	srv.TLSConfig = secure
	failed := make(chan error, 1)
	go func() {
		if secure != nil {
			failed <- srv.ServeTLS(httpapi.LimitListener(l), "", "")
		} else {
			failed <- srv.Serve(httpapi.LimitListener(l))
		}
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("the gateway stopped by itself: %w", err)
	case <-inv.longCtx.Done():
	}
	api.Stop() // waits are answered
	quit, cancel := context.WithTimeout(context.Background(), httpStopTime)
	defer cancel()
	if srv.Shutdown(quit) != nil {
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

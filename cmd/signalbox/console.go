package main

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/console"
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
		cfg := consoleConfig{webConfig: webConfig{addr: *listen, anyPort: !cmd.Flags().Changed("listen"), client: inv.cfg}}
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
	webConfig
	secret string
}

func startConsole(cfg consoleConfig) (*webServer, error) {
	cfg.log = cmp.Or(cfg.log, slog.New(slog.DiscardHandler))
	l, err := cfg.listen("the console")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	if h, _, err := net.SplitHostPort(cfg.addr); err == nil && !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
		cfg.hosts = append(cfg.hosts, h)
	}
	c, err := console.New(console.Config{
		Client: cfg.client, Secret: cfg.secret, Hosts: cfg.hosts, CookieName: fmt.Sprintf("signalbox-%d",
			addr.Port), Secure: cfg.tls != nil, Log: cfg.log,
	})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	running := cfg.serve(console.Server(c, cfg.log), console.LimitListener(l), "the console", time.Second)
	if addr.IP.IsUnspecified() {
		running.url = fmt.Sprintf("%s://localhost:%d", cfg.scheme(), addr.Port)
	}
	end := running.close
	running.close = func() {
		c.Close()
		end()
	}
	return running, nil
}

// serveConsole starts the console of an instance, as a client of that instance.
func serveConsole(cfg webConfig, s *server.Server, own certs.Files) (*webServer, error) {
	cfg.tls = s.ConsoleTLS()
	if err := cfg.connect("console", s, own); err != nil {
		return nil, err
	}
	return startConsole(consoleConfig{webConfig: cfg})
}

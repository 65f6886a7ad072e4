package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

func serveCmd(a *app) *cobra.Command {
	c := command("serve", "Run an instance",
		`Run an instance. SIGTERM and SIGINT stop it gracefully: its leaderships and its vote move to other
instances, its log is completed, and clients are notified. With --stop-wait it first serves on until
the cluster can do without it. Without flags it is a working single
instance on a local folder.

An instance without --peer creates its own cluster. Others may join at any time: give them --peer
with its --raft address, and --join-token-file with a copy of the file join-token in its data
folder. The folder keeps the raft address for good. If other machines are to join later, set
--raft-advertise to an address that they can reach.

With --listen-tls, --listen-tls-cert and --listen-tls-key clients may use TLS; with --listen off
they must. Certificates are read again when their files change, and at SIGHUP.

At SIGHUP an instance with --config also reads log-level and log-format again from that file; what a
flag or the environment sets stays. The other settings need a restart.

Give --existing to an instance that has been made, for one in a script or a unit: with a wrong folder,
or one whose restore failed, it would otherwise make a new, empty cluster.

With --auth a new cluster requires credentials from the start; see "signalbox auth --help".

Flags take precedence over the environment, the environment over the --config file, and the file
over defaults.`)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if v, err := settings.Resolve(cmd, settings.Serve, nil, false); err == nil && rereads(v) {
			a.hangups = notifyHangup() // before files are read, which may take long
			defer signal.Stop(a.hangups)
		}
		v, cfg, err := readServer(a, cmd)
		if err != nil {
			return err
		}
		var beside faces
		if beside.pages, err = webOf(v, "console", cfg.Logger); err != nil {
			return err
		}
		if beside.locks, err = webOf(v, "http", cfg.Logger); err != nil {
			return err
		}
		var tour func(addr, admin, console string)
		if v["tour"] == "true" {
			tour = func(addr, admin, console string) {
				writeTour(a.reports, invoked(), addr, admin, console, "Ctrl-C stops it; its data stays in "+cfg.DataDir+".")
			}
		}
		return serveUntilDone(cmd.Context(), a, cfg, beside, tour)
	}
	settings.AddFlags(c.Flags(), settings.Serve)
	return c
}

func devCmd(a *app) *cobra.Command {
	c := command("dev", "Run an instance on a temporary folder and print a short tour",
		`Run an instance on a temporary folder, and print a short tour. The folder is removed when the instance stops.

Its console and locks by HTTP are on. If no address is chosen for one and the usual port is taken, it
gets another one. Port 0 of an address is a free port; the tour has it. Of the settings of serve it takes
--listen, --raft, --admin, --console, --http, --shards, --log-level and --log-format, and no file.`)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		v, cfg, err := readServer(a, cmd)
		if err != nil {
			return err
		}
		var beside faces
		if beside.pages, err = devWeb(v, "console", cmd.Flags().Changed("console"), cfg.Logger); err != nil {
			return err
		}
		if beside.locks, err = devWeb(v, "http", cmd.Flags().Changed("http"), cfg.Logger); err != nil {
			return err
		}
		if cfg.Raft, err = freePort(cmd.Context(), cfg.Raft); err != nil {
			return err
		}
		if cfg.DataDir, err = os.MkdirTemp("", "signalbox-dev-"); err != nil {
			return fmt.Errorf("%w; name a folder for temporary files in TMPDIR", err)
		}
		defer os.RemoveAll(cfg.DataDir)
		return serveUntilDone(cmd.Context(), a, cfg, beside, func(addr, admin, console string) {
			writeTour(a.reports, invoked(), addr, admin, console, "Ctrl-C stops it, and removes its folder "+cfg.DataDir+".")
		})
	}
	settings.AddFlags(c.Flags(), settings.Serve, "listen", "raft", "admin", "console", "http", "shards", "log-level",
		"log-format")
	c.Flags().Lookup("console").DefValue = defaultConsole // the table has that of serve
	c.Flags().Lookup("http").DefValue = defaultHTTP
	return c
}

// freePort replaces port 0 of a raft address by a free port: an instance keeps its raft address, so
// a server wants it beforehand. The server refuses invalid addresses.
func freePort(ctx context.Context, address string) (string, error) {
	if _, port, err := net.SplitHostPort(address); err != nil || port != "0" {
		return address, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("find a free port for --raft: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// readServer reads the settings of an instance, and its configuration.
func readServer(a *app, cmd *cobra.Command) (v map[string]string, cfg server.Config, err error) {
	warnEnvironment(a, os.Environ())
	var file map[string]string
	if v, err = settings.Resolve(cmd, settings.Serve, nil, false); err == nil {
		file, err = settings.ReadServeFile(v["config"])
	}
	if err == nil {
		v, err = settings.Resolve(cmd, settings.Serve, file, false)
	}
	if err == nil {
		cfg, err = serverConfig(a, v)
	}
	if err == nil && v["config"] != "" {
		a.rereadLogging = func() error { return readLogging(a, cmd, v["config"]) }
	}
	return v, cfg, err
}

// rereads reports whether an instance reads or opens something again at SIGHUP, by its flags and
// variables. Otherwise SIGHUP stops it. Settings of a configuration file come with the file, which
// is read again itself.
func rereads(v map[string]string) bool {
	return v["config"] != "" || auditFile(v["audit"]) ||
		v["listen-tls-cert"] != "" || v["cluster-tls-cert"] != "" || v["console-tls-cert"] != "" ||
		v["http-tls-cert"] != ""
}

// auditFile reports whether the audit log is written to a file.
func auditFile(name string) bool { return name != "" && name != audit.Stderr }

// readLogging reads the log's level and format again. Flags and the environment stay as they were,
// so only the configuration file can change them.
func readLogging(a *app, cmd *cobra.Command, path string) error {
	file, err := settings.ReadServeFile(path)
	if err != nil {
		return err
	}
	v, err := settings.Resolve(cmd, settings.Serve, file, false)
	if err != nil {
		return err
	}
	return a.logging.Set(v["log-level"], v["log-format"])
}

// serverConfig turns settings into the server's configuration. Ranges are the server's to check.
func serverConfig(a *app, v map[string]string) (server.Config, error) {
	var cfg server.Config
	var err error
	if a.logging, err = logging.New(a.stderr, v["log-level"], v["log-format"]); err != nil {
		return cfg, usagef("%v", err)
	}
	for _, n := range []struct {
		flag     string
		to       *int
		min, max int
	}{
		{"shards", &cfg.Shards, 0, 64}, {"replication-factor", &cfg.ReplicationFactor, 1, 64},
		{"max-connections", &cfg.Limits.MaxConnections, 0, 1 << 24},
		{"max-connections-per-address", &cfg.Limits.MaxConnectionsPerAddress, 0, 1 << 24},
	} {
		x, err := strconv.Atoi(v[n.flag])
		if err != nil || x < n.min || x > n.max {
			return cfg, usagef("--%s %q is not a number from %d to %d", n.flag, v[n.flag], n.min, n.max)
		}
		*n.to = x
	}
	var ok bool
	if cfg.Limits.MaxMemory, ok = parseSize(v["max-memory"]); !ok {
		return cfg, usagef("--max-memory %q is not a size; give a number of bytes, or one with KiB, MiB, GiB or TiB",
			v["max-memory"])
	}
	cfg.Auth, cfg.Existing = v["auth"] == "true", v["existing"] == "true"
	if path := v["admin-token-file"]; path != "" {
		if cfg.AdminToken, err = readSecret(path); err != nil {
			return cfg, usagef("cannot read --admin-token-file: %v", err)
		}
	}
	cfg.MetricsNames = v["metrics-names"]
	if v["data"] == "" { // as of a variable that is not set: the default folder is another one
		return cfg, usagef("--data is empty; name the folder, or leave the flag out for ./signalbox-data")
	}
	cfg.DataDir, cfg.Listen, cfg.Raft, cfg.Admin = v["data"], v["listen"], v["raft"], v["admin"]
	cfg.AdminHosts = settings.Split(v["admin-host"])
	cfg.TLSListen, cfg.TLSAdvertise = v["listen-tls"], v["advertise-tls"]
	cfg.TLS = certs.Files{Cert: v["listen-tls-cert"], Key: v["listen-tls-key"], CA: v["listen-tls-client-ca"],
		Require: v["listen-tls-require-client-cert"] == "true"}
	cfg.ClusterTLS = certs.Files{Cert: v["cluster-tls-cert"], Key: v["cluster-tls-key"], CA: v["cluster-tls-ca"]}
	cfg.Logger, cfg.LogDropped = a.logging.Logger(), a.logging.Dropped
	return cfg, clusterConfig(v, &cfg)
}

// minRTT is the least that serve takes; the server itself takes less, for tests.
const minRTT = 10 * time.Millisecond

// clusterConfig reads the settings that concern other instances.
func clusterConfig(v map[string]string, cfg *server.Config) error {
	cfg.Cluster, cfg.Name, cfg.Tier, cfg.Audit = v["cluster"], v["instance"], v["tier"], v["audit"]
	cfg.Advertise, cfg.RaftAdvertise = v["advertise"], v["raft-advertise"]
	cfg.Peers = settings.Split(v["peer"])
	for _, item := range settings.Split(v["failure-domain"]) {
		key, value, ok := strings.Cut(item, "=")
		if _, twice := cfg.FailureDomain[key]; !ok || twice {
			return usagef("--failure-domain %q: write it as KEY=VALUE,KEY=VALUE, each key once", v["failure-domain"])
		}
		if cfg.FailureDomain == nil {
			cfg.FailureDomain = map[string]string{}
		}
		cfg.FailureDomain[key] = value
	}
	for _, item := range settings.Split(v["tiers"]) {
		t, err := server.ParseTier(item)
		if err != nil {
			return usagef("--tiers: %v", err)
		}
		cfg.Tiers = append(cfg.Tiers, t)
	}
	var err error
	for _, d := range []struct {
		flag string
		to   *time.Duration
	}{{"offline-after", &cfg.OfflineAfter}, {"shutdown-timeout", &cfg.ShutdownTimeout}, {"raft-rtt", &cfg.RTT}} {
		if *d.to, err = duration(d.flag, v[d.flag]); err != nil {
			return err
		}
		if *d.to <= 0 {
			return usagef("--%s %s is not above 0; give a duration like 5s", d.flag, v[d.flag])
		}
	}
	if cfg.StopWait, err = duration("stop-wait", v["stop-wait"]); err != nil {
		return err
	}
	if cfg.RTT < minRTT {
		return usagef("--raft-rtt %s is below %s, at which every late write to a disk is an election; choose %[2]s to 1s",
			cfg.RTT, minRTT)
	}
	cfg.JoinToken = v["join-token"]
	if path := v["join-token-file"]; path != "" {
		if cfg.JoinToken != "" {
			return usagef("a join token is given in two ways; keep --join-token-file, or the token itself")
		}
		cfg.JoinTokenFile = path
		if cfg.JoinToken, err = readSecret(path); err != nil {
			return usagef("cannot read --join-token-file: %v", err)
		}
	}
	return nil
}

const maxSecretFile = 1 << 16

// readSecret reads a secret without the blanks around it.
func readSecret(path string) (string, error) {
	b, err := file.Read(path, maxSecretFile)
	if err != nil {
		return "", err
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "", fmt.Errorf("%s is empty", path)
	}
	return string(b), nil
}

// faces are the services of a program beside its instance.
type faces struct {
	pages, locks webConfig
}

// serveUntilDone runs an instance, and its faces, until ctx ends or the instance fails. ready, if
// not nil, is called once it serves, with the console's address if there is one. The stop of an
// instance that serves begins after --stop-wait at the latest.
func serveUntilDone(ctx context.Context, a *app, cfg server.Config, beside faces,
	ready func(addr, admin, console string)) error {
	quiet, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stopping, stopNow := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNow()
	waitsNot := context.AfterFunc(ctx, stopNow)
	defer endOverdue(stopping, quiet, cfg.ShutdownTimeout, func() {
		a.note("signalbox: the instance does not stop, and is ended; all that was answered is on disk\n")
		os.Exit(exitError)
	})()
	datafolder.Private()
	slog.SetDefault(cfg.Logger) // libraries log too, some by package log
	go tuneGC(quiet)
	goroutine.DefaultWorkerPool.Release() // gnet's, which the server does not use: its clock ticks twice a second
	defer limitMemory(cfg.Limits.MaxMemory)()
	cfg.ConsoleTLS, cfg.HTTPTLS = beside.pages.certs, beside.locks.certs
	s, err := server.Start(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it was up
		}
		return err
	}
	if a.hangups != nil {
		defer onHangup(a.hangups, func() {
			if a.rereadLogging != nil {
				if err := a.rereadLogging(); err != nil {
					cfg.Logger.Error("log level and format stay as they were", "error", err)
				} else {
					cfg.Logger.Info("log level and format read again")
				}
			}
			if auditFile(cfg.Audit) {
				if err := s.ReopenAudit(); err != nil {
					cfg.Logger.Error("audit log is not reopened, will be retried", "error", err)
				}
			}
			_ = s.ReloadCertificates() // it goes on trying, and logs what stays wrong
		})()
	}
	address := ""
	if beside.pages.addr != "" {
		running, err := serveConsole(beside.pages, s, cfg.TLS)
		if err != nil {
			return errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
		}
		defer running.close()
		address = running.url
		cfg.Logger.Info("console is served", "url", address)
	}
	if beside.locks.addr != "" {
		running, err := serveHTTP(beside.locks, s, cfg.TLS)
		if err != nil {
			return errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
		}
		defer running.close()
		defer context.AfterFunc(stopping, running.stop)() // callers go on elsewhere while the instance stops
		cfg.Logger.Info("locks are served by HTTP", "url", running.url)
	}
	if waitsNot() { // nothing asked for the end so far
		defer context.AfterFunc(ctx, func() {
			defer stopNow()
			wait, cancel := context.WithCancel(quiet)
			defer cancel()
			defer received.onSecond(cancel)()
			s.AwaitNotNeeded(wait)
		})()
	}
	if ready != nil {
		ready(s.Addr(), s.AdminAddr(), address)
	}
	select {
	case <-stopping.Done():
		if err := s.Shutdown(context.WithoutCancel(ctx)); !errors.Is(err, server.ErrClosing) {
			return err
		}
		return nil // it is logged, and the end of the process closes the rest
	case <-s.Done():
		return fmt.Errorf("the instance stopped by itself: %w", s.Err())
	}
}

// endOverdue calls end if a stop, which begins when ctx ends, takes longer than its parts may take
// together: one of them hangs. The stop is over when stopped ends.
func endOverdue(ctx, stopped context.Context, limit time.Duration, end func()) (cancel func() bool) {
	return context.AfterFunc(ctx, func() {
		if beat.Sleep(stopped, 2*limit+5*time.Second) {
			end()
		}
	})
}

// invoked is how this process was called, for lines to paste.
func invoked() string {
	if len(os.Args) > 0 && strings.Contains(os.Args[0], "/") {
		return os.Args[0]
	}
	return "signalbox"
}

// writeTour says what to try first.
func writeTour(w io.Writer, exe, addr, admin, console, end string) {
	at := ""
	if addr != server.DefaultListen {
		at = "export SIGNALBOX_ENDPOINTS=" + addr + "\n  "
	}
	fmt.Fprintf(w, `signalbox is ready on %[2]s. In another terminal, paste:

  %[3]s%[1]s lock backup -- sh -c 'echo holding the lock with token $SIGNALBOX_TOKEN'
  %[1]s sem create printers --limit 3
  %[1]s sem acquire printers --count 2 -- %[1]s sem describe printers
  %[1]s service register api --data 10.0.0.1:80 -- %[1]s service ls api
  %[1]s config set flags on && %[1]s config get flags
`, exe, addr, at)
	if admin != "" {
		fmt.Fprintf(w, "  curl -s http://%s/readyz\n", admin)
	}
	if console != "" {
		fmt.Fprintf(w, "\nOpen %s to see who holds what, who waits and why.\n", console)
	}
	fmt.Fprintf(w, "\n%s\n", end)
}

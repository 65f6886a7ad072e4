// Command signalbox-ydb is the gateway for YDB clients: it serves YDB's coordination service over
// gRPC from a signalbox cluster, so that YDB's SDKs work with it unchanged.
//
// Run `signalbox-ydb --help` for its settings, and see README.md for a tour.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/admin"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/release"
)

// Exit codes, as those of signalbox.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	logging.CatchBrokenPipes()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run serves until ctx ends, and returns the process's exit code. What it prints waits for nobody
// who reads.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out, notes := logging.NewQueue(stdout), logging.NewQueue(stderr)
	defer func() {
		out.Flush(logging.FlushTimeout)
		notes.Flush(logging.FlushTimeout)
	}()
	v, err := readSettings(args, os.LookupEnv)
	switch {
	case errors.Is(err, errHelp):
		fmt.Fprint(out, help())
		return exitOK
	case errors.Is(err, errVersion):
		fmt.Fprintln(out, "signalbox-ydb "+release.Current().Version)
		return exitOK
	case err == nil:
		for _, name := range unknownVariables(os.Environ()) {
			fmt.Fprintf(notes, "signalbox-ydb: unknown variable %s in the environment is ignored\n", name)
		}
		err = serve(ctx, v, out, stderr)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(notes, "signalbox-ydb: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintln(notes, "  See signalbox-ydb --help.")
		return exitUsage
	}
	return exitError
}

// serve runs the gateway until ctx ends.
func serve(ctx context.Context, v values, stdout, stderr io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s, log, err := configure(ctx, v, stderr)
	if err != nil {
		return err
	}
	defer log.Flush(logging.FlushTimeout)
	slog.SetDefault(s.gateway.Logger) // libraries log too, some by package log
	l, err := net.Listen("tcp", v["listen"])
	if err != nil {
		return fmt.Errorf("listen on --listen: %w", err)
	}
	defer l.Close()
	if len(s.gateway.Advertise) == 0 {
		if s.gateway.Advertise, err = ownAddress(l.Addr()); err != nil {
			return err
		}
	}
	g, err := gateway.New(s.gateway)
	if err != nil {
		return &usageError{err.Error()}
	}
	if v["admin"] != off {
		l, err := net.Listen("tcp", v["admin"])
		if err != nil {
			return fmt.Errorf("listen on --admin: %w", err)
		}
		pages := admin.Config{Hosts: splitList(v["admin-host"]), Metrics: g.Metrics().Write, Ready: s.ready}
		defer serveAdmin(l, pages, s.gateway.Logger).Close()
	}
	failed := make(chan error, 1)
	go func() { failed <- g.Serve(l) }()
	fmt.Fprintf(stdout, "signalbox-ydb serves database %s on %s, cluster %s\n", v["database"], l.Addr(), v["endpoints"])
	select {
	case <-ctx.Done():
		s.gateway.Logger.Info("shutting down")
		g.Close()
		return nil
	case err := <-failed:
		g.Close()
		return err
	}
}

// ownAddress returns the address for clients when none is advertised: the listener's, or the host's
// name when it listens on all interfaces.
func ownAddress(listening net.Addr) ([]string, error) {
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("no address is advertised, and the host has no name: %w; give --advertise", err)
		}
	}
	return []string{net.JoinHostPort(host, port)}, nil
}

// off is the value of --admin for none.
const off = "off"

// serveAdmin serves metrics, health and profiles, within the limits of an instance's address for
// operators. Close ends it.
func serveAdmin(l net.Listener, cfg admin.Config, log *slog.Logger) io.Closer {
	s := admin.Server(admin.Handler(cfg), log)
	go func() { _ = s.Serve(admin.LimitListener(l)) }()
	return s
}

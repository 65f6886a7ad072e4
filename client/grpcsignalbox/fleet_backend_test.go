package grpcsignalbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// backendEnv makes the test binary a backend: KIND ADDRESS ZONE.
const backendEnv = "SIGNALBOX_TEST_BACKEND"

// fleetGrace is how long a backend drains.
const fleetGrace = 500 * time.Millisecond

// services by kind.
var services = map[string]string{"grpc": "greeter", "http": "web"}

// runBackend serves, as a member of a service, until SIGTERM: then it drains, leaves, and ends what
// is in progress.
func runBackend(text string) error {
	f := strings.Fields(text)
	kind, addr, zone := f[0], f[1], f[2]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	end := func() {}
	switch kind {
	case "grpc":
		s := grpc.NewServer()
		healthpb.RegisterHealthServer(s, health.NewServer())
		go func() { _ = s.Serve(l) }()
		end = s.GracefulStop
	case "http":
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, addr) })}
		go func() { _ = s.Serve(l) }()
		end = func() { _ = s.Shutdown(context.Background()) }
	}
	cfg, node, err := client.FromEnv()
	if err != nil {
		return err
	}
	cfg.Logger = slog.Default() // a session that is lost is no caller's fault
	c, err := client.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	err = discovery.Serve(ctx, c, node, services[kind], discovery.Endpoint{Addr: addr, Zone: zone},
		discovery.ReadyCheck(discovery.CheckTCP(addr)), discovery.CheckInterval(time.Second), discovery.DrainGrace(fleetGrace))
	if !errors.Is(err, context.Canceled) {
		return err
	}
	end()
	return nil
}

// process is a backend process.
type process struct {
	kind, addr, zone string
	cmd              *exec.Cmd
	out              *await.Log
	ended            chan struct{}
}

// start starts a process of its own, which ends with the test.
func start(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &await.Log{}, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, fmt.Sprint(args), p.out)
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop ends a process as a supervisor does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a backend ends with %d: %s", code, p.out)
	}
}

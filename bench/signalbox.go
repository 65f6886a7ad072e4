package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// SignalboxPeer is this project as a Peer, by its binary. It runs with its defaults, which are
// durable, but for the number of data shards.
type SignalboxPeer struct {
	Binary string
	Shards int // 0: as many as shardsFor says
}

// defaultShards is the server's default.
const defaultShards = 4

// shardsFor is how many data shards so many servers have that share a machine with each other and
// the load, as an operator would choose: more than one are for cores that would have nothing to do
// with one, and here each server has a core and the load has one. A shard's batches are synced by
// all its replicas, so that few large ones cost least. The default is for servers with machines of
// their own.
func shardsFor(cores, servers int) int { return min(max(cores/(servers+1), 1), defaultShards) }

// Name says signalbox.
func (s *SignalboxPeer) Name() string { return Signalbox }

// Version asks the binary.
func (s *SignalboxPeer) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, s.Binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w; run make build", s.Binary, err)
	}
	v := strings.Join(strings.Fields(strings.SplitN(string(out), "\n", 2)[0]), " ")
	shards := strconv.Itoa(s.Shards)
	if s.Shards == 0 {
		shards = fmt.Sprintf("%d, three instances --shards %d", shardsFor(runtime.NumCPU(), 1), shardsFor(runtime.NumCPU(), Servers))
	}
	return fmt.Sprintf("%s; default settings, with --shards %s; its own SDK", v, shards), nil
}

// Start starts an instance.
func (s *SignalboxPeer) Start(ctx context.Context, dir string) (Server, error) {
	return s.Serve(ctx, dir)
}

// Serve starts an instance on a folder, which may hold an instance's data already.
func (s *SignalboxPeer) Serve(ctx context.Context, dir string) (*SignalboxServer, error) {
	binary, err := filepath.Abs(s.Binary)
	if err != nil {
		return nil, err
	}
	var addr [3]string
	for i := range addr {
		if addr[i], err = FreeAddress(); err != nil {
			return nil, err
		}
	}
	return s.serveAt(ctx, dir, binary, addr)
}

func (s *SignalboxPeer) serveAt(ctx context.Context, dir, binary string, addr [3]string) (*SignalboxServer, error) {
	shards := s.Shards
	if shards == 0 {
		shards = shardsFor(runtime.NumCPU(), 1)
	}
	args := []string{"serve", "--data", filepath.Join(dir, "data"), "--listen", addr[0], "--raft", addr[1], "--admin", addr[2], "--log-level", "warn",
		"--shards", strconv.Itoa(shards)}
	p, err := StartProcess(ctx, dir, func(ctx context.Context) error { return Get(ctx, "http://"+addr[2]+"/readyz") }, binary, args...)
	if err != nil {
		return nil, err
	}
	p.Collect = CollectGo(addr[2])
	return &SignalboxServer{process: p, dir: dir, binary: binary, addr: addr, peer: s}, nil
}

// SignalboxServer is a running instance.
type SignalboxServer struct {
	process *Process
	dir     string
	binary  string
	addr    [3]string // clients, raft, admin
	peer    *SignalboxPeer
}

// Process is where it runs.
func (s *SignalboxServer) Process() *Process { return s.process }

// Stop ends it.
func (s *SignalboxServer) Stop() { s.process.Stop() }

// Restart starts it on the same folder and the same addresses after it was stopped or killed.
func (s *SignalboxServer) Restart(ctx context.Context) (*SignalboxServer, error) {
	return s.peer.serveAt(ctx, s.dir, s.binary, s.addr)
}

// Admin is the address of its metrics.
func (s *SignalboxServer) Admin() string { return s.addr[2] }

// Target speaks to it through the SDK.
func (s *SignalboxServer) Target() loadgen.Target {
	return &loadgen.Signalbox{Client: client.Config{Endpoints: []string{s.addr[0]}}}
}

// Plan uses the same few connections for whatever may share one; that is what the SDK is made for.
func (s *SignalboxServer) Plan(u Workload) (Plan, error) {
	p := Plan{Target: s.Target(), Connections: 4}
	switch u {
	case OwnConnections, IdleOwn:
		p.Connections = loadgen.Each
	case Watchers:
		p.Connections = SharedConnections
	case ManyConnections:
		p.Connections = maxWatchConnections
	case SingleCaller:
		p.Connections = 1
	}
	return p, nil
}

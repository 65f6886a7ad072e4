// How does etcd run, and which settings serve it best?

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// etcd is one member with its defaults, which sync every commit. Only limits of the load are
// lifted: room for the database, and no line of log for each request that is slow on a small
// machine.
type etcd struct{ binary string }

func (e *etcd) Name() string { return bench.Etcd }

func (e *etcd) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, e.binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w; make bench builds it from etcd's module", e.binary, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first + ", one member, or three; clientv3 with its concurrency package; 15 connections where they are shared", nil
}

func (e *etcd) Start(ctx context.Context, dir string) (*bench.Server, error) {
	addr, err := bench.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	p, err := e.member(ctx, nil, 0, dir, addr[0], addr[1], "member-1=http://"+addr[1])
	if err != nil {
		return nil, err
	}
	return bench.NewServer(p, etcdPlan(addr[0])), nil
}

// member starts one member of a cluster on a host, with further flags.
func (e *etcd) member(
	ctx context.Context, hosts *bench.Hosts, i int, dir, client, peer, cluster string, flags ...string,
) (*bench.Process, error) {
	binary, err := filepath.Abs(e.binary)
	if err != nil {
		return nil, err
	}
	program, args := hosts.Command(i, binary, append([]string{
		"--name", memberName(i), "--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer, "--initial-cluster", cluster,
		"--quota-backend-bytes", "8589934592", "--log-level", "error", "--enable-pprof"}, flags...)...)
	p, err := bench.StartProcess(ctx, dir, func(ctx context.Context) error { return etcdHealthy(ctx, client) }, program, args...)
	if err == nil {
		p.Collect = bench.CollectGo(client)
	}
	return p, err
}

func memberName(i int) string { return "member-" + strconv.Itoa(i+1) }

func etcdHealthy(ctx context.Context, client string) error {
	return bench.Get(ctx, "http://"+client+"/health")
}

// etcdPlan gives etcd 15 connections where they may be shared: one HTTP/2 connection limits it with
// many callers, and beyond 15 it gets no faster. Each client knows all members.
func etcdPlan(addrs ...string) func(w bench.Workload) (bench.Plan, error) {
	return func(w bench.Workload) (bench.Plan, error) {
		t := &etcdTarget{addrs: addrs, ttl: 60} // the concurrency package's default: keep-alives cost next to nothing
		p := bench.Plan{Target: t, Connections: 15}
		switch w {
		case bench.OwnConnections:
			p.Connections = loadgen.Each
		case bench.OwnWatchers:
			// A client of etcd takes some hundred kilobytes: 20,000 do not fit beside the servers.
			p.Connections, p.Sessions = loadgen.Each, 5000
		case bench.SingleCaller:
			p.Connections = 1
		case bench.Watchers:
			p.Connections = bench.SharedConnections
		case bench.IdleOwn, bench.SessionStarts:
			// As often as ours: a session of ten seconds. Fewer of them, because etcd's client takes a
			// hundred times the memory of its session.
			t.ttl, p.Connections, p.Sessions = 10, loadgen.Each, 1000
		case bench.IdleShared:
			t.ttl, p.Sessions = 10, 5000
		}
		return p, nil
	}
}

// etcdTimeout bounds a call that nobody bounds.
const etcdTimeout = 10 * time.Second

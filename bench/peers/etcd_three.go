package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/bench"
)

// StartThree starts three members that know each other from the start, as etcd's own guide has it, with the settings of the one. Heartbeats and elections
// keep their defaults: on the loopback they cost next to nothing. Each of the 15 clients knows all members, as its authors ask for, and spreads over them by
// itself; a member that does not lead passes a write on.
func (e *etcd) StartThree(ctx context.Context, dir string) (bench.Server, error) {
	binary, err := filepath.Abs(e.binary)
	if err != nil {
		return nil, err
	}
	addr, err := bench.FreeAddresses(2 * bench.Servers)
	if err != nil {
		return nil, err
	}
	clients, peers := addr[:bench.Servers], addr[bench.Servers:]
	name := func(i int) string { return "member-" + strconv.Itoa(i+1) }
	var cluster []string
	for i, p := range peers {
		cluster = append(cluster, name(i)+"=http://"+p)
	}
	return bench.StartGroup(ctx, dir, bench.Servers, func(ctx context.Context, i int, dir string) (*bench.Process, error) {
		p, err := bench.StartProcess(ctx, dir, func(ctx context.Context) error { return bench.Get(ctx, "http://"+clients[i]+"/health") }, binary,
			"--name", name(i), "--data-dir", filepath.Join(dir, "data"),
			"--listen-client-urls", "http://"+clients[i], "--advertise-client-urls", "http://"+clients[i],
			"--listen-peer-urls", "http://"+peers[i], "--initial-advertise-peer-urls", "http://"+peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new", "--initial-cluster-token", filepath.Base(filepath.Dir(dir)),
			"--quota-backend-bytes", "8589934592", "--log-level", "error", "--enable-pprof")
		if err == nil {
			p.Collect = bench.CollectGo(clients[i])
		}
		return p, err
	}, bench.Plan{Target: &etcdTarget{addrs: clients, ttl: 60}, Connections: 15})
}

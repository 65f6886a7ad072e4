package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-dev/signalbox/bench"
)

// StartCluster starts three members that know each other from the start, as etcd's own guide has it, with the settings of the one. Heartbeats and elections
// keep their defaults: on the loopback they cost next to nothing. Each of the 15 clients knows all members, as its authors ask for, and spreads over them by
// itself; a member that does not lead passes a write on.
func (e *etcd) StartCluster(ctx context.Context, dir string) (bench.Server, error) {
	g, err := e.StartClusterOn(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// StartClusterOn is StartCluster on hosts, with further flags.
func (e *etcd) StartClusterOn(ctx context.Context, dir string, hosts *bench.Hosts, flags ...string) (*bench.Cluster, error) {
	binary, err := filepath.Abs(e.binary)
	if err != nil {
		return nil, err
	}
	addr, err := hosts.Addresses(2)
	if err != nil {
		return nil, err
	}
	var clients, peers []string
	for _, own := range addr {
		clients, peers = append(clients, own[0]), append(peers, own[1])
	}
	name := func(i int) string { return "member-" + strconv.Itoa(i+1) }
	var cluster []string
	for i, p := range peers {
		cluster = append(cluster, name(i)+"=http://"+p)
	}
	g, err := bench.StartServers(ctx, dir, bench.Servers, func(ctx context.Context, i int, dir string) (*bench.Process, error) {
		program, args := hosts.Command(i, binary, append([]string{
			"--name", name(i), "--data-dir", filepath.Join(dir, "data"),
			"--listen-client-urls", "http://" + clients[i], "--advertise-client-urls", "http://" + clients[i],
			"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new", "--initial-cluster-token", filepath.Base(filepath.Dir(dir)),
			"--quota-backend-bytes", "8589934592", "--log-level", "error", "--enable-pprof"}, flags...)...)
		p, err := bench.StartProcess(ctx, dir, func(ctx context.Context) error { return bench.Get(ctx, "http://"+clients[i]+"/health") }, program, args...)
		if err == nil {
			p.Collect = bench.CollectGo(clients[i])
		}
		return p, err
	}, bench.Plan{Target: &etcdTarget{addrs: clients, ttl: 60}, Connections: 15})
	if err != nil {
		return nil, err
	}
	g.WaitReady = func(ctx context.Context) error {
		for _, address := range clients {
			for bench.Get(ctx, "http://"+address+"/health") != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		return nil
	}
	g.Leader = func(ctx context.Context) (int, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: clients, DialTimeout: etcdTimeout, Logger: zap.NewNop()})
		if err != nil {
			return 0, err
		}
		defer c.Close()
		for i, address := range clients {
			s, err := c.Status(ctx, address)
			if err != nil {
				return 0, err
			}
			if s.Leader == s.Header.MemberId {
				return i, nil
			}
		}
		return 0, errors.New("no member of etcd leads")
	}
	return g, nil
}

// Patience is the deadline of a call while a member may hang: etcd's client goes on waiting for its answer, and tries another member with the next call.
func (e *etcd) CallTimeout() time.Duration { return time.Second }

// How do three members of etcd run?

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-dev/signalbox/bench"
)

// StartCluster starts three members that know each other from the start, as etcd's own guide has
// it, with the settings of the one. Heartbeats and elections keep their defaults: on the loopback
// they cost next to nothing. Each of the 15 clients knows all members, as its authors ask for, and
// spreads over them by itself; a member that does not lead passes a write on.
func (e *etcd) StartCluster(ctx context.Context, dir string) (*bench.Server, error) {
	return e.StartClusterOn(ctx, dir, nil)
}

// StartClusterOn is StartCluster on hosts.
func (e *etcd) StartClusterOn(ctx context.Context, dir string, hosts *bench.Hosts) (*bench.Server, error) {
	addr, err := hosts.Addresses(2)
	if err != nil {
		return nil, err
	}
	var clients, members []string
	for i, own := range addr {
		clients, members = append(clients, own[0]), append(members, memberName(i)+"=http://"+own[1])
	}
	g, err := bench.StartServers(ctx, dir, bench.Servers, func(ctx context.Context, i int, dir string) (*bench.Process, error) {
		return e.member(ctx, hosts, i, dir, addr[i][0], addr[i][1], strings.Join(members, ","),
			"--initial-cluster-state", "new", "--initial-cluster-token", filepath.Base(filepath.Dir(dir)))
	}, etcdPlan(clients...))
	if err != nil {
		return nil, err
	}
	g.WaitReady = func(ctx context.Context) error {
		for _, address := range clients {
			err := bench.Poll(ctx, 50*time.Millisecond, func(ctx context.Context) error { return etcdHealthy(ctx, address) })
			if err != nil {
				return err
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

// CallTimeout is the deadline of a call while a member may hang: etcd's client goes on waiting for
// its answer, and tries another member with the next call.
func (e *etcd) CallTimeout() time.Duration { return time.Second }

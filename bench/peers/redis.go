// How does Redis run, and which settings serve it best?

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// redisServer is Redis with appendfsync always, through one of two clients. It has no replica and
// no consensus: data lost with its disk is lost.
type redisServer struct{ client string }

func (r *redisServer) Name() string { return r.client }

func (r *redisServer) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "", errors.New("redis-server is not installed; apt-get install redis-server")
	}
	f := strings.Fields(string(out))
	v := "unknown"
	for _, w := range f {
		if n, ok := strings.CutPrefix(w, "v="); ok {
			v = n
		}
	}
	if r.client == bench.Rueidis {
		return "redis-server " + v + ", appendfsync always; rueidis, which pipelines many callers by itself over 4 connections", nil
	}
	return "redis-server " + v + ", appendfsync always; go-redis, a request at a time on a connection", nil
}

// Start turns on the log with a sync for each cycle of the event loop, which is one sync for all
// commands that arrived together, and turns off disturbances: no snapshots, no rewriting of the
// log, no cut of slow subscribers.
func (r *redisServer) Start(ctx context.Context, dir string) (*bench.Server, error) {
	p, addr, err := r.start(ctx, dir, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return nil, err
	}
	return bench.NewServer(p, func(w bench.Workload) (bench.Plan, error) { return redisPlan(r.client, addr, w) }), nil
}

func (r *redisServer) start(ctx context.Context, dir string, flags ...string) (p *bench.Process, addr string, err error) {
	if addr, err = bench.FreeAddress(); err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	p, err = bench.StartProcess(ctx, dir, func(ctx context.Context) error { return redisReady(ctx, addr) }, "redis-server",
		append([]string{"--bind", host, "--port", port, "--dir", dir, "--save", "", "--maxclients", "19500",
			"--client-output-buffer-limit", "pubsub 0 0 0", "--tcp-backlog", "4096", "--loglevel", "warning"}, flags...)...)
	return p, addr, err
}

// redisReady asks whether it answers.
func redisReady(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var b [7]byte
	if _, err := c.Read(b[:]); err != nil {
		return err
	}
	if string(b[:5]) != "+PONG" {
		return fmt.Errorf("it says %q", b[:])
	}
	return nil
}

func redisPlan(client, addr string, w bench.Workload) (bench.Plan, error) {
	if client == bench.Rueidis {
		switch w {
		case bench.LockPairs, bench.SteadyRate, bench.Reads:
			return bench.Plan{Target: &rueidisTarget{addr: addr}, Connections: 1}, nil // one client is four connections
		}
		return bench.Plan{}, bench.ErrUnsupported
	}
	t := &goRedisTarget{addr: addr}
	p := bench.Plan{Target: t, Connections: loadgen.Each}
	switch w {
	case bench.Handoffs:
		t.queue = true
	case bench.Watchers:
		t.lazy, p.Connections = true, bench.SharedConnections
	case bench.OwnWatchers:
		t.lazy = true // a subscription has a connection of its own
	case bench.SessionStarts:
		t.lazy, t.keep = true, true
	case bench.IdleOwn:
		t.keep = true
	case bench.IdleShared:
		return p, bench.ErrUnsupported // a key that expires has no connection
	}
	return p, nil
}

// unlock deletes a lock only for who holds it, as Redis's documentation has it. A plain delete
// would be a little faster, and would free a lock that has expired and belongs to somebody else by
// now.
const unlock = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// lockExpiry of a lock, in milliseconds: nobody extends it in so short a run, which spares Redis
// the work.
const lockExpiry = 60_000

var errLockTaken = errors.New("the lock is taken")

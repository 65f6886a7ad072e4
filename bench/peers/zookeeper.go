// How does ZooKeeper run, and which settings serve it best?

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// zooKeeper is one server of Debian's package with its defaults, which sync every transaction, in a
// heap large enough that collections do not show.
type zooKeeper struct{}

// Debian's place for it. Its manifest names the rest.
const zooKeeperJar = "/usr/share/java/zookeeper.jar"

func (z *zooKeeper) Name() string { return bench.ZooKeeper }

func (z *zooKeeper) Version(ctx context.Context) (string, error) {
	if _, err := os.Stat(zooKeeperJar); err != nil {
		return "", errors.New("ZooKeeper is not installed; apt-get install zookeeper")
	}
	out, err := exec.CommandContext(ctx, "java", "-cp", zooKeeperJar, "org.apache.zookeeper.version.VersionInfoMain").Output()
	if err != nil {
		return "", fmt.Errorf("java does not run: %w; apt-get install default-jre-headless", err)
	}
	return strings.TrimSpace(string(out)) + ", one server, or three; go-zookeeper/zk; 15 connections where they are shared", nil
}

func (z *zooKeeper) Start(ctx context.Context, dir string) (*bench.Server, error) {
	addr, err := bench.FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := startZooKeeper(ctx, dir, addr, "org.apache.zookeeper.server.ZooKeeperServerMain", "")
	if err != nil {
		return nil, err
	}
	return bench.NewServer(p, zooKeeperPlan(javaWarmUp, addr)), nil
}

// startZooKeeper starts a server with a class that has a main function, and more lines in its
// configuration.
func startZooKeeper(ctx context.Context, dir, addr, class, more string) (*bench.Process, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	// Lifted: connections from one address, and the number of requests after which it stops
	// reading, which a thousand callers would reach.
	conf := "dataDir=" + filepath.Join(dir, "data") + "\nclientPort=" + port + "\nclientPortAddress=" + host +
		"\ntickTime=1000\nmaxClientCnxns=0\nadmin.enableServer=false\nglobalOutstandingLimit=100000\n4lw.commands.whitelist=srvr\n" + more
	name := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(name, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	p, err := bench.StartProcess(ctx, dir, func(ctx context.Context) error { return inEnsemble(ctx, addr) }, "java",
		"-Xms1g", "-Xmx1g", "-Dzookeeper.jmx.log4j.disable=true", "-cp", zooKeeperJar, class, name)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("jcmd"); err == nil {
		p.Collect = func(ctx context.Context) error {
			return exec.CommandContext(ctx, "jcmd", strconv.Itoa(p.ID()), "GC.run").Run()
		}
	}
	return p, nil
}

// fourLetters sends a server one of ZooKeeper's four-letter words, and returns the answer.
func fourLetters(ctx context.Context, addr, word string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(c, 1<<16))
	return string(b), err
}

// javaWarmUp is how much longer it runs before it counts: its code is compiled while it runs.
const javaWarmUp = 4 * time.Second

// zooKeeperPlan gives it 15 connections where they may be shared, like etcd: a connection is a
// session, and its requests are answered in order.
func zooKeeperPlan(warmUp time.Duration, addrs ...string) func(w bench.Workload) (bench.Plan, error) {
	return func(w bench.Workload) (bench.Plan, error) {
		p := bench.Plan{Target: &zooKeeperTarget{addrs: addrs, queue: w == bench.Handoffs}, Connections: 15, WarmUp: warmUp}
		switch w {
		case bench.OwnConnections, bench.Handoffs, bench.SessionStarts, bench.IdleOwn:
			p.Connections = loadgen.Each
		case bench.OwnWatchers:
			p.Connections, p.Sessions = loadgen.Each, 5000 // its memory decides how many that can be
		case bench.SingleCaller:
			p.Connections = 1
		case bench.Watchers, bench.IdleShared:
			return p, bench.ErrUnsupported // two watchers on a connection are one watch to the server
		}
		return p, nil
	}
}

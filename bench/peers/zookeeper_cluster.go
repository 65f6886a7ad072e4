// How do three servers of ZooKeeper run?

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/bench"
)

// StartCluster starts an ensemble of three, as ZooKeeper's own guide has it: a file that names all
// servers, and each server's number in its folder. Settings are those of the one, heaps too: they
// are touched as far as they are used. The 15 clients know all servers, as its authors ask for, and
// each goes to one chosen at random; a server that does not lead passes a write on, and answers for
// itself, which spreads the sessions' work. All three compile their code on the same cores: three
// times the warm-up.
func (z *zooKeeper) StartCluster(ctx context.Context, dir string) (*bench.Server, error) {
	addr, err := bench.FreeAddresses(3 * bench.Servers)
	if err != nil {
		return nil, err
	}
	clients, quorum, election := addr[:bench.Servers], addr[bench.Servers:2*bench.Servers], addr[2*bench.Servers:]
	// initLimit and syncLimit, in ticks, bound how long a server may take to join and how far it
	// may fall behind: wide, since three of them share a machine with the load.
	ensemble := "initLimit=30\nsyncLimit=30\n"
	for i := range bench.Servers {
		host, q, err1 := net.SplitHostPort(quorum[i])
		_, e, err2 := net.SplitHostPort(election[i])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		ensemble += fmt.Sprintf("server.%d=%s:%s:%s\n", i+1, host, q, e)
	}
	return bench.StartServers(ctx, dir, bench.Servers, func(ctx context.Context, i int, dir string) (*bench.Process, error) {
		data := filepath.Join(dir, "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(i+1)+"\n"), 0o600); err != nil {
			return nil, err
		}
		return startZooKeeper(ctx, dir, clients[i], "org.apache.zookeeper.server.quorum.QuorumPeerMain", ensemble)
	}, zooKeeperPlan(bench.Servers*javaWarmUp, clients...))
}

// inEnsemble reports whether a server serves: one that looks for a leader, or waits for its quorum,
// does not.
func inEnsemble(ctx context.Context, addr string) error {
	said, err := fourLetters(ctx, addr, "srvr")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "Mode: leader") && !strings.Contains(said, "Mode: follower") && !strings.Contains(said, "Mode: standalone") {
		return fmt.Errorf("it says %q", said)
	}
	return nil
}

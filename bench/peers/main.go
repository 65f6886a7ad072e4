// Command peers answers: how fast is this project beside etcd, ZooKeeper and Redis? It is a module
// of its own, so that the large dependencies of etcd's server and of the systems' clients stay out
// of signalbox's.
//
// To add a system, write a bench.System and a loadgen.Target for it, each choice with a comment
// that says why it is fair, and put it into all. etcd's server is a tool of the module, so its
// version is fixed.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/signalbox-dev/signalbox/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, bench.Timeout)
	code := run(ctx, os.Args[1:])
	cancel()
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	return bench.Command(ctx, args, os.Stdout, os.Stderr, all)
}

// all systems, with the binaries that make puts into one folder.
func all(bin string) []bench.System {
	return []bench.System{
		&bench.SignalboxSystem{Binary: filepath.Join(bin, "signalbox")},
		&etcd{binary: filepath.Join(bin, "etcd")},
		&zooKeeper{},
		&redisServer{client: bench.GoRedis},
		&redisServer{client: bench.Rueidis},
		&bench.RaftLimit{Binary: filepath.Join(bin, "bench")},
		&bench.EchoLimit{Binary: filepath.Join(bin, "bench")},
	}
}

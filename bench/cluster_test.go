// How is a cluster run that is to grow, or whose instances are killed?

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

const (
	resizeTimeout      = 10 * time.Minute      // bounds a step: instances start, copies catch up, buckets move
	resizePollInterval = 20 * time.Millisecond // between two looks at what is left to do
)

// growingCluster is instances of signalbox that are killed, started again, and become more.
type growingCluster struct {
	system     *SignalboxSystem
	dir, token string
	factor     int         // replication factor
	addr       [][3]string // one for each instance that there may be
	processes  []*Process  // nil: not there
	operator   *client.Client
}

// newGrowingCluster starts the first of at most so many instances, as a cluster with nothing left
// to do.
func newGrowingCluster(
	ctx context.Context, system *SignalboxSystem, dir string, factor, first, most int,
) (g *growingCluster, err error) {
	list, err := FreeAddresses(3 * most)
	if err != nil {
		return nil, err
	}
	g = &growingCluster{system: system, dir: dir, factor: 1, processes: make([]*Process, most)}
	for own := range slices.Chunk(list, 3) {
		g.addr = append(g.addr, [3]string(own))
	}
	if g.token, err = writeJoinToken(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.stop()
		}
	}()
	if err := g.start(ctx, 0); err != nil {
		return nil, err
	}
	if g.operator, err = client.Open(ctx, client.Config{Endpoints: g.clients()}); err != nil {
		return nil, err
	}
	if err := g.grow(ctx, 1); err != nil {
		return nil, err
	}
	// A cluster that is made for several copies serves nobody until there are as many instances.
	// One that gets instances before it is to have copies makes a replicaset of each.
	g.factor = factor
	if _, err = admin.New(g.operator).SetReplicationFactor(ctx, "default", uint32(factor), false); err != nil {
		return nil, err
	}
	return g, g.grow(ctx, first)
}

func (g *growingCluster) clients() (list []string) {
	for _, a := range g.addr {
		list = append(list, a[0])
	}
	return list
}

func (g *growingCluster) start(ctx context.Context, i int) (err error) {
	dir := filepath.Join(g.dir, instanceName(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"--instance", instanceName(i), "--join-token-file", g.token}
	if i > 0 {
		args = append(args, "--peer", g.addr[0][1])
	}
	g.processes[i], err = g.system.serve(ctx, nil, i, dir, g.addr[i], args...)
	return err
}

func (g *growingCluster) stop() {
	if g.operator != nil {
		g.operator.Close()
	}
	(&Server{processes: g.processes}).Stop()
}

// grow starts instances until there are n, and waits until nothing is left to do.
func (g *growingCluster) grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resizeTimeout, fmt.Errorf("not done after %s", resizeTimeout))
	defer cancel()
	for i := range n {
		if g.processes[i] == nil {
			if err := g.start(ctx, i); err != nil {
				return err
			}
		}
	}
	return Poll(ctx, resizePollInterval, func(ctx context.Context) error {
		_, err := checkReady(ctx, admin.New(g.operator), n, g.factor)
		return err
	})
}

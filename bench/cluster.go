package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Cluster is a system of several servers, each a process of its own, as one Server.
type Cluster struct {
	processes []*Process
	plan      Plan // of Crowded, the only thing that groups are compared in
	restart   func(ctx context.Context, i int) (*Process, error)

	// WaitReady waits until all servers are there and nothing is left to do; Leader is the server
	// that leads most. They may be nil.
	WaitReady func(ctx context.Context) error
	Leader    func(ctx context.Context) (int, error)
}

func (g *Cluster) waitReady(ctx context.Context) error {
	if g.WaitReady == nil {
		return errors.New("the group cannot tell whether it is whole")
	}
	return g.WaitReady(ctx)
}

func (g *Cluster) currentLeader(ctx context.Context) (int, error) {
	if g.Leader == nil {
		return 0, errors.New("the group cannot tell who leads")
	}
	return g.Leader(ctx)
}

// Restart starts a server again that has ended.
func (g *Cluster) Restart(ctx context.Context, i int) (err error) {
	p, err := g.restart(ctx, i)
	if err == nil {
		g.processes[i] = p
	}
	return err
}

// StartServers starts n servers at once, since none of them may be ready before the others are
// there, each with a folder of its own. When one fails the others are stopped, and its error is the
// one that is returned.
func StartServers(ctx context.Context, dir string, n int, start func(ctx context.Context, i int, dir string) (*Process, error), plan Plan) (*Cluster, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &Cluster{processes: make([]*Process, n), plan: plan}
	g.restart = func(ctx context.Context, i int) (*Process, error) {
		return start(ctx, i, filepath.Join(dir, strconv.Itoa(i+1)))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			own := filepath.Join(dir, strconv.Itoa(i+1))
			err := os.Mkdir(own, 0o700)
			if err == nil {
				g.processes[i], err = start(ctx, i, own)
			}
			if err != nil {
				cancel(fmt.Errorf("server %d of %d: %w", i+1, n, err)) // the first one counts
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		g.Stop()
		return nil, context.Cause(ctx)
	}
	return g, nil
}

// Process is the first server's. What all of them use together is Usage.
func (g *Cluster) Process() *Process { return g.processes[0] }

// Plan says how the group does what it is compared in.
func (g *Cluster) Plan(u Workload) (Plan, error) {
	if u != LockPairs {
		return Plan{}, ErrUnsupported
	}
	return g.plan, nil
}

// Stop ends all of them.
func (g *Cluster) Stop() {
	var all sync.WaitGroup
	for _, p := range g.processes {
		if p != nil {
			all.Go(p.Stop)
		}
	}
	all.Wait()
}

// processes of a server: one, or those of a group.
func processes(s Server) []*Process {
	if g, ok := s.(*Cluster); ok {
		return g.processes
	}
	return []*Process{s.Process()}
}

// usageOf is what all processes of a server have used together.
func usageOf(s Server) (Usage, error) {
	var sum Usage
	for _, p := range processes(s) {
		u, err := p.Usage()
		if err != nil {
			return sum, err
		}
		sum.CPU += u.CPU
		sum.Resident += u.Resident
		sum.Written += u.Written
	}
	return sum, nil
}

// collect has all processes of a server collect their garbage, where they can be asked to.
func collect(ctx context.Context, s Server) error {
	var errs []error
	for _, p := range processes(s) {
		if p.Collect != nil {
			errs = append(errs, p.Collect(ctx))
		}
	}
	return errors.Join(errs...)
}

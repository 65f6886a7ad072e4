// What can be done with a running system, of one process or of several?

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Server is a running System: one process, or several that are one cluster.
type Server struct {
	// Plan returns the best way to do a kind of work on it.
	Plan func(w Workload) (Plan, error)

	// WaitReady waits until all servers of a cluster are there and nothing is left to do. Leader is
	// the server that leads most. They may be nil.
	WaitReady func(ctx context.Context) error
	Leader    func(ctx context.Context) (int, error)

	warm bool // a load has run on it

	processes []*Process
	start     func(ctx context.Context, i int) (*Process, error) // again, on its folder
}

// NewServer is a server of one process.
func NewServer(p *Process, plan func(w Workload) (Plan, error)) *Server {
	return &Server{Plan: plan, processes: []*Process{p}}
}

// StartServers starts n servers of a cluster at once, since none of them may be ready before the
// others are there. Each has a folder of its own. If one fails, the others are stopped, and its
// error is returned.
func StartServers(
	ctx context.Context, dir string, n int, start func(ctx context.Context, i int, dir string) (*Process, error),
	plan func(w Workload) (Plan, error),
) (*Server, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	folder := func(i int) string { return filepath.Join(dir, strconv.Itoa(i+1)) }
	s := &Server{
		processes: make([]*Process, n),
		start:     func(ctx context.Context, i int) (*Process, error) { return start(ctx, i, folder(i)) },
		Plan:      plan,
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := os.Mkdir(folder(i), 0o700)
			if err == nil {
				s.processes[i], err = s.start(ctx, i)
			}
			if err != nil {
				cancel(fmt.Errorf("server %d of %d: %w", i+1, n, err)) // the first one counts
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		s.Stop()
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// Process is the first server's. What all of them use together is Usage.
func (s *Server) Process() *Process { return s.processes[0] }

// Kill ends a server of a cluster at once.
func (s *Server) Kill(i int) { s.processes[i].Kill() }

// Restart starts a server of a cluster again that has ended.
func (s *Server) Restart(ctx context.Context, i int) error {
	p, err := s.start(ctx, i)
	if err == nil {
		s.processes[i] = p
	}
	return err
}

// Stop ends all processes. The folder is removed after it.
func (s *Server) Stop() {
	var all sync.WaitGroup
	for _, p := range s.processes {
		if p != nil {
			all.Go(p.Stop)
		}
	}
	all.Wait()
}

// Usage returns the resources that all processes have used together.
func (s *Server) Usage() (Usage, error) {
	var sum Usage
	for _, p := range s.processes {
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

// cpuOfEach returns the CPU time that each process has used so far, in seconds.
func (s *Server) cpuOfEach() (list []float64, err error) {
	for _, p := range s.processes {
		u, err := p.Usage()
		if err != nil {
			return nil, err
		}
		list = append(list, u.CPU.Seconds())
	}
	return list, nil
}

func (s *Server) cpuOver(ctx context.Context, d time.Duration) (time.Duration, error) {
	before, err := s.Usage()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, d); err != nil {
		return 0, err
	}
	after, err := s.Usage()
	return after.CPU - before.CPU, err
}

// collect has all processes collect their garbage, where they can be asked to.
func (s *Server) collect(ctx context.Context) error {
	var errs []error
	for _, p := range s.processes {
		if p.Collect != nil {
			errs = append(errs, p.Collect(ctx))
		}
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Poll calls f until it returns nil. If ctx ends first, the error is f's last one with ctx's cause.
func Poll(ctx context.Context, every time.Duration, f func(ctx context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ended := pause(ctx, every); ended != nil {
			return fmt.Errorf("%w: %w", err, ended)
		}
	}
}

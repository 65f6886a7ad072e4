package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServersStopTogether: when one server fails, or all have been used, none is left.
func TestServersStopTogether(t *testing.T) {
	t.Parallel()
	addr, err := FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	if addr[0] == addr[1] || addr[1] == addr[2] || addr[0] == addr[2] {
		t.Fatalf("the same address twice: %v", addr)
	}
	start := func(ctx context.Context, i int, dir string) (*Process, error) {
		return StartProcess(ctx, dir, func(ctx context.Context) error { return Dial(ctx, addr[i]) }, self(t), "limit",
			"echo", "--listen", addr[i])
	}
	plan := func(w Workload) (Plan, error) {
		if w != LockPairs {
			return Plan{}, ErrUnsupported
		}
		return Plan{Connections: 7}, nil
	}
	stopped := func() {
		t.Helper()
		for _, a := range addr {
			if Dial(t.Context(), a) == nil {
				t.Fatalf("a server is left at %s", a)
			}
		}
	}
	g, err := StartServers(t.Context(), t.TempDir(), 3, start, plan)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := g.Plan(LockPairs); err != nil || p.Connections != 7 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := g.Plan(SingleCaller); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a group does what nobody has planned for: %v", err)
	}
	if err := g.collect(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		all, err := g.Usage()
		one, err2 := g.Process().Usage()
		if err != nil || err2 != nil || all.Resident < 2*one.Resident {
			t.Errorf("three use %+v, the first of them %+v: %v, %v", all, one, err, err2)
		}
	}
	g.Stop()
	stopped()

	// The third fails when the others run. A connection to the former ones may not be over yet.
	if addr, err = FreeAddresses(3); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err = StartServers(t.Context(), dir, 3, func(ctx context.Context, i int, dir string) (*Process, error) {
		if i < 2 {
			return start(ctx, i, dir)
		}
		for _, a := range addr[:2] {
			if err := until(ctx, func() error { return Dial(ctx, a) }); err != nil {
				return nil, err
			}
		}
		return nil, errors.New("no such luck")
	}, plan)
	if err == nil || !strings.Contains(err.Error(), "server 3 of 3: no such luck") {
		t.Errorf("it says %v", err)
	}
	stopped()
	for _, name := range []string{"1", "2", "3"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("no folder of its own: %v", err)
		}
	}
}

// until tries until it works or ctx ends.
func until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// TestClusterOfThree: what is measured has three voters for each shard, and all three processes are
// in the figures.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	s, err := (&SignalboxSystem{Binary: self(t)}).StartCluster(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if n := len(s.processes); n != Servers {
		t.Errorf("%d processes", n)
	}
	plan, err := s.Plan(LockPairs)
	if err != nil {
		t.Fatal(err)
	}
	c, err := openIdleSessions(t.Context(), plan, 4)
	defer c.close()
	if err != nil {
		t.Error(err)
	}
	u, err := s.Usage()
	if first, err2 := s.Process().Usage(); err == nil && (err2 != nil || u.CPU <= first.CPU) {
		t.Errorf("three use %v, the first of them %v: %v", u.CPU, first.CPU, err2)
	}
	s.Stop()
	for _, p := range s.processes {
		if _, err := p.Usage(); err == nil {
			t.Error("a process is left")
		}
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// GrowConfig is the size of the test of a cluster that grows and shrinks under load.
type GrowConfig struct {
	Names, Sessions int           // that are there; each session holds a lock
	Writers         int           // each has a session, and alternates an update with a lock and its release
	Rate            int           // writes a second of all writers together: what six instances on this machine carry with as much to spare
	Factor          int           // replication factor
	Hold            time.Duration // how long the load goes on after each step
	Steps           []int         // numbers of instances
}

// DefaultGrow is the one that the bar is about.
func DefaultGrow() GrowConfig {
	return GrowConfig{Names: 100_000, Sessions: 5_000, Writers: 32, Rate: 1000, Factor: 3, Hold: 3 * time.Second, Steps: []int{1, 3, 6, 3, 1}}
}

const (
	stallThreshold     = 200             // milliseconds that a call may take at most while the cluster changes
	resizeTimeout      = 2 * time.Minute // bounds a step: instances start, copies catch up, buckets move
	resizePollInterval = 20 * time.Millisecond
)

// RunGrow has a cluster grow and shrink while writers write, a reader reads behind the barrier, and
// idle sessions live. It records the longest call of each step.
func RunGrow(ctx context.Context, peer *SignalboxPeer, c GrowConfig, root string, log io.Writer) (*Record, error) {
	r, dir, err := startRecord(ctx, peer, root, "grow", fmt.Sprintf("%s semaphores, and %s sessions of which each holds a lock. %d writers, each with a session, update a semaphore, lock an "+
		"ephemeral one and unlock it in turn, %d calls a second in all, and none before its last one was answered; a reader describes semaphores, STRICT. Meanwhile the cluster has %s instances, one after the other, with replication factor %d. A step ends when nothing "+
		"is left to do; the load goes on for %s then, which count with it, and once more as long for what there is without a change.",
		thousands(fmt.Sprint(c.Names)), thousands(fmt.Sprint(c.Sessions)), c.Writers, c.Rate, strings.Trim(fmt.Sprint(c.Steps), "[]"), c.Factor, c.Hold))
	defer os.RemoveAll(dir)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	g, err := newResizableCluster(ctx, peer, c, dir)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	plan := Plan{Target: &loadgen.Signalbox{Client: client.Config{Endpoints: g.clients}}, Connections: 4}
	if err := fill(ctx, plan, c.Names, []byte("0123456789abcdef")); err != nil {
		return nil, err
	}
	sessions, err := openIdleSessions(ctx, plan, c.Sessions)
	defer sessions.close()
	if err != nil {
		return nil, err
	}
	if err := loadgen.Parallel(ctx, c.Sessions, func(ctx context.Context, i int) error {
		_, err := sessions.sessions[i].(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{}).Acquire(ctx, fmt.Sprintf("held/%d", i))
		return err
	}); err != nil {
		return nil, err
	}
	load, err := startGrowthLoad(ctx, g.clients, c)
	if err != nil {
		return nil, err
	}
	defer load.end()
	text, bar := "before", 0.0
	for i, n := range c.Steps {
		if i > 0 {
			text, bar = fmt.Sprintf("%d to %d", c.Steps[i-1], n), stallThreshold
		}
		load.reset()
		t := time.Now()
		if err := g.resize(ctx, n); err != nil {
			return nil, fmt.Errorf("%s instances: %w", text, err)
		}
		took := time.Since(t)
		if err := pause(ctx, c.Hold); err != nil {
			return nil, err
		}
		x := load.reset()
		if x.err != nil {
			return nil, fmt.Errorf("%s instances: %w", text, x.err)
		}
		if i > 0 {
			r.fact(text+": seconds until nothing is left to do", took.Seconds(), "", 0)
		}
		r.fact(text+": longest write", float64(x.write.Microseconds())/1e3, Milliseconds, bar)
		r.fact(text+": longest STRICT read", float64(x.read.Microseconds())/1e3, Milliseconds, bar)
		if err := pause(ctx, c.Hold); err != nil {
			return nil, err
		}
		still := load.reset()
		if still.err != nil {
			return nil, fmt.Errorf("%d instances: %w", n, still.err)
		}
		if i > 0 {
			r.fact(fmt.Sprintf("%d instances, nothing to do: longest write", n), float64(still.write.Microseconds())/1e3, Milliseconds, 0)
		}
		if log != nil {
			fmt.Fprintf(log, "%d instances, nothing to do: %d writes, longest %v; longest read %v\n", n, still.writes, still.write.Round(time.Millisecond),
				still.read.Round(time.Millisecond))
			fmt.Fprintf(log, "%s: %v; %d writes, longest %v, %d above %d ms; longest read %v\n", text, took.Round(time.Millisecond), x.writes, x.write.Round(time.Millisecond),
				x.slow, stallThreshold, x.read.Round(time.Millisecond))
		}
	}
	if err := sessions.checkAlive(); err != nil {
		return nil, err
	}
	r.Took = time.Since(began).Seconds()
	return r, nil
}

// resizableCluster is a cluster whose instances come and go.
type resizableCluster struct {
	binary, dir, token     string
	shards, factor         int
	clients, rafts, admins []string   // addresses, one for each instance that there may be
	processes              []*Process // nil: not there
	operator               *client.Client
}

// newResizableCluster starts the first instances, as a cluster with nothing left to do.
func newResizableCluster(ctx context.Context, peer *SignalboxPeer, c GrowConfig, dir string) (g *resizableCluster, err error) {
	most := 0
	for _, n := range c.Steps {
		most = max(most, n)
	}
	addr, err := FreeAddresses(3 * most)
	if err != nil {
		return nil, err
	}
	g = &resizableCluster{dir: dir, token: filepath.Join(dir, "token"), shards: peer.Shards, factor: 1, clients: addr[:most], rafts: addr[most : 2*most], admins: addr[2*most:],
		processes: make([]*Process, most)}
	if g.binary, err = filepath.Abs(peer.Binary); err != nil {
		return nil, err
	}
	if err := os.WriteFile(g.token, []byte(joinToken+"\n"), 0o600); err != nil {
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
	if g.operator, err = client.Open(ctx, client.Config{Endpoints: g.clients}); err != nil {
		return nil, err
	}
	if err := g.resize(ctx, c.Steps[0]); err != nil {
		return nil, err
	}
	// Later: a cluster that is made for several copies serves nobody until there are as many
	// instances.
	g.factor = c.Factor
	_, err = admin.New(g.operator).SetReplicationFactor(ctx, "default", uint32(c.Factor))
	return g, err
}

func (g *resizableCluster) name(i int) string { return "server-" + strconv.Itoa(i+1) }

func (g *resizableCluster) start(ctx context.Context, i int) (err error) {
	dir := filepath.Join(g.dir, g.name(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"serve", "--data", filepath.Join(dir, "data"), "--listen", g.clients[i], "--raft", g.rafts[i], "--admin", g.admins[i], "--log-level", "warn",
		"--instance", g.name(i), "--join-token-file", g.token, "--shards", strconv.Itoa(g.shards)}
	if i > 0 {
		args = append(args, "--peer", g.rafts[0])
	}
	g.processes[i], err = StartProcess(ctx, dir, func(ctx context.Context) error { return Get(ctx, "http://"+g.admins[i]+"/readyz") }, g.binary, args...)
	return err
}

func (g *resizableCluster) stop() {
	if g.operator != nil {
		g.operator.Close()
	}
	for _, p := range g.processes {
		if p != nil {
			p.Stop()
		}
	}
}

// resize starts instances, or expels the last ones, until there are n, and waits until nothing is
// left to do.
func (g *resizableCluster) resize(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resizeTimeout, fmt.Errorf("not done after %s", resizeTimeout))
	defer cancel()
	for i, p := range g.processes {
		switch {
		case i < n && p == nil:
			if err := g.start(ctx, i); err != nil {
				return err
			}
		case i >= n && p != nil:
			if _, err := admin.New(g.operator).Expel(ctx, g.name(i), true); err != nil {
				return err
			}
		}
	}
	for {
		why, err := g.pendingWork(ctx, n)
		if err == nil && why == "" {
			break
		}
		if p := pause(ctx, resizePollInterval); p != nil {
			return errors.Join(p, err, errors.New(why))
		}
	}
	for i := n; i < len(g.processes); i++ {
		if g.processes[i] != nil {
			g.processes[i].Stop() // it was expelled, and ends by itself
			g.processes[i] = nil
		}
	}
	return nil
}

// pendingWork is what the cluster has still to do until it has n instances and each shard as many
// voters as it can, or nothing.
func (g *resizableCluster) pendingWork(ctx context.Context, n int) (string, error) {
	s, err := admin.New(g.operator).Status(ctx)
	if err != nil {
		return "", err
	}
	there, members := 0, map[string]int{}
	for _, i := range s.Instances {
		if i.Current != "Expelled" {
			there++
			members[i.Replicaset]++
		}
	}
	if there != n {
		return fmt.Sprintf("there are %d instances", there), nil
	}
	for _, x := range s.Shards {
		voters := 0
		for _, r := range x.Replicas {
			if r.Role == "voter" {
				voters++
			}
		}
		if voters != min(g.factor, members[x.Replicaset]) || !x.Ready || x.Master == "" {
			return fmt.Sprintf("shard %d has %d voters, master %q", x.ID, voters, x.Master), nil
		}
	}
	p, err := admin.New(g.operator).Plan(ctx)
	if err != nil {
		return "", err
	}
	if len(p.Steps) > 0 || len(s.Moves) > 0 {
		return fmt.Sprintf("next is to %s, and %d moves are under way", strings.Join(p.Steps, ", "), len(s.Moves)), nil
	}
	return "", nil
}

// growthLoad is a load whose longest calls count.
type growthLoad struct {
	client *client.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	current callStats
}

type callStats struct {
	writes, slow int
	write, read  time.Duration
	err          error // the first
}

func startGrowthLoad(ctx context.Context, endpoints []string, c GrowConfig) (*growthLoad, error) {
	cl, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &growthLoad{client: cl, cancel: cancel}
	var reader *client.Session
	for i := range c.Writers {
		s, err := cl.Session(ctx, "/default")
		if err != nil {
			w.end()
			return nil, err
		}
		reader = s
		var lease *client.Lease
		w.run(ctx, true, time.Duration(c.Writers)*time.Second/time.Duration(c.Rate), func(n int) (err error) {
			switch n % 3 {
			case 0:
				_, err = s.Update(ctx, fmt.Sprintf("kept/%d", (i+n*c.Writers)%c.Names), []byte(strconv.Itoa(n)))
			case 1:
				lease, err = s.Acquire(ctx, fmt.Sprintf("lock/%d/%d", i, n), client.Ephemeral())
			case 2:
				err = lease.Release(ctx)
			}
			return err
		})
	}
	w.run(ctx, false, 10*time.Millisecond, func(n int) error {
		_, err := reader.Describe(ctx, fmt.Sprintf("kept/%d", n*7%c.Names), client.ReadConsistency(client.Strict))
		return err
	})
	return w, nil
}

// run calls fn so often, or one call after the other if they take longer, until ctx ends.
func (w *growthLoad) run(ctx context.Context, writes bool, every time.Duration, fn func(n int) error) {
	w.wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			t := time.Now()
			err := fn(n)
			d := time.Since(t)
			w.mu.Lock()
			switch {
			case err != nil && ctx.Err() == nil && w.current.err == nil:
				w.current.err = err
			case err != nil:
			case writes:
				w.current.writes++
				w.current.write = max(w.current.write, d)
				if d > stallThreshold*time.Millisecond {
					w.current.slow++
				}
			default:
				w.current.read = max(w.current.read, d)
			}
			w.mu.Unlock()
			_ = pause(ctx, every-d)
		}
	})
}

// reset is what there was since the last call.
func (w *growthLoad) reset() callStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.current
	w.current = callStats{}
	return x
}

func (w *growthLoad) end() {
	w.cancel()
	w.wg.Wait()
	w.client.Close()
}

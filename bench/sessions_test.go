// What do a million sessions cost a cluster, and do they outlive what happens to it?

package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestSessions measures a few sessions, or, in the form soak, a million.
func TestSessions(t *testing.T) {
	form.SkipUntil(t, form.Full, "starts servers one after the other")
	c := SessionsConfig{
		Sessions: 60, Holders: 10, Timeout: time.Minute, Clients: 2, Callers: 2, Rate: 50, Watch: 100 * time.Millisecond,
	}
	if form.Is(form.Soak) {
		c = DefaultSessions()
	}
	_, text := measured(t, "sessions", c.text(), c.run)
	for _, want := range []string{" sessions with a timeout", "| rolling restart: others' pairs, longest | "} {
		if !strings.Contains(text, want) {
			t.Errorf("the record does not say %q:\n%s", want, text)
		}
	}
}

// measured makes a measurement of signalbox and logs its table: of the binary in the form soak, and
// else of the test's own.
func measured(
	t *testing.T, name, text string, run func(context.Context, *SignalboxSystem, *longRun) error,
) (*Record, string) {
	t.Helper()
	system, log := &SignalboxSystem{Binary: self(t)}, io.Discard
	if form.Is(form.Soak) {
		system.Binary, log = binary.Signalbox(t), t.Output()
	}
	r, err := runLong(t.Context(), name, text, []System{system}, t.TempDir(), log,
		func(l *longRun) error { return run(t.Context(), system, l) })
	if err != nil {
		t.Fatal(err)
	}
	table := written(t, r.WriteTable)
	t.Log("\n" + table)
	return r, table
}

// SessionsConfig is the size of the test of many sessions on three instances.
type SessionsConfig struct {
	Sessions, Holders int           // a holder holds a lock
	Timeout           time.Duration // of the sessions
	Clients           int           // that the sessions share
	Callers           int           // others, each with a session, that lock and unlock names
	Rate              int           // pairs a second of all callers together
	Watch             time.Duration // how long nothing happens, for comparison, and the least time of each event
}

// DefaultSessions is the full size.
func DefaultSessions() SessionsConfig {
	return SessionsConfig{
		Sessions: 1_000_000, Holders: 100_000, Timeout: 2 * time.Minute, Clients: 16,
		Callers: 32, Rate: 200, Watch: 20 * time.Second,
	}
}

// text says what is done.
func (c SessionsConfig) text() string {
	return fmt.Sprintf("Three instances with a copy each. %s sessions with a timeout of %v share %d clients, and %s of "+
		"them hold a lock. Others lock and unlock at %d pairs/s in sessions with the default timeout, and none before its "+
		"last call was answered; a call that fails, a session that ends, or a lock that is lost fails the test. Each "+
		"event is watched until the cluster has nothing left to do and all sessions are attached again, and for %v at least.",
		loadgen.Thousands(fmt.Sprint(c.Sessions)), c.Timeout, c.Clients, loadgen.Thousands(fmt.Sprint(c.Holders)),
		c.Rate, c.Watch)
}

// run makes the measurement.
func (c SessionsConfig) run(ctx context.Context, system *SignalboxSystem, l *longRun) error {
	g, err := newGrowingCluster(ctx, system, l.dir, Servers, Servers, Servers)
	if err != nil {
		return err
	}
	defer g.stop()
	quota := uint64(c.Sessions + c.Callers)
	if _, err := admin.Nodes(g.operator).Alter(ctx, client.DefaultNode,
		admin.NodeConfig{MaxSessions: &quota}); err != nil {
		return err
	}
	empty, err := g.memory(ctx)
	if err != nil {
		return err
	}
	each := func(text string) error {
		now, err := g.memory(ctx)
		l.fact(text+": memory of a session in each instance", (now-empty)/float64(c.Sessions), Bytes)
		return err
	}
	t := time.Now()
	sessions, end, err := c.startSessions(ctx, g.clients())
	defer end()
	if err != nil {
		return err
	}
	l.fact("seconds to start the sessions", time.Since(t).Seconds(), "")
	logf(l.log, "%d sessions in %v", c.Sessions, time.Since(t).Round(time.Second))
	if err := each("before they hold anything"); err != nil {
		return err
	}
	leases := make([]*client.Lease, c.Holders)
	err = loadgen.Parallel(ctx, c.Holders, func(ctx context.Context, i int) (err error) {
		leases[i], err = sessions[i].Acquire(ctx, fmt.Sprintf("held/%d", i), client.Exclusive())
		return err
	})
	if err != nil {
		return err
	}
	if err := each("with the locks"); err != nil {
		return err
	}

	pairs := func(s *client.Session, i int) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			lease, err := s.Acquire(ctx, fmt.Sprintf("pair/%d/%d", i, n), client.Ephemeral())
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	load, stop, err := startSessionWriters(ctx, g.clients(), c.Callers, c.Rate, pairs)
	if err != nil {
		return err
	}
	defer stop()
	a := admin.New(g.operator)
	for _, e := range []struct {
		text string
		do   func() error
	}{
		{"nothing happens", func() error { return nil }},
		{"leader killed", func() error {
			i, err := leaderOfMost(ctx, g.clients())
			if err != nil {
				return err
			}
			g.processes[i].Kill()
			return g.start(ctx, i)
		}},
		{"snapshot of each shard", func() error { return g.snapshots(ctx, a) }},
		{"half of the buckets move to a new shard", func() error {
			s, err := a.Status(ctx)
			if err == nil {
				_, err = a.SetShards(ctx, "default", uint32(len(s.Shards)+1))
			}
			return err
		}},
		{"rolling restart", func() error {
			for i, p := range g.processes {
				p.Stop()
				if err := g.start(ctx, i); err != nil {
					return err
				}
				if err := g.grow(ctx, Servers); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		if _, err := load.take(); err != nil {
			return fmt.Errorf("before %q: %w", e.text, err)
		}
		t := time.Now()
		if err := e.do(); err != nil {
			return fmt.Errorf("%s: %w", e.text, err)
		}
		if err := g.grow(ctx, Servers); err != nil {
			return fmt.Errorf("%s: %w", e.text, err)
		}
		done := time.Since(t)
		if err := waitAttached(ctx, sessions); err != nil {
			return fmt.Errorf("%s: %w", e.text, err)
		}
		attached := time.Since(t)
		if err := pause(ctx, c.Watch-attached); err != nil {
			return err
		}
		x, err := load.take()
		if err != nil {
			return fmt.Errorf("%s: %w", e.text, err)
		}
		logf(l.log, "%s: %v, attached %v; %d pairs, p99 %v, longest %v", e.text, done.Round(time.Millisecond),
			attached.Round(time.Millisecond), x.writes, x.p99(), x.longest)
		l.fact(e.text+": nothing left to do, s", done.Seconds(), "")
		l.fact(e.text+": all attached again, s", attached.Seconds(), "")
		l.fact(e.text+": others' pairs, p99", x.p99().Seconds()*1e3, Milliseconds)
		l.fact(e.text+": others' pairs, longest", x.longest.Seconds()*1e3, Milliseconds)
	}
	if err := each("after all"); err != nil {
		return err
	}
	return loadgen.Parallel(ctx, len(leases), func(ctx context.Context, i int) error { return leases[i].Release(ctx) })
}

// startSessions starts the sessions; call end after an error too.
func (c SessionsConfig) startSessions(
	ctx context.Context, endpoints []string,
) (list []*client.Session, end func(), err error) {
	clients := make([]*client.Client, 0, c.Clients)
	end = func() {
		for _, cl := range clients {
			cl.Close()
		}
	}
	for range c.Clients {
		cl, err := client.Open(ctx, client.Config{Endpoints: endpoints})
		if err != nil {
			return nil, end, err
		}
		clients = append(clients, cl)
	}
	list = make([]*client.Session, c.Sessions)
	err = loadgen.Parallel(ctx, c.Sessions, func(ctx context.Context, i int) (err error) {
		list[i], err = clients[i%c.Clients].Session(ctx, client.DefaultNode, client.Timeout(c.Timeout))
		return err
	})
	return list, end, err
}

// waitAttached waits until all sessions are attached, and fails if one has ended.
func waitAttached(ctx context.Context, list []*client.Session) error {
	var ended error
	err := Poll(ctx, 100*time.Millisecond, func(context.Context) error {
		for i, s := range list {
			if ended = s.Err(); ended != nil {
				ended = fmt.Errorf("session %d of %d: %w", i+1, len(list), ended)
				return nil
			}
			if s.State() != client.Attached {
				return fmt.Errorf("session %d of %d is %v", i+1, len(list), s.State())
			}
		}
		return nil
	})
	return cmp.Or(ended, err)
}

// memory returns the mean memory of an instance, after it has collected its garbage.
func (g *growingCluster) memory(ctx context.Context) (mean float64, err error) {
	for _, p := range g.processes {
		if err := p.Collect(ctx); err != nil {
			return 0, err
		}
		u, err := p.Usage()
		if err != nil {
			return 0, err
		}
		mean += float64(u.Resident) / float64(len(g.processes))
	}
	return mean, nil
}

// snapshots has the leader of each data shard write a snapshot.
func (g *growingCluster) snapshots(ctx context.Context, a *admin.Client) error {
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	for _, x := range s.Shards {
		if err := a.Backup(ctx, x.ID, func(admin.Snapshot) (io.Writer, error) { return io.Discard, nil }); err != nil {
			return err
		}
	}
	return nil
}

// startSessionWriters starts a load of writers, each in a session of its own, at rate calls a
// second of all together. calls returns the function that a writer calls. end stops the load.
func startSessionWriters(
	ctx context.Context, endpoints []string, writers, rate int,
	calls func(s *client.Session, writer int) func(ctx context.Context, n int) error,
) (load *stallLoad, end func(), err error) {
	cl, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return nil, nil, err
	}
	load = newStallLoad(ctx, writers)
	end = func() {
		load.end()
		cl.Close()
	}
	for i := range writers {
		s, err := cl.Session(ctx, client.DefaultNode)
		if err != nil {
			end()
			return nil, nil, err
		}
		load.writer(i, time.Duration(writers)*time.Second/time.Duration(rate), calls(s, i))
	}
	return load, end, nil
}

// p99 is the time that 99 of 100 writes took at most.
func (s callStats) p99() time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[len(s.took)*99/100]
}

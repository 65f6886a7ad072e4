package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// RestartConfig is the size of the test of restarts and snapshots.
type RestartConfig struct {
	Names, Sessions int
	Rate            float64       // operations a second while snapshots are taken
	Watch           time.Duration // how long at most snapshots are waited for
	Snapshots       float64       // that are enough
}

// DefaultRestart is the one that the bar is about.
func DefaultRestart() RestartConfig {
	return RestartConfig{Names: 1_000_000, Sessions: 100_000, Rate: 4000, Watch: 4 * time.Minute, Snapshots: 8}
}

// restartCallers is how many operations may be under way in the steady load.
const restartCallers = 64

// sessionTimeout is longer than any restart may take, so that none of the sessions ends in one.
const sessionTimeout = 5 * time.Minute

// text implements longTest.
func (c RestartConfig) text() string {
	return fmt.Sprintf("%s semaphores and %s sessions. Pairs at %s/s go on while snapshots are taken, in windows of two seconds; "+
		"those in which no snapshot was under way say what the machine does by itself. Then the server is stopped and started, and killed and started.",
		loadgen.Thousands(fmt.Sprint(c.Names)), loadgen.Thousands(fmt.Sprint(c.Sessions)), digits(c.Rate))
}

// run. A server full of names and sessions takes snapshots under a steady load, is then
// stopped, started, killed, and started again.
func (c RestartConfig) run(ctx context.Context, l *longRun) error {
	s, err := l.system.startInstance(ctx, l.dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	target := signalboxTarget(s.addr[0])
	target.Timeout = sessionTimeout
	plan := Plan{Target: target, Connections: 16}

	if err := raiseQuota(ctx, plan, c.Names+restartCallers); err != nil {
		return err
	}
	t := time.Now()
	if err := fill(ctx, plan, c.Names, []byte("0123456789abcdef")); err != nil {
		return err
	}
	l.fact("seconds to make the semaphores", time.Since(t).Seconds(), "", 0)
	logf(l.log, "%d names in %v", c.Names, time.Since(t).Round(time.Millisecond))
	t = time.Now()
	sessions, err := openIdleSessions(ctx, plan, c.Sessions)
	defer sessions.close()
	if err != nil {
		return err
	}
	l.fact("seconds to start the sessions", time.Since(t).Seconds(), "", 0)
	logf(l.log, "%d sessions in %v", c.Sessions, time.Since(t).Round(time.Millisecond))
	if u, err := s.Process().Usage(); err == nil {
		l.fact("server memory with all of them", float64(u.Resident), Bytes, 0)
	}

	quiet, busy, snapshots, err := c.stalls(ctx, s, plan, l.log)
	if err != nil {
		return err
	}
	l.fact("snapshots that were taken", snapshots, "", 0)
	l.fact("slowest operation in a window without a snapshot, median", StatOf(quiet).Median, Milliseconds, 0)
	l.fact("slowest operation in a window without a snapshot", StatOf(quiet).High, Milliseconds, 0)
	l.fact("slowest operation in a window with a snapshot, median", StatOf(busy).Median, Milliseconds, 0)
	l.fact("slowest operation in a window with a snapshot, beyond the median without",
		StatOf(busy).High-StatOf(quiet).Median, Milliseconds, 20)

	for _, how := range []struct {
		text string
		end  func(*Process)
	}{{"stopped", (*Process).Stop}, {"killed", (*Process).Kill}} {
		how.end(s.Process())
		t = time.Now()
		if err := s.Restart(ctx, 0); err != nil {
			return err
		}
		ready := time.Since(t)
		m, err := loadgen.ReadMetrics(ctx, s.addr[2])
		if err != nil {
			return err
		}
		if int(m["signalbox_shard_semaphores"]) < c.Names || int(m["signalbox_shard_sessions"]) < c.Sessions {
			return fmt.Errorf("after it was %s it has %v semaphores and %v sessions",
				how.text, m["signalbox_shard_semaphores"], m["signalbox_shard_sessions"])
		}
		l.fact("ms until it is ready after it was "+how.text, ready.Seconds()*1e3, Milliseconds, 10_000)
		logf(l.log, "%s: ready after %v", how.text, ready.Round(time.Millisecond))
		// The first answer to a new client, who comes when all sessions attach again.
		t = time.Now()
		if err := firstLock(ctx, plan.Target); err != nil {
			return err
		}
		l.fact("ms from there to the first lock of a new client", time.Since(t).Seconds()*1e3, Milliseconds, 0)
	}
	if err := sessions.checkAlive(); err != nil {
		return err
	}
	return nil
}

// stalls runs windows of load until enough snapshots were taken, and tells the slowest operation of
// each: of the quiet ones, and of those in which a snapshot began or ended, and their neighbours,
// since saving one takes longer than a window.
func (c RestartConfig) stalls(
	ctx context.Context, s *instance, plan Plan, log io.Writer,
) (quiet, busy []float64, snapshots float64, err error) {
	scenario, err := loadgen.Find("lock-pairs")
	if err != nil {
		return nil, nil, 0, err
	}
	count := func() (float64, error) {
		m, err := loadgen.ReadMetrics(ctx, s.addr[2])
		return m["signalbox_shard_snapshots_total"], err
	}
	begin, err := count()
	if err != nil {
		return nil, nil, 0, err
	}
	last := begin
	type window struct {
		slowest float64
		touched bool
	}
	var windows []window
	for end := time.Now().Add(c.Watch); time.Now().Before(end) && last-begin < c.Snapshots; {
		out, err := loadgen.Run(ctx, loadgen.Config{Scenario: scenario, Target: plan.Target, Connections: 4,
			Callers: restartCallers, Rate: c.Rate, WarmUp: 200 * time.Millisecond, Duration: 2 * time.Second})
		if err != nil {
			return nil, nil, 0, err
		}
		if out.Operations == 0 {
			return nil, nil, 0, errors.New("restart: the server answered nothing")
		}
		now, err := count()
		if err != nil {
			return nil, nil, 0, err
		}
		o := outcome{Result: out}
		windows = append(windows, window{o.ms("pair", 100), now > last})
		logf(log, "slowest of a window: %s ms, snapshots: %v", digits(o.ms("pair", 100)), now-begin)
		last = now
	}
	for i, w := range windows {
		if w.touched || i > 0 && windows[i-1].touched || i+1 < len(windows) && windows[i+1].touched {
			busy = append(busy, w.slowest)
		} else {
			quiet = append(quiet, w.slowest)
		}
	}
	return quiet, busy, last - begin, nil
}

// firstLock locks and unlocks a name of its own with a connection of its own.
func firstLock(ctx context.Context, t loadgen.Target) error {
	conn, err := t.Open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.Session(ctx)
	if err != nil {
		return err
	}
	h, ok := session.(loadgen.CanAcquire)
	if !ok {
		return errors.New("the target cannot lock")
	}
	held, err := h.Acquirer(loadgen.AcquireOptions{}).Acquire(ctx, "first")
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// sharedRate is what the sessions of the test of shares have together.
const sharedRate = 1000

// shares measures how long it takes until shares follow a change of demand.
func (c RateLimitConfig) shares(ctx context.Context, l *longRun, s *instance) error {
	var users [3]*limitUser
	for i := range users {
		var err error
		if users[i], err = newLimitUser(ctx, s, ""); err != nil {
			return err
		}
		defer users[i].close()
	}
	if _, err := ratelimit.Create(ctx, users[0].session, "api", ratelimit.Config{Rate: ratelimit.PerSecond(sharedRate)}); err != nil {
		return err
	}
	var calling sync.WaitGroup
	defer calling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := func(u *limitUser) (end func()) { // has its calls wait for units
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		calling.Go(func() {
			defer close(done)
			for u.limiter.Wait(ctx, 10) == nil {
			}
		})
		return func() { cancel(); <-done }
	}
	has := func(u *limitUser, part float64) func() bool {
		return func() bool { return u.limiter.Stats().Rate > 0.94*part*sharedRate }
	}
	for _, u := range users[:2] {
		if err := u.open(ctx, "api"); err != nil {
			return err
		}
		begin(u)
	}
	for _, u := range users[:2] {
		if err := await(ctx, has(u, 0.5)); err != nil {
			return err
		}
	}
	events := []string{"a session joins, and its calls wait", "the calls of a session end", "its calls wait again", "the session leaves"}
	delays := make([][]float64, len(events))
	for range c.Steps {
		u := users[2]
		var end func()
		for k, step := range []struct {
			do   func() error
			seen func() bool
		}{
			{func() error { err := u.open(ctx, "api"); end = begin(u); return err }, has(u, 1./3)},
			{func() error { end(); return nil }, has(users[0], 0.5)},
			{func() error { end = begin(u); return nil }, has(u, 1./3)},
			{func() error { end(); return u.limiter.Close(ctx) }, has(users[0], 0.5)},
		} {
			begun := time.Now()
			if err := step.do(); err != nil {
				return err
			}
			if err := await(ctx, step.seen); err != nil {
				return fmt.Errorf("%s: %w", events[k], err)
			}
			delays[k] = append(delays[k], time.Since(begun).Seconds()*1e3)
			if err := pause(ctx, c.Length/4); err != nil { // its refreshes come at other times
				return err
			}
		}
	}
	for k, event := range events {
		bar := sharesBar
		if k == 1 { // what nobody waits for is left to a session for as long as its demand is an average of
			bar = 0
		}
		l.fact(event+": the new shares, p50", StatOf(delays[k]).Median, Milliseconds, bar)
		l.fact(event+": at most", StatOf(delays[k]).High, Milliseconds, 0)
	}
	return nil
}

var errNotYet = errors.New("the new shares do not come")

// await waits until something holds.
func await(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return Poll(ctx, time.Millisecond, func(context.Context) error {
		if holds() {
			return nil
		}
		return errNotYet
	})
}

// participants measures what many sessions that share a limit cost the server.
func (c RateLimitConfig) participants(ctx context.Context, l *longRun, s *instance) error {
	fleet, err := c.newFleet(ctx, s)
	defer fleet.close()
	if err != nil {
		return err
	}
	resident := func() float64 {
		_ = s.collect(ctx)
		u, _ := s.Usage()
		return float64(u.Resident)
	}
	before := resident()
	begun := time.Now()
	if err := fleet.join(ctx); err != nil {
		return err
	}
	l.fact("seconds in which they all join", time.Since(begun).Seconds(), "", 0)
	n := float64(c.Participants)
	for _, x := range []struct {
		what string
		rate float64
	}{{"all calls admitted", 20 * n}, {"half of the calls denied", 5 * n}} {
		if _, err := ratelimit.Alter(ctx, fleet.operator.session, "api", 0, ratelimit.Config{Rate: ratelimit.PerSecond(x.rate)}); err != nil {
			return err
		}
		calling, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); fleet.call(calling) }()
		cores, refreshes, err := c.watch(ctx, s)
		end()
		<-ended
		if err != nil {
			return err
		}
		l.fact(x.what+": cores of the server", cores, "", fleetBar)
		l.fact(x.what+": CPU of a session and second", cores/n*1e6, Microseconds, 0)
		l.fact(x.what+": refreshes of all sessions", refreshes, PerSecond, 0)
	}
	l.fact("memory of a participant", (resident()-before)/n, Bytes, 0)
	begun = time.Now()
	if err := fleet.leave(ctx); err != nil {
		return err
	}
	l.fact("seconds in which they all leave", time.Since(begun).Seconds(), "", 0)
	if err := pause(ctx, c.Watch/3); err != nil { // longer than their leases
		return err
	}
	l.fact("memory of a participant that has left", (resident()-before)/n, Bytes, 0)
	return nil
}

// watch is what the server uses while the participants call, after a while for their shares to settle.
func (c RateLimitConfig) watch(ctx context.Context, s *instance) (cores, refreshes float64, err error) {
	if err := pause(ctx, c.Watch/3); err != nil {
		return 0, 0, err
	}
	count := func() float64 {
		m, e := loadgen.ReadMetrics(ctx, s.addr[2])
		err = errors.Join(err, e)
		return m["signalbox_limit_refreshes_total"]
	}
	before := count()
	cpu, e := s.cpuOver(ctx, c.Watch)
	return cpu.Seconds() / c.Watch.Seconds(), (count() - before) / c.Watch.Seconds(), errors.Join(err, e)
}

// limitFleet is many sessions over few connections.
type limitFleet struct {
	operator *limitUser
	clients  []*client.Client
	sessions []*client.Session
	limiters []*ratelimit.Limiter
}

// leavesOfFleet is how many leaves their limit has.
const leavesOfFleet = 10

func (c RateLimitConfig) newFleet(ctx context.Context, s *instance) (f *limitFleet, err error) {
	f = &limitFleet{}
	if f.operator, err = newLimitUser(ctx, s, ""); err != nil {
		return f, err
	}
	if _, err := ratelimit.Create(ctx, f.operator.session, "api", ratelimit.Config{Rate: ratelimit.PerSecond(20 * float64(c.Participants))}); err != nil {
		return f, err
	}
	for i := range leavesOfFleet {
		if _, err := ratelimit.Create(ctx, f.operator.session, leafOfFleet(i), ratelimit.Config{}); err != nil {
			return f, err
		}
	}
	for range c.Connections {
		cl, err := client.Open(ctx, client.Config{Endpoints: []string{s.addr[0]}})
		if err != nil {
			return f, err
		}
		f.clients = append(f.clients, cl)
	}
	f.sessions = make([]*client.Session, c.Participants)
	return f, f.each(func(i int) (err error) {
		f.sessions[i], err = f.clients[i%len(f.clients)].Session(ctx, client.DefaultNode, client.Timeout(time.Minute))
		return err
	})
}

func leafOfFleet(i int) string { return "api/tenant-" + string(rune('a'+i%leavesOfFleet)) }

// each does something for all sessions, for 64 at a time.
func (f *limitFleet) each(do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, 64)
	for k := range errs {
		all.Go(func() {
			for i := k; i < len(f.sessions) && errs[k] == nil; i += len(errs) {
				errs[k] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// join has all sessions take part.
func (f *limitFleet) join(ctx context.Context) error {
	f.limiters = make([]*ratelimit.Limiter, len(f.sessions))
	return f.each(func(i int) (err error) {
		f.limiters[i], err = ratelimit.JoinSession(ctx, f.sessions[i], leafOfFleet(i))
		return err
	})
}

// leave has none take part any more.
func (f *limitFleet) leave(ctx context.Context) error {
	return f.each(func(i int) error { return f.limiters[i].Close(ctx) })
}

// call has each session call ten times a second, until ctx ends.
func (f *limitFleet) call(ctx context.Context) {
	const parts = 100 // of a second
	each := len(f.limiters)/(parts/10) + 1
	t := time.NewTicker(time.Second / parts)
	defer t.Stop()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for range each {
			f.limiters[i%len(f.limiters)].Allow(1)
			i++
		}
	}
}

func (f *limitFleet) close() {
	if f.operator != nil {
		f.operator.close()
	}
	var all sync.WaitGroup
	for _, c := range f.clients {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
}

// pairs measures pairs with and without a limit in use, in turns.
func (c RateLimitConfig) pairs(ctx context.Context, l *longRun, s *instance) error {
	scenario, err := loadgen.Find("lock-pairs")
	if err != nil {
		return err
	}
	some := c
	some.Participants, some.Connections = 100, 10
	fleet, err := some.newFleet(ctx, s)
	defer fleet.close()
	if err != nil {
		return err
	}
	plan, err := s.Plan(LockPairs)
	if err != nil {
		return err
	}
	var rates [2][]float64
	for round := range c.Rounds {
		for k := range rates {
			with := (k+round)%2 == 1 // the order turns around in every other one
			calling, end := context.WithCancel(ctx)
			ended := make(chan struct{})
			if with {
				if err := fleet.join(ctx); err != nil {
					end()
					return err
				}
				go func() { defer close(ended); fleet.call(calling) }()
			} else {
				close(ended)
			}
			out, err := loadgen.Run(ctx, loadgen.Config{Scenario: scenario, Target: plan.Target, Connections: plan.Connections,
				Callers: c.Callers, WarmUp: c.Length / 2, Duration: 2 * c.Length})
			end()
			<-ended
			if err == nil && with {
				err = fleet.leave(ctx)
			}
			if err != nil {
				return err
			}
			which := 0
			if with {
				which = 1
			}
			rates[which] = append(rates[which], float64(out.Operations)/(2*c.Length).Seconds())
		}
	}
	l.fact("pairs/s without a limit in use", StatOf(rates[0]).Median, PerSecond, 0)
	l.fact("pairs/s with one", StatOf(rates[1]).Median, PerSecond, 0)
	l.fact("with to without", StatOf(ratios(rates[1], rates[0])).Median, "", 0)
	return nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// RateLimitConfig is the size of the test of rate limits.
type RateLimitConfig struct {
	Rounds       int           // of decisions, and of pairs beside a tree
	Length       time.Duration // of each measurement in a round
	Steps        int           // how often a session joins, asks for more, and leaves
	Participants int
	Connections  int           // of the participants
	Watch        time.Duration // for how long their server is watched
	Callers      int           // of pairs

	peers []RateLimiter
}

// DefaultRateLimit is the one that the bar is about.
func DefaultRateLimit() RateLimitConfig {
	return RateLimitConfig{Rounds: 7, Length: 2 * time.Second, Steps: 20, Participants: 10_000, Connections: 100, Watch: 30 * time.Second, Callers: 1024}
}

// RateLimiter is a system that decides about each call of a rate limit by a request.
type RateLimiter interface {
	Name() string
	Version(ctx context.Context) (string, error)

	// StartRateLimiter starts it on an empty folder, as it is used for rate limits, with one limit in
	// units per second, of which a burst may be used at once. stop ends its client and its server. It
	// returns ErrUnsupported for a client that another system measures.
	StartRateLimiter(ctx context.Context, dir string, rate, burst uint64) (decide Decider, stop func(), err error)
}

// Decider decides about one call of a rate limit: whether it is admitted.
type Decider func(ctx context.Context) (bool, error)

// manyCallers decide at once, beside one alone.
const manyCallers = 64

// plenty is a rate that no measurement reaches: all calls are admitted.
const plenty = 1_000_000_000

// Bars.
const (
	aloneBar  = 1     // us, p99 of a local decision
	manyBar   = 100   // us, by manyCallers
	fleetBar  = 0.4   // cores of the server with all participants
	sharesBar = 300.0 // ms from a step of demand to the new shares
)

// text implements longTest.
func (c RateLimitConfig) text() string {
	return fmt.Sprintf("First decisions about calls that are admitted: local ones with a lease, and by a request for each, in %d turns of %v. "+
		"The clock that times each decision counts with it. Then three sessions share a limit of 1,000 units/s with leases of 3 s, and one of them "+
		"joins, begins to call, and leaves, %d times; a delay counts until its lease, or that of another one, has its share. Then %s sessions "+
		"over %d connections share a limit with ten leaves and leases of 3 s. Each calls ten times a second: first with all calls admitted, then "+
		"with half of them denied. At last %d callers lock and unlock, in turns with and without 100 sessions that use a limit.",
		c.Rounds, c.Length, c.Steps, loadgen.Thousands(fmt.Sprint(c.Participants)), c.Connections, c.Callers)
}

// run implements longTest.
func (c RateLimitConfig) run(ctx context.Context, l *longRun) error {
	for _, part := range []struct {
		name string
		run  func(context.Context, *longRun, *instance) error
	}{{"decisions", c.decisions}, {"shares", c.shares}, {"participants", c.participants}, {"pairs", c.pairs}} {
		logf(l.log, "%s", part.name)
		dir := filepath.Join(l.dir, part.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		s, err := l.system.startInstance(ctx, dir)
		if err != nil {
			return err
		}
		err = part.run(ctx, l, s)
		s.Stop()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// rateLimitCommand measures rate limits, beside those systems that decide by requests.
func rateLimitCommand(ctx context.Context, args []string, stdout, stderr io.Writer, all func(bin string) []System) error {
	f := newFlags("ratelimit", stderr)
	part := f.Int("part", 1, "run one part in so many, which is no test of the bar")
	if f.Parse(args) != nil {
		return errUsage
	}
	if *part < 1 {
		return badUsage(stderr, "--part is at least 1\n")
	}
	c, n := DefaultRateLimit(), *part
	c.Rounds, c.Length, c.Steps = max(1, c.Rounds/n), c.Length/time.Duration(n), max(1, c.Steps/n)
	c.Participants, c.Connections, c.Watch = max(20, c.Participants/n), max(1, c.Connections/n), c.Watch/time.Duration(n)
	for _, x := range all(*f.bin) {
		if p, ok := x.(RateLimiter); ok {
			c.peers = append(c.peers, p)
		}
	}
	r, err := runLong(ctx, "ratelimit", c, &SignalboxSystem{Binary: filepath.Join(*f.bin, "signalbox")}, *f.dir, stderr)
	if err != nil {
		return err
	}
	return finish(r, *f.out, stdout, stderr)
}

// rateSystem is a system whose decisions are measured.
type rateSystem struct {
	name   string
	decide Decider
	counts [2][]float64 // decisions a second by round: of one caller, of many
	p99    [2][]float64 // us
	p50    [2][]float64
}

// decisions measures local ones beside those of other systems, in turns.
func (c RateLimitConfig) decisions(ctx context.Context, l *longRun, s *instance) error {
	user, err := newLimitUser(ctx, s, "")
	if err != nil {
		return err
	}
	defer user.close()
	if _, err := ratelimit.Create(ctx, user.session, "api", ratelimit.Config{Rate: ratelimit.PerSecond(plenty)}); err != nil {
		return err
	}
	if err := user.open(ctx, "api"); err != nil {
		return err
	}
	if err := user.limiter.Wait(ctx, 1000); err != nil { // its lease has begun, and is not empty
		return err
	}
	systems := []*rateSystem{{name: Signalbox, decide: func(context.Context) (bool, error) { return user.limiter.Allow(1), nil }}}
	for _, p := range c.peers {
		version, err := p.Version(ctx)
		if err != nil {
			logf(l.log, "%s is missing: %v", p.Name(), err)
			continue
		}
		dir := filepath.Join(l.dir, p.Name())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		decide, stop, err := p.StartRateLimiter(ctx, dir, plenty, plenty)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
		defer stop()
		l.Version += "; " + strings.Split(version, ",")[0] + ", nothing on disk; rueidis"
		systems = append(systems, &rateSystem{name: p.Name(), decide: decide})
	}
	for round := range c.Rounds {
		for k, callers := range []int{1, manyCallers} {
			for i := range systems {
				if round%2 == 1 { // the order turns around in every other one
					i = len(systems) - 1 - i
				}
				if err := systems[i].measure(ctx, k, callers, c.Length); err != nil {
					return fmt.Errorf("%s: %w", systems[i].name, err)
				}
			}
		}
		logf(l.log, "round %d of %d", round+1, c.Rounds)
	}
	for k, callers := range []string{"one caller", fmt.Sprintf("%d callers", manyCallers)} {
		for i, x := range systems {
			what, bar := "a request for each through "+x.name, 0.0
			if i == 0 {
				what, bar = "local", [2]float64{aloneBar, manyBar}[k]
			}
			l.fact(callers+", "+what+": decisions/s", StatOf(x.counts[k]).Median, PerSecond, 0)
			l.fact(callers+", "+what+": p50", StatOf(x.p50[k]).Median, Microseconds, 0)
			l.fact(callers+", "+what+": p99", StatOf(x.p99[k]).Median, Microseconds, bar)
		}
		for _, x := range systems[1:] {
			l.fact(callers+", local to "+x.name+": decisions/s", StatOf(ratios(systems[0].counts[k], x.counts[k])).Median, "", 0)
			l.fact(callers+", "+x.name+" to local: p99", StatOf(ratios(x.p99[k], systems[0].p99[k])).Median, "", 0)
		}
	}
	return nil
}

var errDenied = errors.New("a call was denied, though the limit is far away")

// measure has callers decide for a while.
func (x *rateSystem) measure(ctx context.Context, k, callers int, length time.Duration) error {
	times := make([]*hdrhistogram.Histogram, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	begun := time.Now()
	warm, end := begun.Add(length/4), begun.Add(length*5/4)
	for i := range callers {
		times[i] = hdrhistogram.New(1, int64(time.Minute), 3)
		all.Go(func() {
			for t := time.Now(); t.Before(end); {
				ok, err := x.decide(ctx)
				now := time.Now()
				if err == nil && !ok {
					err = errDenied
				}
				if err != nil {
					errs[i] = err
					return
				}
				if t.After(warm) {
					_ = times[i].RecordValue(int64(now.Sub(t)))
				}
				t = now
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, h := range times[1:] {
		times[0].Merge(h)
	}
	x.counts[k] = append(x.counts[k], float64(times[0].TotalCount())/length.Seconds())
	x.p50[k] = append(x.p50[k], float64(times[0].ValueAtPercentile(50))/1e3)
	x.p99[k] = append(x.p99[k], float64(times[0].ValueAtPercentile(99))/1e3)
	return nil
}

// limitUser is a session that uses a limit, with a connection of its own.
type limitUser struct {
	client  *client.Client
	session *client.Session
	limiter *ratelimit.Limiter
}

func newLimitUser(ctx context.Context, s *instance, path string) (*limitUser, error) {
	c, err := client.Open(ctx, client.Config{Endpoints: []string{s.addr[0]}})
	if err != nil {
		return nil, err
	}
	u := &limitUser{client: c}
	if u.session, err = c.Session(ctx, client.DefaultNode, client.Timeout(time.Minute)); err == nil && path != "" {
		err = u.open(ctx, path)
	}
	if err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

func (u *limitUser) open(ctx context.Context, path string) (err error) {
	u.limiter, err = ratelimit.JoinSession(ctx, u.session, path)
	return err
}

func (u *limitUser) close() { _ = u.client.Close() }

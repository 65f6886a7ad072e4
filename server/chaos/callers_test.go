package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/chaos/history"
)

// callersEnv tells the test binary to be the callers of a checked run: a callersSpec.
const callersEnv = "SIGNALBOX_CHAOS_CALLERS"

// callersSpec is what they are told.
type callersSpec struct {
	Endpoints []string
	Seed      uint64
	History   string // the file that has all calls when the process has ended
}

// Timeouts of the callers' sessions. Most live through what is done to the cluster; those of the last lanes end when their process, or all instances, stand still for longer.
const (
	callersTimeout   = loadTimeout
	callersShort     = 3 * time.Second
	callersShortFrom = 6
)

// Lanes that only write configurations and read them relaxed a moment later. A write that an
// instance answered just before its end is the last one of its client then.
const (
	callersWritersFrom = 3
	callersWritersTo   = callersShortFrom
	callersMoment      = 80 * time.Millisecond
)

// What callers do in one round of names. Few calls a name keep the search for an order short: one name's calls of which many overlap, or have no outcome, are what makes it long.
const (
	callersLanes      = 8 // each a client of its own, so that a process that dies cuts some of them only
	callersPerRound   = 12
	callersSemaphores = 3 // of limits 1, 2, 3
	callersConfigs    = 2
)

// callers are the clients of a checked run. All that they call is in the history.
type callers struct {
	endpoints []string

	mu  sync.Mutex
	ops []history.Op

	stores sync.Mutex
	tokens map[string]uint64 // the highest token that was written with, by name
}

func (x *callers) note(op history.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ops = append(x.ops, op)
}

// timed makes a call and notes it. The outcome of one that failed in no way of its own is unknown.
func (x *callers) timed(op history.Op, call func(ctx context.Context, op *history.Op) error) history.Op {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	op.Call = int64(now())
	err := call(ctx, &op)
	op.Return = int64(now())
	switch {
	case err == nil:
		op.Result = history.OK
	case errors.Is(err, client.ErrOutcomeUnknown):
		op.Result, op.Return, op.Why = history.Unknown, history.Never, err.Error()
	case errors.Is(err, client.ErrNotAcquired):
		op.Result = history.NotAcquired
	case errors.Is(err, client.NotFound):
		op.Result = history.NotFound
	case errors.Is(err, client.AlreadyExists):
		op.Result = history.Exists
	case errors.Is(err, client.PreconditionFailed):
		op.Result = history.Refused
	default:
		op.Result, op.Return, op.Why = history.Unknown, history.Never, err.Error()
	}
	x.note(op)
	return op
}

// call is the main function of the callers' process. On SIGTERM it finishes the round, looks once more at all that was written, and leaves the history.
func call(text string) int {
	failed := func(err error) int {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	var spec callersSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return failed(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	x := &callers{endpoints: spec.Endpoints, tokens: map[string]uint64{}}
	rounds, err := x.run(ctx.Done(), spec.Seed)
	if err != nil {
		return failed(err)
	}
	f, err := os.Create(spec.History)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	buffered := bufio.NewWriter(f)
	out := history.NewWriter(buffered)
	for i, op := range x.ops {
		if err := out.End(uint64(i+1), op); err != nil {
			return failed(err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return failed(err)
	}
	say(report{Event: "rounds", Session: uint64(rounds)})
	return 0
}

// run has all callers make one round after the other until it is told to stop. Names are used for one round only, and read again now and then, and at the end.
func (x *callers) run(stop <-chan struct{}, seed uint64) (rounds int, err error) {
	var all []*caller
	for lane := range callersLanes {
		c, err := x.open(lane)
		if err != nil {
			return 0, err
		}
		defer c.c.Close()
		all = append(all, c)
	}
	// together has every caller do something at once.
	together := func(do func(i int, c *caller) error) error {
		var lanes sync.WaitGroup
		errs := make([]error, len(all))
		for i, c := range all {
			lanes.Go(func() { errs[i] = do(i, c) })
		}
		lanes.Wait()
		return errors.Join(errs...)
	}
	say(report{Event: "ready"})
	for ; ; rounds++ {
		select {
		case <-stop:
			// What was acknowledged at any time must be there now.
			return rounds, together(func(i int, c *caller) error {
				if err := c.begin(); err != nil {
					return err
				}
				for round := i; round < rounds; round += len(all) {
					c.lookBack(round)
				}
				c.end()
				return nil
			})
		default:
		}
		if err := all[0].prepare(rounds); err != nil {
			return rounds, err
		}
		err := together(func(i int, c *caller) error {
			r := rand.New(rand.NewPCG(seed, uint64(rounds)<<8|uint64(i)))
			if err := c.round(rounds, r); err != nil {
				return err
			}
			if i < 3 {
				c.nodes(rounds, r)
			}
			return nil
		})
		if err != nil {
			return rounds, err
		}
		say(report{Event: "round"})
	}
}

// caller is one client, and its session of this round.
type caller struct {
	*callers
	lane  int
	c     *client.Client
	s     *client.Session
	at    map[string]bool // names that the session may be at
	alive int64           // when it was last known to live
	sick  bool            // a call had no outcome: what the session has is not known
}

func (x *callers) open(lane int) (*caller, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: x.endpoints, Name: fmt.Sprintf("caller-%d", lane)})
	return &caller{callers: x, lane: lane, c: c}, err
}

// begin starts a session.
func (x *caller) begin() error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	timeout := callersTimeout
	if x.lane >= callersShortFrom {
		timeout = callersShort
	}
	s, err := x.c.Session(ctx, nodePath, client.Timeout(timeout))
	if err != nil {
		return err
	}
	x.s, x.at, x.sick, x.alive = s, map[string]bool{}, false, int64(now())
	return nil
}

// end ends the session, with what it may hold.
func (x *caller) end() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if x.s.Held() {
		x.alive = int64(now())
	}
	err := x.s.Close(ctx)
	gone := int64(now())
	if err != nil || !errors.Is(x.s.Err(), client.ErrSessionClosed) {
		gone = history.Never // one that nobody vouched for in time is over for its client; the server may need longer to find out
	}
	for name := range x.at {
		x.note(history.Op{Kind: history.Ended, Name: name, Lane: x.lane, Session: x.s.ID(), Call: x.alive, Return: gone, Result: history.OK})
	}
}

// on is a call on behalf of the session.
func (x *caller) on(kind history.Kind, name string) history.Op {
	return history.Op{Kind: kind, Name: name, Lane: x.lane, Process: x.lane, Session: x.s.ID()}
}

func (x *caller) did(op history.Op) history.Op {
	if op.Result == history.Unknown {
		x.sick = true
	}
	return op
}

func semaphoreOf(round, k int) string { return fmt.Sprintf("r%d/sem-%d", round, k) }
func configOf(round, k int) string    { return fmt.Sprintf("r%d/conf-%d", round, k) }

// prepare makes a round's semaphores.
func (x *caller) prepare(round int) error {
	if err := x.begin(); err != nil {
		return err
	}
	for k := range callersSemaphores {
		op := x.on(history.Create, semaphoreOf(round, k))
		op.Limit = uint64(k + 1)
		x.timed(op, func(ctx context.Context, op *history.Op) error { return x.s.Create(ctx, op.Name, op.Limit, nil) })
	}
	x.end()
	return nil
}

// round makes a round's calls.
func (x *caller) round(round int, r *rand.Rand) error {
	if err := x.begin(); err != nil {
		return err
	}
	versions := make([]uint64, callersConfigs)
	for i := range callersPerRound {
		if x.sick { // it goes on as another one
			x.end()
			if err := x.begin(); err != nil {
				return err
			}
		}
		switch n := r.IntN(10); {
		case x.lane >= callersWritersFrom && x.lane < callersWritersTo:
			x.readOwn(configOf(round, r.IntN(callersConfigs)), fmt.Sprintf("%d.%d.%d", round, x.lane, i), r)
		case n < 6:
			x.hold(semaphoreOf(round, r.IntN(callersSemaphores)), r)
		case n < 7:
			x.describe(semaphoreOf(round, r.IntN(callersSemaphores)))
		default:
			k := r.IntN(callersConfigs)
			x.configure(configOf(round, k), &versions[k], fmt.Sprintf("%d.%d.%d", round, x.lane, i), r.IntN(4))
		}
	}
	if round > 0 && r.IntN(4) == 0 {
		x.lookBack(r.IntN(round))
	}
	x.end()
	return nil
}

// lookBack reads what is left of a round that is over: two configurations, and a semaphore that nobody has.
func (x *caller) lookBack(round int) {
	for k := range callersConfigs {
		x.get(history.Get, configOf(round, k), client.Strict)
	}
	x.describe(semaphoreOf(round, round%callersSemaphores))
}

// hold acquires, relies on what it got, and gives it back.
func (x *caller) hold(name string, r *rand.Rand) {
	var lease *client.Lease
	var accepted sync.Mutex
	op := x.on(history.Acquire, name)
	op.Count = 1
	if r.IntN(4) == 0 && name[len(name)-1] != '0' {
		op.Count = 2 // the smallest has one only
	}
	wait := []time.Duration{0, 50 * time.Millisecond, 2 * time.Second}[r.IntN(3)]
	op.Try = wait == 0
	x.at[name] = true
	op = x.did(x.timed(op, func(ctx context.Context, op *history.Op) (err error) {
		lease, err = x.s.Acquire(ctx, name, client.Count(op.Count), client.Wait(wait), client.OnAccepted(func(order uint64) {
			accepted.Lock()
			defer accepted.Unlock()
			if op.Queued == 0 { // told again after a connection was lost
				op.Queued, op.Order = int64(now()), order
			}
		}))
		accepted.Lock()
		defer accepted.Unlock()
		if err == nil {
			op.Token = lease.Token()
		}
		return err
	}))
	if op.Result != history.OK {
		return
	}
	x.rely(lease, time.Duration(r.IntN(5))*time.Millisecond)
	if lease.Count() > 1 && r.IntN(2) == 0 {
		low := x.on(history.Lower, name)
		low.Count, low.Token = 1, lease.Token()
		if x.did(x.timed(low, func(ctx context.Context, op *history.Op) error { return lease.Reduce(ctx, 1) })).Result != history.OK {
			return
		}
	}
	back := x.on(history.Release, name)
	back.Token = lease.Token()
	x.did(x.timed(back, func(ctx context.Context, _ *history.Op) error { return lease.Release(ctx) }))
}

// rely does what a lease is for: it believes in it for a while, and writes with its token to a store that refuses lower ones.
func (x *caller) rely(lease *client.Lease, d time.Duration) {
	op := x.on(history.Believed, lease.Name())
	op.Count, op.Token, op.Result = lease.Count(), lease.Token(), history.OK
	if !lease.Held() {
		return
	}
	op.Call = int64(now())
	if lease.Name()[len(op.Name)-1] == '0' {
		x.write(lease)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for op.Return = op.Call; ; <-look.C {
		at := int64(now())
		if !lease.Held() {
			break
		}
		if op.Return = at; at-op.Call >= int64(d) {
			break
		}
	}
	x.note(op)
}

func (x *caller) write(lease *client.Lease) {
	x.stores.Lock()
	defer x.stores.Unlock()
	op := x.on(history.Fenced, lease.Name())
	op.Call, op.Token, op.Seen = int64(now()), lease.Token(), x.tokens[lease.Name()]
	if op.Token < op.Seen {
		op.Result = history.Refused
		if lease.Held() {
			op.Count = 1
		}
	} else {
		op.Result = history.OK
		x.tokens[lease.Name()] = op.Token
	}
	op.Return = op.Call
	x.note(op)
}

func (x *caller) describe(name string) {
	torn := false
	x.timedUnless(&torn, x.on(history.Describe, name), func(ctx context.Context, op *history.Op) error {
		d, err := x.s.Describe(ctx, name, client.IncludeOwners(), client.IncludeWaiters(), client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		torn, op.Limit = d.Torn, d.Limit
		for _, o := range d.Owners {
			op.Owners = append(op.Owners, history.Entry{Session: o.Session, Count: o.Count, Order: o.Token})
		}
		for _, w := range d.Waiters {
			op.Waiters = append(op.Waiters, history.Entry{Session: w.Session, Count: w.Count, Order: w.Token})
		}
		return nil
	})
}

// timedUnless is timed, but for an answer that turns out to be of several moments.
func (x *caller) timedUnless(skip *bool, op history.Op, call func(ctx context.Context, op *history.Op) error) {
	x.timed(op, func(ctx context.Context, op *history.Op) error {
		for {
			op.Call, op.Owners, op.Waiters = int64(now()), nil, nil
			if err := call(ctx, op); err != nil || !*skip {
				return err
			}
		}
	})
}

// get reads a configuration.
func (x *caller) get(kind history.Kind, name string, c client.Consistency) history.Op {
	return x.timed(x.on(kind, name), func(ctx context.Context, op *history.Op) error {
		v, err := x.s.Config(name).Get(ctx, client.ReadConsistency(c))
		op.Version, op.Data = v.Version, string(v.Data)
		return err
	})
}

// readOwn writes a configuration, and reads it relaxed a moment later.
func (x *caller) readOwn(name, data string, r *rand.Rand) {
	op := x.on(history.Set, name)
	op.Data = data
	x.did(x.timed(op, func(ctx context.Context, op *history.Op) (err error) {
		op.Version, err = x.s.Config(name).Set(ctx, []byte(data))
		return err
	}))
	time.Sleep(time.Duration(r.Int64N(int64(callersMoment))))
	x.get(history.Peek, name, client.Relaxed)
}

func (x *caller) configure(name string, version *uint64, data string, what int) {
	cfg := x.s.Config(name)
	op := x.on(history.Set, name)
	op.Data = data
	switch {
	case what == 0:
		op = x.get(history.Get, name, client.Strict)
	case what == 1:
		op = x.get(history.Peek, name, client.Relaxed)
	case what == 2 && *version > 0:
		op.Guarded, op.Want = true, *version
		op = x.did(x.timed(op, func(ctx context.Context, op *history.Op) (err error) {
			op.Version, err = cfg.Set(ctx, []byte(data), client.IfVersion(op.Want))
			return err
		}))
	default:
		op = x.did(x.timed(op, func(ctx context.Context, op *history.Op) (err error) {
			op.Version, err = cfg.Set(ctx, []byte(data))
			return err
		}))
	}
	if op.Result == history.OK && op.Version > 0 {
		*version = op.Version
	}
}

// nodes makes and drops a node of the round, in turn with whoever else does.
func (x *caller) nodes(round int, r *rand.Rand) {
	path := fmt.Sprintf("/made-%d", round)
	for range 3 {
		if r.IntN(2) == 0 {
			x.timed(history.Op{Kind: history.MakeNode, Name: path, Lane: x.lane}, func(ctx context.Context, op *history.Op) error {
				n, err := x.c.CreateNode(ctx, path, client.NodeConfig{})
				if err == nil {
					op.Token = n.ID
				}
				return err
			})
		} else {
			x.timed(history.Op{Kind: history.DropNode, Name: path, Lane: x.lane}, func(ctx context.Context, _ *history.Op) error { return x.c.DropNode(ctx, path) })
		}
	}
}

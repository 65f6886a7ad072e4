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
	"github.com/signalbox-dev/signalbox/client/admin"
)

// historyClientsEnv tells the test binary to be the history clients of a checked run: a
// historyClientsSpec.
const historyClientsEnv = "SIGNALBOX_CHAOS_CALLERS"

// historyClientsSpec is what they are told.
type historyClientsSpec struct {
	Endpoints []string
	Seed      uint64
	History   string // the file that has all calls when the process has ended
}

// Timeouts of the history clients' sessions. Most outlive the faults. Those of the last lanes end
// when their process, or all instances, stand still for longer.
const (
	historyTimeout      = loadTimeout
	historyShortTimeout = 3 * time.Second
	firstShortLane      = 6
)

// Lanes that only write configurations and read them relaxed a moment later. A write that an
// instance answered just before its end is the last one of its client then.
const (
	firstWriterLane = 3
	lastWriterLane  = firstShortLane
	readDelay       = 80 * time.Millisecond
)

// What history clients do in one round of names. Few calls a name keep the search for an order
// short: overlapping calls, and calls without an outcome, make it long.
const (
	historyLanes       = 8 // each a client of its own, so that a process that dies cuts some of them only
	callsPerRound      = 12
	semaphoresPerRound = 3 // of limits 1, 2, 3
	configsPerRound    = 2
)

// history clients are the clients of a checked run. All that they call is in the history.
type historyClients struct {
	endpoints []string

	mu  sync.Mutex
	ops []historyOp

	stores sync.Mutex
	tokens map[string]uint64 // the highest token that was written with, by name
}

func (x *historyClients) add(op historyOp) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ops = append(x.ops, op)
}

// timed makes a call and notes it. The outcome of one that failed in no way of its own is unknown.
func (x *historyClients) timed(op historyOp, call func(ctx context.Context, op *historyOp) error) historyOp {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	op.Call = int64(now())
	err := call(ctx, &op)
	op.Return = int64(now())
	switch {
	case err == nil:
		op.Result = resultOK
	case errors.Is(err, client.ErrOutcomeUnknown):
		op.Result, op.Return, op.Why = resultUnknown, neverReturned, err.Error()
	case errors.Is(err, client.ErrNotAcquired):
		op.Result = resultNotAcquired
	case errors.Is(err, client.ErrNotFound):
		op.Result = resultNotFound
	case errors.Is(err, client.ErrAlreadyExists):
		op.Result = resultExists
	case errors.Is(err, client.ErrPreconditionFailed):
		op.Result = resultRefused
	default:
		op.Result, op.Return, op.Why = resultUnknown, neverReturned, err.Error()
	}
	x.add(op)
	return op
}

// runHistoryClients is the main function of the history clients' process. On SIGTERM it finishes
// the round, reads once more all that was written, and leaves the history.
func runHistoryClients(text string) int {
	failed := func(err error) int {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	var spec historyClientsSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return failed(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	x := &historyClients{endpoints: spec.Endpoints, tokens: map[string]uint64{}}
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
	out := newHistoryWriter(buffered)
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

// run has all history clients make one round after the other until stop. Names are used for one
// round only, and read again now and then, and at the end.
func (x *historyClients) run(stop <-chan struct{}, seed uint64) (rounds int, err error) {
	var all []*historyClient
	for lane := range historyLanes {
		c, err := x.open(lane)
		if err != nil {
			return 0, err
		}
		defer c.c.Close()
		all = append(all, c)
	}
	// together has every client do something at once.
	together := func(do func(i int, c *historyClient) error) error {
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
			return rounds, together(func(i int, c *historyClient) error {
				if err := c.startSession(); err != nil {
					return err
				}
				for round := i; round < rounds; round += len(all) {
					c.rereadRound(round)
				}
				c.closeSession()
				return nil
			})
		default:
		}
		if err := all[0].prepare(rounds); err != nil {
			return rounds, err
		}
		err := together(func(i int, c *historyClient) error {
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

// historyClient is one client, and its session of this round.
type historyClient struct {
	*historyClients
	lane           int
	c              *client.Client
	s              *client.Session
	names          map[string]bool // names that the session may hold or wait for
	lastAlive      int64           // when it was last known to live
	unknownOutcome bool            // a call had no outcome: what the session holds is not known
}

func (x *historyClients) open(lane int) (*historyClient, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: x.endpoints, Name: fmt.Sprintf("caller-%d", lane)})
	return &historyClient{historyClients: x, lane: lane, c: c}, err
}

// startSession starts a session.
func (x *historyClient) startSession() error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	timeout := historyTimeout
	if x.lane >= firstShortLane {
		timeout = historyShortTimeout
	}
	s, err := x.c.Session(ctx, nodePath, client.Timeout(timeout))
	if err != nil {
		return err
	}
	x.s, x.names, x.unknownOutcome, x.lastAlive = s, map[string]bool{}, false, int64(now())
	return nil
}

// closeSession ends the session, with what it may hold.
func (x *historyClient) closeSession() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if x.s.Held() {
		x.lastAlive = int64(now())
	}
	err := x.s.Close(ctx)
	gone := int64(now())
	if err != nil || !errors.Is(x.s.Err(), client.ErrSessionClosed) {
		gone = neverReturned // a session that was not renewed in time is over for its client; the server may notice later
	}
	for name := range x.names {
		x.add(historyOp{Kind: callEnded, Name: name, Lane: x.lane, Session: x.s.ID(), Call: x.lastAlive,
			Return: gone, Result: resultOK})
	}
}

// op is a call on behalf of the session.
func (x *historyClient) op(kind callKind, name string) historyOp {
	return historyOp{Kind: kind, Name: name, Lane: x.lane, Process: x.lane, Session: x.s.ID()}
}

func (x *historyClient) noteOutcome(op historyOp) historyOp {
	if op.Result == resultUnknown {
		x.unknownOutcome = true
	}
	return op
}

func semaphoreOf(round, k int) string { return fmt.Sprintf("r%d/sem-%d", round, k) }
func configOf(round, k int) string    { return fmt.Sprintf("r%d/conf-%d", round, k) }

// prepare makes a round's semaphores.
func (x *historyClient) prepare(round int) error {
	if err := x.startSession(); err != nil {
		return err
	}
	for k := range semaphoresPerRound {
		op := x.op(callCreate, semaphoreOf(round, k))
		op.Limit = uint64(k + 1)
		x.timed(op, func(ctx context.Context, op *historyOp) error { return x.s.Create(ctx, op.Name, op.Limit, nil) })
	}
	x.closeSession()
	return nil
}

// round makes a round's calls.
func (x *historyClient) round(round int, r *rand.Rand) error {
	if err := x.startSession(); err != nil {
		return err
	}
	versions := make([]uint64, configsPerRound)
	for i := range callsPerRound {
		if x.unknownOutcome { // it continues with another session
			x.closeSession()
			if err := x.startSession(); err != nil {
				return err
			}
		}
		switch n := r.IntN(10); {
		case x.lane >= firstWriterLane && x.lane < lastWriterLane:
			x.readOwn(configOf(round, r.IntN(configsPerRound)), fmt.Sprintf("%d.%d.%d", round, x.lane, i), r)
		case n < 6:
			x.acquireAndRelease(semaphoreOf(round, r.IntN(semaphoresPerRound)), r)
		case n < 7:
			x.describe(semaphoreOf(round, r.IntN(semaphoresPerRound)))
		default:
			k := r.IntN(configsPerRound)
			x.configure(configOf(round, k), &versions[k], fmt.Sprintf("%d.%d.%d", round, x.lane, i), r.IntN(4))
		}
	}
	if round > 0 && r.IntN(4) == 0 {
		x.rereadRound(r.IntN(round))
	}
	x.closeSession()
	return nil
}

// rereadRound reads what is left of an earlier round: two configurations, and a semaphore without
// owners.
func (x *historyClient) rereadRound(round int) {
	for k := range configsPerRound {
		x.get(callGet, configOf(round, k), client.Strict)
	}
	x.describe(semaphoreOf(round, round%semaphoresPerRound))
}

// acquireAndRelease acquires, relies on what it got, and releases it.
func (x *historyClient) acquireAndRelease(name string, r *rand.Rand) {
	var lease *client.Lease
	var accepted sync.Mutex
	op := x.op(callAcquire, name)
	op.Count = 1
	if r.IntN(4) == 0 && name[len(name)-1] != '0' {
		op.Count = 2 // the smallest has one only
	}
	wait := []time.Duration{0, 50 * time.Millisecond, 2 * time.Second}[r.IntN(3)]
	op.Try = wait == 0
	x.names[name] = true
	op = x.noteOutcome(x.timed(op, func(ctx context.Context, op *historyOp) (err error) {
		lease, err = x.s.Acquire(ctx, name, client.Count(op.Count), client.Wait(wait),
			client.OnQueued(func(order uint64) {
				accepted.Lock()
				defer accepted.Unlock()
				if op.Queued == 0 { // reported again after a connection was lost
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
	if op.Result != resultOK {
		return
	}
	x.believe(lease, time.Duration(r.IntN(5))*time.Millisecond)
	if lease.Count() > 1 && r.IntN(2) == 0 {
		low := x.op(callReduce, name)
		low.Count, low.Token = 1, lease.Token()
		if x.noteOutcome(x.timed(low,
			func(ctx context.Context, op *historyOp) error { return lease.Reduce(ctx, 1) })).Result != resultOK {
			return
		}
	}
	back := x.op(callRelease, name)
	back.Token = lease.Token()
	x.noteOutcome(x.timed(back, func(ctx context.Context, _ *historyOp) error { return lease.Release(ctx) }))
}

// believe relies on a lease for a while, and writes with its token to a store that refuses lower
// ones.
func (x *historyClient) believe(lease *client.Lease, d time.Duration) {
	op := x.op(callBelieved, lease.Name())
	op.Count, op.Token, op.Result = lease.Count(), lease.Token(), resultOK
	if !lease.Held() {
		return
	}
	op.Call = int64(now())
	if lease.Name()[len(op.Name)-1] == '0' {
		x.writeFenced(lease)
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
	x.add(op)
}

func (x *historyClient) writeFenced(lease *client.Lease) {
	x.stores.Lock()
	defer x.stores.Unlock()
	op := x.op(callFenced, lease.Name())
	op.Call, op.Token, op.Seen = int64(now()), lease.Token(), x.tokens[lease.Name()]
	if op.Token < op.Seen {
		op.Result = resultRefused
		if lease.Held() {
			op.Count = 1
		}
	} else {
		op.Result = resultOK
		x.tokens[lease.Name()] = op.Token
	}
	op.Return = op.Call
	x.add(op)
}

func (x *historyClient) describe(name string) {
	torn := false
	x.timedUnless(&torn, x.op(callDescribe, name), func(ctx context.Context, op *historyOp) error {
		d, err := x.s.Node().Describe(ctx, name, client.IncludeOwners(), client.IncludeWaiters(), client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		torn, op.Limit = d.Torn, d.Limit
		for _, o := range d.Owners {
			op.Owners = append(op.Owners, historyEntry{Session: o.Session, Count: o.Count, Order: o.Token})
		}
		for _, w := range d.Waiters {
			op.Waiters = append(op.Waiters, historyEntry{Session: w.Session, Count: w.Count, Order: w.Place})
		}
		return nil
	})
}

// timedUnless is timed, but repeats a call whose answer is of several moments.
func (x *historyClient) timedUnless(skip *bool, op historyOp, call func(ctx context.Context, op *historyOp) error) {
	x.timed(op, func(ctx context.Context, op *historyOp) error {
		for {
			op.Call, op.Owners, op.Waiters = int64(now()), nil, nil
			if err := call(ctx, op); err != nil || !*skip {
				return err
			}
		}
	})
}

// get reads a configuration.
func (x *historyClient) get(kind callKind, name string, c client.Consistency) historyOp {
	return x.timed(x.op(kind, name), func(ctx context.Context, op *historyOp) error {
		v, err := x.s.Config(name).Get(ctx, client.ReadConsistency(c))
		op.Version, op.Data = v.Version, string(v.Data)
		return err
	})
}

// readOwn writes a configuration, and reads it relaxed a moment later.
func (x *historyClient) readOwn(name, data string, r *rand.Rand) {
	op := x.op(callSet, name)
	op.Data = data
	x.noteOutcome(x.timed(op, func(ctx context.Context, op *historyOp) (err error) {
		op.Version, err = x.s.Config(name).Set(ctx, []byte(data))
		return err
	}))
	time.Sleep(time.Duration(r.Int64N(int64(readDelay))))
	x.get(callRelaxedGet, name, client.Relaxed)
}

func (x *historyClient) configure(name string, version *uint64, data string, what int) {
	cfg := x.s.Config(name)
	op := x.op(callSet, name)
	op.Data = data
	switch {
	case what == 0:
		op = x.get(callGet, name, client.Strict)
	case what == 1:
		op = x.get(callRelaxedGet, name, client.Relaxed)
	case what == 2 && *version > 0:
		op.Guarded, op.Want = true, *version
		op = x.noteOutcome(x.timed(op, func(ctx context.Context, op *historyOp) (err error) {
			op.Version, err = cfg.Set(ctx, []byte(data), client.IfVersion(op.Want))
			return err
		}))
	default:
		op = x.noteOutcome(x.timed(op, func(ctx context.Context, op *historyOp) (err error) {
			op.Version, err = cfg.Set(ctx, []byte(data))
			return err
		}))
	}
	if op.Result == resultOK && op.Version > 0 {
		*version = op.Version
	}
}

// nodes creates and drops a node of the round, in competition with other clients.
func (x *historyClient) nodes(round int, r *rand.Rand) {
	path := fmt.Sprintf("/made-%d", round)
	for range 3 {
		if r.IntN(2) == 0 {
			x.timed(historyOp{Kind: callCreateNode, Name: path, Lane: x.lane}, func(ctx context.Context, op *historyOp) error {
				n, err := admin.Nodes(x.c).Create(ctx, path, admin.NodeConfig{})
				if err == nil {
					op.Token = n.ID
				}
				return err
			})
		} else {
			x.timed(historyOp{Kind: callDropNode, Name: path, Lane: x.lane},
				func(ctx context.Context, _ *historyOp) error {
					_, err := admin.Nodes(x.c).Delete(ctx, path, admin.DeleteOptions{Force: true, Reason: "test"})
					return err
				})
		}
	}
}

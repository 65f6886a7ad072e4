package recipes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// MinPeriod is the shortest period of a task of Once.
const MinPeriod = time.Second

// Period is a period in which a task runs.
type Period struct {
	// Number is the start of the period in seconds since 1970. It rises with each period, also when
	// the length of periods changes. A repeat of a run has the number of its period.
	Number uint64
	Start  time.Time
	// Lease is held while the task runs. No other session runs the task meanwhile. Its Token rises
	// with each run: send it as the fencing token with every write.
	Lease *client.Lease
}

// OnceRun is the last run of a task of Once. Times are by the clock of the machine that ran it.
type OnceRun struct {
	Period    uint64    `json:"period"`               // its period's Number; 0: there was no run
	Began     time.Time `json:"at"`                   // when its session took the period
	SessionID uint64    `json:"session_id,omitempty"` // of the session that ran it
	By        string    `json:"by,omitempty"`         // that session's description
	// Ended is zero while the task runs or waits, and stays zero if its process died, or could not
	// reach the cluster when the task ended.
	Ended time.Time `json:"ended,omitzero"`
	Error string    `json:"error,omitempty"` // of the task, at most 1,000 bytes; "": none
	// Running reports whether the session still holds or awaits the task's semaphore.
	Running bool `json:"-"`
}

// Succeeded reports whether the run is known to have ended without an error.
func (r *OnceRun) Succeeded() bool { return !r.Ended.IsZero() && r.Error == "" }

// is reports whether two records are of the same run.
func (r *OnceRun) is(x OnceRun) bool {
	return r.Period == x.Period && r.SessionID == x.SessionID && r.Began.Equal(x.Began)
}

// maxOnceError bounds the error of a run that is kept, in bytes.
const maxOnceError = 1000

// onceRecord is the data of a task's semaphore: the last run.
type onceRecord struct {
	OnceRun
	Task bool `json:"once"` // true: the data of any other semaphore has no such key
}

// OnceOption is an option of NewOnce.
type OnceOption func(*Once)

// UntilSuccess repeats a run that did not succeed in its period: one that failed, and one whose end
// is unknown because its process died or could not reach the cluster. A call beside a run
// waits for its result. Without it a task runs at most once in a period.
func UntilSuccess() OnceOption { return func(o *Once) { o.untilSuccess = true } }

// Again runs the task now, whether it has run in this period or not. A call beside a run waits until
// that is done.
func Again() OnceOption { return func(o *Once) { o.again = true } }

// Once is a task that runs once in each period, in whichever session comes first. A lock would let
// the sessions run it one after the other.
//
// Periods have a length of whole seconds, and begin at multiples of it since 1970 in UTC, by the
// clock of this machine, as the schedule that calls Run does. The state is a semaphore of the name,
// with the limit 1, that stays.
type Once struct {
	s                   *client.Session
	name                string
	every               time.Duration
	untilSuccess, again bool
}

// NewOnce is the task with this name on the session's node, which runs once in each period of a
// length.
func NewOnce(s *client.Session, name string, every time.Duration, opts ...OnceOption) *Once {
	o := &Once{s: s, name: name, every: every}
	for _, f := range opts {
		f(o)
	}
	return o
}

// Run runs the task in the present period, unless a session has run it in this period. ran reports
// whether this call did, and err is the task's then; else Last tells which run was before. The
// context of task ends with ctx, and with the lease, before another session can run the task; task
// must return then. It checks what Session.Run says.
//
// The period is decided when Run is called. If the task still runs from an earlier period, Run
// waits until that is done, and runs late, but it gives up at the end of its period: the period is
// skipped then, with ErrNotAcquired. The option Wait gives up earlier. A period in which no session
// calls Run is skipped too. If ctx ends while Run waits, the period is given back: a later call in
// the period runs the task. Calls that came meanwhile have returned.
//
// A period is taken before the task runs. A task that fails, or whose process dies, does not run
// again in the period, but for UntilSuccess and Again. The task's result is kept before the lease
// is released: task must not release it.
//
// Errors beside those of Acquire: ErrBadRequest for a wrong length, and for an option that says how
// much is acquired, as the semaphore has one unit; ErrPreconditionFailed if the
// semaphore has another use, or if its last period is far in the future, because some machine's
// clock is wrong.
func (o *Once) Run(
	ctx context.Context, task func(ctx context.Context, p Period) error, opts ...client.AcquireOption,
) (ran bool, err error) {
	p, run, err := o.take(ctx, opts)
	if p == nil {
		return false, driver.WithOp("once", o.name, err)
	}
	ran, err = contexts.During(ctx, p.Lease, func(both context.Context) error {
		err := task(both, *p)
		o.end(ctx, run, err)
		return err
	})
	if !ran {
		err = driver.WithOp("once", o.name, err)
	}
	return ran, err
}

// Last reads the last run of the task. Without any its Period is 0.
func (o *Once) Last(ctx context.Context) (OnceRun, error) {
	last, sem, err := o.read(ctx, client.IncludeOwners(), client.IncludeWaiters())
	if refused(err, client.ErrNotFound) {
		return OnceRun{}, nil
	}
	if err != nil {
		return OnceRun{}, driver.WithOp("read the last run of", o.name, err)
	}
	if last.Ended.IsZero() {
		last.Running = slices.ContainsFunc(sem.Owners, func(x client.Owner) bool { return x.Session == last.SessionID }) ||
			slices.ContainsFunc(sem.Waiters, func(x client.Waiter) bool { return x.Session == last.SessionID })
	}
	return last, nil
}

// repeats reports whether this call runs the task again after a run in the period.
func (o *Once) repeats(last OnceRun) bool {
	return o.again || o.untilSuccess && !last.Succeeded()
}

// take takes the period of a moment, and acquires the task's semaphore. It returns nil if the
// period is taken. run is the record that it wrote.
//
// The period is taken first: a session that comes second need not wait for the first one's task to
// know that there is nothing to do. A session that took a period may be late with the acquire, and
// get the semaphore when a later period has been taken, or when its period's run has been repeated:
// so the record is read again under the lease. A repeat writes its record under the lease alone, as
// the run before may still have to write its result.
func (o *Once) take(ctx context.Context, opts []client.AcquireOption) (p *Period, run OnceRun, err error) {
	if o.every < MinPeriod || o.every%time.Second != 0 {
		return nil, run, protocol.Errorf(protocol.StatusBadRequest,
			"the period %s is not a number of whole seconds, at least 1", o.every)
	}
	opts = append(slices.Clone(opts), access.OnlyUnit())
	if err := access.CheckAcquire(opts); err != nil { // before it takes the period
		return nil, run, err
	}
	now, length := time.Now(), uint64(o.every/time.Second)
	number := uint64(max(now.Unix(), 0)) / length * length
	run = o.newRun(number)
	before, taken, err := o.record(ctx, run, length)
	if err != nil || !taken && !o.repeats(before) {
		return nil, run, err
	}
	if !taken {
		number = before.Period // that of a machine whose clock is ahead may be the next one
	}
	p = &Period{Number: number, Start: time.Unix(int64(number), 0)}
	left := max(p.Start.Add(o.every).Sub(now)-time.Since(now), 0)
	p.Lease, err = o.s.Acquire(ctx, o.name, append(opts, access.WaitAtMost(left))...)
	err = driver.WithoutOp(err)
	switch {
	case err != nil && ctx.Err() != nil && taken:
		o.giveBack(ctx, run, before)
		return nil, run, err
	case errors.Is(err, client.ErrNotAcquired) && taken:
		return nil, run, fmt.Errorf("period %d is skipped, because the task still runs from an earlier one: %w", number,
			client.ErrNotAcquired)
	case errors.Is(err, client.ErrNotAcquired):
		return nil, run, fmt.Errorf("the run of period %d is not repeated, because it has not ended: %w", number,
			client.ErrNotAcquired)
	case err != nil:
		return nil, run, err
	}
	run, mine, err := o.confirm(ctx, run, number)
	if mine {
		return p, run, nil
	}
	release, done := contexts.ForRelease(ctx)
	defer done()
	_ = p.Lease.Release(release)
	return nil, run, err
}

// confirm decides under the lease whether run, or a repeat of its period's run, is this call's. It
// returns the last record.
func (o *Once) confirm(ctx context.Context, run OnceRun, period uint64) (_ OnceRun, mine bool, err error) {
	for {
		last, sem, err := o.read(ctx)
		switch {
		case err != nil:
			return run, false, err
		case run.is(last):
			return run, true, nil
		case last.Period > period:
			return run, false, fmt.Errorf("period %d is skipped, because a later one has begun: %w", period,
				client.ErrNotAcquired)
		case last.Period == period && !o.repeats(last):
			return run, false, nil
		}
		run = o.newRun(period)
		if err := o.write(ctx, run, sem.Version); !overtaken(err) {
			return run, err == nil, err
		}
	}
}

// newRun is a run of this session that begins now.
func (o *Once) newRun(period uint64) OnceRun {
	return OnceRun{Period: period, Began: time.Now().UTC().Round(time.Microsecond), SessionID: o.s.ID(),
		By: access.Session(o.s).Session.Description}
}

// end records how a run ended, unless another one is recorded by now. If that is not answered in
// time, the run's end stays unknown.
func (o *Once) end(ctx context.Context, run OnceRun, result error) {
	ctx, done := contexts.ForRelease(ctx)
	defer done()
	run.Ended = time.Now().UTC().Round(time.Microsecond)
	if result != nil {
		text := cmp.Or(result.Error(), "failed")
		run.Error = strings.ToValidUTF8(text[:min(len(text), maxOnceError)], "")
	}
	for {
		last, sem, err := o.read(ctx)
		if err != nil || !run.is(last) || !overtaken(o.write(ctx, run, sem.Version)) {
			return
		}
	}
}

// giveBack takes a run that has not begun away from the task's semaphore again, if it is still the
// last one there. ctx has ended.
func (o *Once) giveBack(ctx context.Context, run, before OnceRun) {
	ctx, done := contexts.ForRelease(ctx)
	defer done()
	if last, sem, err := o.read(ctx); err == nil && run.is(last) {
		_ = o.write(ctx, before, sem.Version)
	}
}

// record writes a run to the task's semaphore, and returns the record before it. taken is false if
// that is of the same period or a later one.
func (o *Once) record(ctx context.Context, run OnceRun, length uint64) (last OnceRun, taken bool, err error) {
	for {
		last, sem, err := o.read(ctx)
		version := uint64(0)
		switch {
		case refused(err, client.ErrNotFound):
		case err != nil:
			return last, false, err
		case last.Period > run.Period+length:
			return last, false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"its last period begins at %s, later than the next period by this machine's clock: a clock is wrong; set it, "+
					"or delete the semaphore if it was another machine's",
				time.Unix(int64(last.Period), 0).UTC().Format(time.RFC3339))
		case last.Period >= run.Period:
			return last, false, nil
		default:
			version = sem.Version
		}
		if err := o.write(ctx, run, version); !overtaken(err) {
			return last, err == nil, err
		}
	}
}

// write replaces the record of a version; 0: there is none.
func (o *Once) write(ctx context.Context, run OnceRun, version uint64) error {
	data, err := json.Marshal(onceRecord{run, true})
	if err != nil {
		return err
	}
	if version == 0 {
		err = o.s.Create(ctx, o.name, 1, data)
	} else {
		_, err = o.s.Update(ctx, o.name, data, client.IfVersion(version))
	}
	return driver.WithoutOp(err)
}

// read reads the last run of a task.
func (o *Once) read(ctx context.Context, opts ...client.ReadOption) (OnceRun, *client.Semaphore, error) {
	sem, err := describe(ctx, o.s, o.name, opts...)
	if err != nil {
		return OnceRun{}, nil, err
	}
	var last onceRecord
	if json.Unmarshal(sem.Data, &last) != nil || !last.Task || sem.Limit != 1 || sem.Ephemeral {
		return OnceRun{}, nil, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the semaphore has another use; give the task another name, or delete the semaphore")
	}
	return last.OnceRun, sem, nil
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// MinPeriod is the shortest period of a task of Once.
const MinPeriod = time.Second

// Period is a period in which a task runs.
type Period struct {
	// Number is the start of the period in seconds since 1970. It rises with each run of the task,
	// also when the length of periods changes: send it as the fencing token with every write.
	Number uint64
	Start  time.Time
	// Lease is held while the task runs. No other session runs the task meanwhile.
	Lease *Lease
}

// onceRecord is the data of a task's semaphore: the last period that a session took.
type onceRecord struct {
	Period uint64    `json:"period"`
	At     time.Time `json:"at"`   // when it was taken, by that session's clock; for people
	Task   bool      `json:"once"` // true: the data of any other semaphore has no such key
}

// Once is a task that runs once in each period, in whichever session comes first. A lock would let
// the sessions run it one after the other.
//
// Periods have a length of whole seconds, and begin at multiples of it since 1970 in UTC, by the
// clock of this machine, as the schedule that calls Run does. The state is a semaphore of the name,
// with the limit 1, that stays.
type Once struct {
	s     *Session
	name  string
	every time.Duration
}

// Run runs the task in the present period, unless a session has run it in this period. ran reports
// whether this call did, and err is the task's then. The context of task ends with ctx, and with
// the lease, before another session can run the task; task must return then.
//
// The period is decided when Run is called. If the task still runs from an earlier period, Run
// waits until that is done, and runs late, but it gives up at the end of its period: the period is
// skipped then, with ErrNotAcquired. Wait gives up earlier. A period in which no session calls Run
// is skipped too. If ctx ends while Run waits, the period is given back: a later call in the period
// runs the task. Calls that came meanwhile have returned.
//
// A period is taken before the task runs. A task that fails, or whose process dies, does not run
// again in the period.
//
// Errors beside Acquire's: BadRequest for a wrong length; PreconditionFailed if the semaphore has
// another use, or if its last period is far in the future, because some machine's clock is wrong.
func (o *Once) Run(ctx context.Context, task func(ctx context.Context, p Period) error, opts ...AcquireOption) (ran bool, err error) {
	p, err := o.take(ctx, opts)
	if p == nil {
		return false, withOp("once", o.name, err)
	}
	return true, p.Lease.during(ctx, func(ctx context.Context) error { return task(ctx, *p) })
}

// take takes the period of a moment, and acquires the task's semaphore. It returns nil if the
// period is taken.
//
// The period is taken first: a session that comes second need not wait for the first one's task to
// know that there is nothing to do. A session that took a period may be late with the acquire, and
// get the semaphore when a later period has been taken: so the record is read again under the lease.
func (o *Once) take(ctx context.Context, opts []AcquireOption) (*Period, error) {
	if o.every < MinPeriod || o.every%time.Second != 0 {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the period %s is not a number of whole seconds, at least 1", o.every)
	}
	now, length := time.Now(), uint64(o.every/time.Second)
	p := &Period{Number: uint64(max(now.Unix(), 0)) / length * length}
	p.Start = time.Unix(int64(p.Number), 0)
	before, taken, err := o.record(ctx, p.Number, length)
	if !taken {
		return nil, err
	}
	left := max(p.Start.Add(o.every).Sub(now)-time.Since(now), 0)
	wait := func(o *acquireOptions) {
		o.timeout = min(o.timeout, uint64(left.Milliseconds()), protocol.MaxAcquireTimeout)
	}
	p.Lease, err = o.s.acquire(ctx, o.name, with(opts, Count(1), waitForOwnLease(), wait))
	if errors.Is(err, ErrNotAcquired) {
		err = fmt.Errorf("period %d is skipped, because the task still runs from an earlier one: %w", p.Number, ErrNotAcquired)
	}
	if err != nil {
		if ctx.Err() != nil {
			o.giveBack(ctx, p.Number, before)
		}
		return nil, err
	}
	last, _, err := o.read(ctx)
	if err == nil && last.Period == p.Number {
		return p, nil
	}
	if err == nil {
		err = fmt.Errorf("period %d is skipped, because a later one has begun: %w", p.Number, ErrNotAcquired)
	}
	release, done := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer done()
	_ = p.Lease.Release(release)
	return nil, err
}

// giveBack takes a period away from the task's semaphore again, if it is still the last one there.
// ctx has ended.
func (o *Once) giveBack(ctx context.Context, period uint64, before onceRecord) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer done()
	last, version, err := o.read(ctx)
	if err != nil || last.Period != period {
		return
	}
	before.Task = true
	if data, err := json.Marshal(before); err == nil {
		_, _ = o.s.update(ctx, o.name, data, IfVersion(version))
	}
}

// record writes a period to the task's semaphore, and returns what was there before. taken is false
// if it, or a later one, is there already.
func (o *Once) record(ctx context.Context, period, length uint64) (last onceRecord, taken bool, err error) {
	data, err := json.Marshal(onceRecord{Period: period, At: time.Now().UTC().Truncate(time.Second), Task: true})
	if err != nil {
		return last, false, err
	}
	for {
		last, version, err := o.read(ctx)
		switch {
		case isNotFound(err) && answered(err):
			err = o.s.create(ctx, o.name, 1, data, "")
		case err != nil:
			return last, false, err
		case last.Period > period+length:
			return last, false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"its last period begins at %s, later than the next period by this machine's clock: a clock is wrong; set it, "+
					"or delete the semaphore if it was another machine's", time.Unix(int64(last.Period), 0).UTC().Format(time.RFC3339))
		case last.Period >= period:
			return last, false, nil
		default:
			_, err = o.s.update(ctx, o.name, data, IfVersion(version))
		}
		switch {
		case err == nil:
			return last, true, nil
		case !answered(err), !errors.Is(err, AlreadyExists) && !errors.Is(err, PreconditionFailed) && !isNotFound(err):
			return last, false, err
		} // another session was faster: what it wrote decides
	}
}

// read reads the last period of a task.
func (o *Once) read(ctx context.Context) (last onceRecord, version uint64, err error) {
	sem, err := o.s.Node().Describe(ctx, o.name, ReadConsistency(Strict))
	if err != nil {
		return last, 0, err
	}
	if json.Unmarshal(sem.Data, &last) != nil || !last.Task || sem.Limit != 1 || sem.Ephemeral {
		return last, 0, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the semaphore has another use; give the task another name, or delete the semaphore")
	}
	return last, sem.Version, nil
}

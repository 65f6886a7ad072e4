package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Bounds of a drain.
const (
	DefaultGrace = 5 * time.Second
	MaxGrace     = 10 * time.Minute
)

// leaveTimeout is how long a member that leaves waits for the answer.
const leaveTimeout = 2 * time.Second

// Member is what others see of a member of a service: an Endpoint, or Data.
type Member interface {
	// encode is the member's data in a state. Those that cannot show one ignore it.
	encode(s *status) ([]byte, error)
	// shown is the state that the data shows, and why; ok is false for data that cannot show one.
	shown(s *status) (state State, why string, ok bool)
	// due is when the state is to be written; the zero time is never.
	due(s *status) time.Time
}

// Data is a form of the program's own; at most 1 MiB. It shows no state. If it is host:port, it is
// read as an Endpoint that is ready.
type Data []byte

func (d Data) encode(*status) ([]byte, error) { return d, nil }

func (d Data) shown(*status) (State, string, bool) { return "", "", false }

func (d Data) due(*status) time.Time { return time.Time{} }

func (e Endpoint) encode(s *status) ([]byte, error) {
	e.State, e.Why, _ = e.shown(s)
	return e.Data()
}

func (e Endpoint) shown(s *status) (state State, why string, ok bool) {
	state, why = s.now(e.State, e.Why)
	return state, why, true
}

func (e Endpoint) due(s *status) time.Time { return s.due(e.State) }

// Registration is a session's membership of a service. It ends with the session, or when it is
// taken away. Methods may be called at once.
type Registration struct {
	lease   *client.Lease
	service string
	present *present
	onState func(State, string) // of OnState; nil: none
	log     *slog.Logger
	update  func(context.Context, []byte) error // the lease's UpdateData
	changed chan struct{}                       // capacity 1: the state may have to be written
	writing chan struct{}                       // capacity 1: held by who writes

	goroutines sync.WaitGroup // end with the lease

	mu     sync.Mutex
	status status
}

// present is what a member says of itself, now and in registrations that follow.
type present struct {
	updating chan struct{} // capacity 1: held by the Update that runs

	mu      sync.Mutex
	member  Member
	edition uint64 // rises with each member

	reporting sync.Mutex // held while a state is reported
	state     State      // that was reported last; empty: Ready
}

func newPresent(m Member) *present { return &present{member: m, updating: make(chan struct{}, 1)} }

func (p *present) get() Member {
	m, _ := p.getEdition()
	return m
}

func (p *present) getEdition() (Member, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.member, p.edition
}

func (p *present) set(m Member) (before Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.member = p.member, m
	p.edition++
	return before
}

// Register makes a session a member of a service, as client.Service.Register does. The membership
// ends with the session, and nothing registers again; Serve is what does. Errors: what is out of
// range, and those of client.Service.Register.
func Register(
	ctx context.Context, s *client.Session, service string, m Member, opts ...Option,
) (*Registration, error) {
	o := optionsOf(opts)
	if err := o.validate(m); err != nil {
		return nil, err
	}
	var acquire []client.AcquireOption
	if o.first != nil {
		acquire = o.first(s)
	}
	return register(ctx, s, service, newPresent(m), o, acquire)
}

func register(
	ctx context.Context, s *client.Session, service string, p *present, o options, acquire []client.AcquireOption,
) (*Registration, error) {
	r := &Registration{service: service, present: p, onState: o.onState, log: access.Client(s.Client()).Logger,
		changed: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	checks := &checker{check: o.check, interval: o.interval, timeout: o.timeout}
	if o.check != nil {
		r.status.health.first(checks.run(ctx))
	}
	r.reportState()
	m, edition := p.getEdition()
	data, err := m.encode(&r.status)
	if err != nil {
		return nil, err
	}
	if r.lease, err = s.Service(service).Register(ctx, data, acquire...); err != nil {
		return nil, err
	}
	r.update = r.lease.UpdateData
	r.noteWritten(m, edition, &r.status)
	held := r.lease.Context()
	if o.check != nil {
		r.run(held, func(ctx context.Context) {
			checks.repeat(ctx, func(err error) { r.observe(func(s *status) { s.health.result(time.Now(), err) }) })
		})
	}
	r.run(held, r.write)
	if _, opaque := m.(Data); !opaque {
		r.run(held, r.followRequests)
	}
	return r, nil
}

// run runs f, which returns when ctx has ended, on a goroutine that Drain and the client's Close wait
// for. If OnState ends the goroutine, as FailNow of a test does, another goroutine begins again.
func (r *Registration) run(ctx context.Context, f func(context.Context)) {
	r.goroutines.Add(1)
	started := access.Client(r.Session().Client()).Driver.Run(func() {
		defer r.goroutines.Done()
		defer func() {
			if ctx.Err() == nil {
				r.run(ctx, f)
			}
		}()
		f(ctx)
	})
	if !started {
		r.goroutines.Done()
	}
}

// noteWritten notes which state others see, by what was sent. An Update may have replaced the member
// meanwhile, and given up before it could write. mu is held, or the caller is alone.
func (r *Registration) noteWritten(m Member, edition uint64, sent *status) {
	if state, _, ok := m.shown(sent); ok {
		_, present := r.present.getEdition()
		r.status.written, r.status.writtenAt, r.status.unsure = state, time.Now(), edition != present
	}
}

// observe takes something in that may change the state.
func (r *Registration) observe(f func(*status)) {
	r.mu.Lock()
	f(&r.status)
	r.mu.Unlock()
	r.lookAtState()
	r.reportState()
}

// reportState reports the state of a member that shows one, if it is another than was reported last.
func (r *Registration) reportState() {
	p := r.present
	p.reporting.Lock()
	defer p.reporting.Unlock()
	r.mu.Lock()
	state, why, ok := p.get().shown(&r.status)
	r.mu.Unlock()
	if !ok || state == cmp.Or(p.state, Ready) {
		return
	}
	p.state = state
	level := slog.LevelInfo
	if state == Failing {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "service member's state changed", "service", r.service, "state", state, "why",
		why)
	if r.onState != nil {
		r.onState(state, why)
	}
}

// write writes the state when it is due, until the membership ends.
func (r *Registration) write(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-r.changed:
		}
		r.mu.Lock()
		due := r.present.get().due(&r.status)
		r.mu.Unlock()
		switch wait := time.Until(due); {
		case due.IsZero():
		case wait > 0:
			t.Reset(wait)
		case r.publish(ctx) != nil:
			t.Reset(stateInterval)
		}
	}
}

// publish writes what the member says of itself now. One goroutine at a time does, so that the last
// state wins.
func (r *Registration) publish(ctx context.Context) error {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	m, edition := r.present.getEdition()
	sent := r.status
	r.mu.Unlock()
	data, err := m.encode(&sent)
	if err != nil {
		return err
	}
	err = r.update(ctx, data)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.noteWritten(m, edition, &sent)
	} else if !errors.Is(err, client.ErrBadRequest) {
		r.status.unsure = true // it may go on in the background
	}
	return err
}

// lookAtState has the state written if it is due. It does not wait.
func (r *Registration) lookAtState() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Lease is the membership.
func (r *Registration) Lease() *client.Lease { return r.lease }

// Token is the member's fencing token, which the list of members has.
func (r *Registration) Token() uint64 { return r.lease.Token() }

// Session is the session that holds the membership.
func (r *Registration) Session() *client.Session { return r.lease.Session() }

// Done is closed when the registration has ended.
func (r *Registration) Done() <-chan struct{} { return r.lease.Context().Done() }

// Err is nil while the member is registered, and after it has left. Otherwise it says why the
// registration was lost: client.ErrLeaseLost, or the session's Err.
func (r *Registration) Err() error { return r.lease.Lost() }

// State is the state that others see. It is Ready for Data.
func (r *Registration) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.written == "" {
		return Ready
	}
	return r.status.written
}

// Update replaces what others see of the member, now and in the registrations of the same Serve
// that follow. What checks find, and drains, are still shown. If the registration has ended, the
// error wraps Err, or client.ErrReleased after the member has left, and the next registration has
// the new data. An Endpoint that could not be written for another reason than that it is refused is
// written later.
func (r *Registration) Update(ctx context.Context, m Member) error {
	r.mu.Lock()
	_, err := m.encode(&r.status)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select { // one at a time: one that is refused brings back what it replaced
	case r.present.updating <- struct{}{}:
		defer func() { <-r.present.updating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before := r.present.set(m)
	err = r.publish(ctx)
	switch {
	case errors.Is(err, client.ErrBadRequest): // the next registration would be refused as well
		r.present.set(before)
	case err != nil:
		r.lookAtState()
	}
	return err
}

// Drain announces that the member leaves, so that callers look elsewhere; waits for grace, 0 to 10
// min, in which the program should go on answering; and leaves. If ctx ends first, the member
// leaves at once. If the cluster is away, grace is waited for all the same; the error says so, and
// the release goes on in the background. A member with Data cannot show that it drains, and leaves
// at once. Drain returns after the last call of the check and of OnState, which must not call it.
func (r *Registration) Drain(ctx context.Context, grace time.Duration) error {
	if err := checkGrace(grace); err != nil {
		return err
	}
	if _, opaque := r.present.get().(Data); !opaque && grace > 0 {
		r.observe(func(s *status) { s.drained = "the program stops" })
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-r.Done():
		}
	}
	defer r.goroutines.Wait() // the lease is over by then
	if err := r.Err(); err != nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := r.lease.Release(leaving); err != nil {
		return fmt.Errorf("the member leaves in the background, or with its session: %w", err)
	}
	return ctx.Err()
}

func checkGrace(d time.Duration) error {
	if d < 0 || d > MaxGrace {
		return protocol.Errorf(protocol.StatusBadRequest, "the grace of a drain is %s; it must be 0 to %s", d,
			MaxGrace)
	}
	return nil
}

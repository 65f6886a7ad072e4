package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Membership is a session's membership in a coordination process. It ends once, and is not renewed
// by itself.
type Membership struct {
	transport        transport
	session          uint64
	name             string
	h                Handler
	log              *slog.Logger
	started          time.Time
	stopListening    func()          // hears no more
	ctx              context.Context // of what is sent
	cancel           context.CancelFunc
	lifetime         context.Context // ends with the membership, at once
	endLifetime      context.CancelCauseFunc
	firstRound       chan struct{} // closed when the first round is complete
	done             chan struct{} // closed behind Terminate
	goroutines       sync.WaitGroup
	handlerGoroutine atomic.Uint64 // number of the goroutine that runs the handler

	mu        sync.Mutex
	wake      *sync.Cond // there may be a job
	m         *machine.Machine
	rounds    map[uint64]*Round       // by epoch; those that were begun and are not over
	requests  map[uint64]*sentRequest // by number of the message
	timer     *time.Timer
	stats     Stats
	forbidden bool // the server refused something for what may come, and has accepted nothing since

	left         <-chan struct{} // closed when a leave is over that nobody waits for; nil: there is none
	leavingAgain bool            // a leave is sent again, since its outcome was unknown
}

// sentRequest is a message of this member that was neither answered nor given up.
type sentRequest struct {
	Callback
	timer *time.Timer // nil: it waits as long as the round
}

// Join makes the session a member of the process, which is created if it does not exist, and calls
// the handler from then on, Initialize first. Names are letters and digits with single dashes or
// dots between them. If ctx ends first, the session is not a member, or soon is not. Errors: what
// Initialize returned, ErrBadRequest, ErrAlreadyMember, ErrAlreadyExists, ErrOverloaded,
// ErrForbidden, or the session's Err.
func Join(ctx context.Context, s *client.Session, name string, h Handler, o Options) (*Membership, error) {
	own := access.Session(s)
	return join(ctx, handle.Process(own.Node, own.Session, name), s.ID(), s.Context().Done(), s.Err, name, h, o)
}

func join(
	ctx context.Context, w transport, session uint64, over <-chan struct{}, why func() error, name string, h Handler,
	o Options,
) (*Membership, error) {
	if err := check(name, h, &o); err != nil {
		return nil, err
	}
	p := &Membership{
		transport: w, session: session, name: name, h: h, log: o.Logger, started: time.Now(),
		firstRound: make(chan struct{}), done: make(chan struct{}),
		rounds: make(map[uint64]*Round), requests: make(map[uint64]*sentRequest),
		m: machine.New(session, machine.Options{RetryMin: o.RetryInterval, MaxProcessFailures: o.MaxProcessFailures,
			Seed: session}),
	}
	p.log = cmp.Or(p.log, slog.New(slog.DiscardHandler))
	p.wake = sync.NewCond(&p.mu)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.lifetime, p.endLifetime = context.WithCancelCause(context.Background())
	p.timer = time.AfterFunc(time.Hour, func() { p.input((*machine.Machine).Tick) })
	stop, err := w.Handle(p.receive)
	if err != nil {
		p.cancel()
		p.endLifetime(err)
		p.timer.Stop()
		return nil, err
	}
	p.stopListening = stop
	ready := make(chan error, 1)
	go p.run(ctx, ready)
	err = <-ready
	unknown := false
	if err == nil {
		m, _ := o.join(name) // checked
		err = w.Change(ctx, protocol.KindProcessJoin, &m.Head, m, new(protocol.ProcessJoinReply))
		unknown = errors.Is(err, client.ErrOutcomeUnknown)
	}
	if err != nil {
		p.giveUp(unknown, err)
		return nil, err
	}
	p.start(func() { w.Follow(p.ctx, func() { p.input((*machine.Machine).Connected) }) })
	p.start(func() {
		select {
		case <-over:
			p.input(func(m *machine.Machine, now time.Duration) { m.End(now, 0, why()) })
		case <-p.ctx.Done():
		}
	})
	if o.Synchronous {
		if err := p.WaitInitial(ctx); err != nil {
			p.giveUp(true, ErrLeft)
			return nil, err
		}
	}
	return p, nil
}

// start starts a goroutine that close waits for, unless it waits already: the membership may be
// over before Join knows that it has begun.
func (p *Membership) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.goroutines.Go(f)
	}
}

// giveUp ends a membership that Join does not return. Joined says that the session is a member, or
// may be: it leaves in the background, until the leave is answered or the session ends. It cannot
// join again before: the late leave would end that membership, and nobody would be told.
func (p *Membership) giveUp(joined bool, why error) {
	p.input(func(m *machine.Machine, now time.Duration) {
		if joined && m.Ended() == nil {
			left := make(chan struct{})
			p.left = left
			go func() {
				defer close(left)
				_ = p.sendLeave(context.Background(), new(protocol.ProcessLeaveReply))
			}()
		}
		m.End(now, 0, why)
	})
	<-p.done
}

func (p *Membership) sendLeave(ctx context.Context, reply *protocol.ProcessLeaveReply) error {
	m := &protocol.ProcessLeave{Name: []byte(p.name)}
	return p.transport.Change(ctx, protocol.KindProcessLeave, &m.Head, m, reply)
}

// Name is the process's name.
func (p *Membership) Name() string { return p.name }

// Session is the id of the member's session.
func (p *Membership) Session() uint64 { return p.session }

// Handler is the handler that Join was given.
func (p *Membership) Handler() Handler { return p.h }

// InitialDone is closed when the first round is complete here.
func (p *Membership) InitialDone() <-chan struct{} { return p.firstRound }

// WaitInitial waits until the first round is complete here. Errors: the end of ctx or of the
// membership; ErrInHandler when the handler calls it.
func (p *Membership) WaitInitial(ctx context.Context) error {
	select {
	case <-p.firstRound:
		return nil
	default:
	}
	if err := p.checkNotInHandler("wait for the first round of"); err != nil {
		return err
	}
	select {
	case <-p.firstRound:
		return nil
	case <-p.done:
		return fmt.Errorf("process %q: %w", p.name, p.Err())
	case <-ctx.Done():
		return fmt.Errorf("process %q: no round is complete yet: %w", p.name, context.Cause(ctx))
	}
}

// Done is closed when the membership is over and Terminate has returned.
func (p *Membership) Done() <-chan struct{} { return p.done }

// Err is why the membership is over, or nil: ErrLeft, ErrEvicted, ErrReplaced, ErrNotMember, or the
// session's Err.
func (p *Membership) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.Ended()
}

// Leave ends the membership and waits for Terminate. If it fails, the session is still a member,
// unless Done is closed. With ErrOutcomeUnknown it goes on leaving: Done is closed when the server
// has answered. The handler must call it on another goroutine: in a callback it fails with
// ErrInHandler, because it would wait for that callback.
func (p *Membership) Leave(ctx context.Context) error {
	if err := p.checkNotInHandler("leave"); err != nil {
		return err
	}
	if err := p.leave(ctx); err != nil {
		if errors.Is(err, client.ErrOutcomeUnknown) {
			p.leaveAgain()
		}
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %q: a callback still runs: %w", p.name, context.Cause(ctx))
	}
}

// leave ends the membership at the server, and then here.
func (p *Membership) leave(ctx context.Context) error {
	var reply protocol.ProcessLeaveReply
	err := p.sendLeave(ctx, &reply)
	if err != nil && protocol.StatusOf(err) != protocol.StatusNotFound { // NOT_FOUND: it was over before
		return err
	}
	p.input(func(m *machine.Machine, now time.Duration) { m.End(now, reply.CompletedEpoch, ErrLeft) })
	return nil
}

// leaveAgain leaves until that is answered. A session that has left is told of no round any more,
// and not that it left: its member would wait for ever.
func (p *Membership) leaveAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leavingAgain || p.ctx.Err() != nil {
		return
	}
	p.leavingAgain = true
	p.goroutines.Go(func() {
		err := p.leave(p.ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leavingAgain = false
		if err != nil && p.ctx.Err() == nil {
			p.log.Warn("leave was rejected", "process", p.name, "error", err)
		}
	})
}

// checkNotInHandler is an error when the calling goroutine is the one that runs the handler.
func (p *Membership) checkNotInHandler(what string) error {
	if p.handlerGoroutine.Load() != goroutine() {
		return nil
	}
	return fmt.Errorf("%s process %q: %w", what, p.name, ErrInHandler)
}

// goroutine is the number of the calling goroutine. The runtime tells it in stack traces alone,
// which is slow, but good enough for what is called once.
func goroutine() uint64 {
	var b [32]byte // goroutine 123 [running]:
	_, rest, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(" "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	n, _ := strconv.ParseUint(string(number), 10, 64)
	return n
}

func (p *Membership) receive(round *protocol.ProcessRound, message *protocol.ProcessMessage) {
	p.input(func(m *machine.Machine, now time.Duration) {
		if round != nil {
			m.HandleRound(now, round)
		} else {
			m.HandleMessage(now, message)
		}
	})
}

// input gives the machine an input, and does what comes of it.
func (p *Membership) input(f func(*machine.Machine, time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.m, time.Since(p.started))
	p.act()
}

// act does what the machine asks for. mu is held.
func (p *Membership) act() {
	ready := p.m.Take()
	for _, epoch := range ready.Superseded {
		if r := p.rounds[epoch]; r != nil {
			r.cancel(ErrRoundOver)
		}
	}
	if err := p.m.Ended(); err != nil {
		p.endLifetime(err)
	}
	p.stats.Repeated += uint64(ready.Repeated)
	for _, s := range ready.Slow {
		p.stats.Slow++
		p.log.Warn("message lacks answers", "process", p.name, "epoch", s.Epoch, "number", s.Number,
			"sessions", s.Missing, "after", machine.SlowAfter)
	}
	for _, s := range ready.Sends {
		if p.ctx.Err() == nil {
			p.goroutines.Go(func() { p.send(s) })
		}
	}
	if at, ok := p.m.Next(); ok {
		p.timer.Reset(max(at-time.Since(p.started), 0))
	} else {
		p.timer.Stop()
	}
	p.wake.Signal()
}

func (p *Membership) send(s machine.Send) {
	name := []byte(p.name)
	var err error
	switch s.Kind {
	case protocol.KindProcessConfirm:
		err = p.transport.Send(p.ctx, s.Kind,
			&protocol.ProcessConfirm{Session: p.session, Name: name, Epoch: s.Epoch, Step: s.Step}, &protocol.Empty{})
	case protocol.KindProcessFail:
		err = p.transport.Send(p.ctx, s.Kind,
			&protocol.ProcessFail{Session: p.session, Name: name, Epoch: s.Epoch, Text: s.Text}, &protocol.Empty{})
	case protocol.KindProcessSync:
		err = p.transport.Send(p.ctx, s.Kind, &protocol.ProcessSync{Session: p.session, Name: name, Epoch: s.Epoch},
			&protocol.Empty{})
	case protocol.KindProcessRequest:
		err = p.transport.Send(p.ctx, s.Kind, &protocol.ProcessRequest{
			Session: p.session, Name: name, Epoch: s.Epoch, Number: s.Number, Low: s.Low, To: s.To, Payload: s.Payload,
		}, &protocol.Empty{})
	case protocol.KindProcessReply:
		err = p.transport.Send(p.ctx, s.Kind, &protocol.ProcessReply{
			Session: p.session, Name: name, Epoch: s.Epoch, To: s.To[0], Number: s.Number, Refused: s.Refused,
			Payload: s.Payload,
		}, &protocol.Empty{})
	case protocol.KindProcessComplete:
		m := &protocol.ProcessComplete{Name: name, Epoch: s.Epoch, Result: s.Payload}
		err = p.transport.Change(p.ctx, s.Kind, &m.Head, m, &protocol.Empty{})
	}
	status := protocol.StatusUnavailable // not answered: the session or the membership is over
	var e *protocol.Error
	if err == nil || errors.As(err, &e) {
		status = protocol.StatusOf(err)
	}
	p.input(func(m *machine.Machine, now time.Duration) {
		refused := machine.MayCome(status)
		if refused && !p.forbidden {
			p.log.Warn("member is refused and tries again", "process", p.name, "request", s.Kind, "error", err)
		}
		p.forbidden = refused || p.forbidden && status != protocol.StatusOK
		m.Answered(now, s, status)
	})
}

// run is the goroutine of the process: Initialize, then one callback after the other.
func (p *Membership) run(ctx context.Context, ready chan<- error) {
	ready <- p.guard("initialize", func() error { return p.h.Initialize(ctx) })
	for {
		p.mu.Lock()
		j, ok := p.m.NextJob()
		for !ok {
			p.wake.Wait()
			j, ok = p.m.NextJob()
		}
		r := p.round(&j)
		var c Callback
		if j.Kind == machine.JobAnswered || j.Kind == machine.JobGivenUp {
			c = p.takeCallback(j.Number)
		}
		p.mu.Unlock()
		err := p.guard(j.Kind.String(), func() error { return p.callback(&j, r, c) })
		p.mu.Lock()
		p.stats.countJob(j.Kind, err)
		p.m.JobDone(time.Since(p.started), j, err)
		p.act()
		if r != nil && (j.Kind == machine.JobComplete || j.Kind == machine.JobCancel || j.Kind == machine.JobPrepare &&
			err != nil) {
			r.cancel(ErrRoundOver)
			delete(p.rounds, r.r.Epoch)
		}
		p.mu.Unlock()
		switch j.Kind {
		case machine.JobComplete:
			select {
			case <-p.firstRound:
			default:
				close(p.firstRound)
			}
		case machine.JobTerminate:
			p.close()
			return
		}
	}
}

// takeCallback is the callback of a message whose outcome is known. mu is held.
func (p *Membership) takeCallback(number uint64) Callback {
	c := p.requests[number]
	delete(p.requests, number)
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.Callback
}

// round is the job's, made for the first one. mu is held.
func (p *Membership) round(j *machine.Job) *Round {
	if j.Round == nil {
		return nil
	}
	r := p.rounds[j.Round.Epoch]
	if r == nil && j.Kind == machine.JobPrepare {
		r = &Round{p: p, r: j.Round}
		r.ctx, r.cancel = context.WithCancelCause(context.Background())
		p.rounds[j.Round.Epoch] = r
	}
	return r
}

// close is behind the last callback.
func (p *Membership) close() {
	if left := p.left; left == nil {
		p.stopListening()
	} else {
		go func() {
			<-left
			p.stopListening()
		}()
	}
	p.mu.Lock()
	p.cancel() // no goroutine starts after it
	p.timer.Stop()
	p.mu.Unlock()
	p.goroutines.Wait()
	close(p.done)
}

func (p *Membership) callback(j *machine.Job, r *Round, c Callback) error {
	switch j.Kind {
	case machine.JobPrepare:
		return p.h.Prepare(r)
	case machine.JobCoordinate:
		return p.h.Coordinate(r)
	case machine.JobProcess:
		return p.h.Process(&Request{round: r, from: j.From, number: j.Number, payload: j.Payload})
	case machine.JobComplete:
		p.h.Complete(r)
	case machine.JobCancel:
		p.h.Cancel(r)
	case machine.JobAnswered:
		if c.Answered != nil {
			c.Answered(j.Answers)
		}
	case machine.JobGivenUp:
		if c.GivenUp != nil {
			c.GivenUp(j.Answers)
		}
	case machine.JobTerminate:
		p.h.Terminate()
	}
	return nil
}

// guard calls the handler, on a goroutine that it may end, as FailNow of a test does. It contains that,
// and a panic.
func (p *Membership) guard(what string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("handler %w in %s: %v", errPanicked, what, v)
				p.log.Error("handler panicked", "process", p.name, "callback", what, "panic", v, "stack",
					string(debug.Stack()))
			} else if err != nil {
				p.log.Warn("handler failed", "process", p.name, "callback", what, "error", err)
			}
			p.handlerGoroutine.Store(0)
			result <- err
		}()
		p.handlerGoroutine.Store(goroutine())
		err = f()
	}()
	return <-result
}

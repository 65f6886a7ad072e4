package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Handler is the user's side of a process. Its methods are called one after the other, on one
// goroutine: Initialize once, then rounds, then Terminate once. A round calls Prepare; Coordinate,
// at its coordinator; Process for each message; then Complete or Cancel, exactly one of them, once.
// A panic is recovered and counts as an error. Embed BaseHandler for methods that are not needed.
type Handler interface {
	// Initialize is called before the session joins. An error fails Join.
	Initialize(ctx context.Context) error
	// Prepare is called at every member when a round starts. An error fails the round, which is
	// tried again after a back-off; neither Cancel nor Complete follow then.
	Prepare(r *Round) error
	// Coordinate is called at the coordinator when all members have prepared. It must bring about
	// Round.Complete, now or later. An error fails the round.
	Coordinate(r *Round) error
	// Process is called for each message. The message must be replied to, now or later, from any
	// goroutine. After an error without a reply the sender tries again.
	Process(q *Request) error
	// Cancel is called when a prepared round is given up.
	Cancel(r *Round)
	// Complete is called when the round is complete.
	Complete(r *Round)
	// Terminate is the last call, also when Initialize failed.
	Terminate()
}

// BaseHandler implements the methods that a Handler may leave out.
type BaseHandler struct{}

// Initialize does nothing.
func (BaseHandler) Initialize(context.Context) error { return nil }

// Process refuses: a handler that exchanges messages has its own.
func (BaseHandler) Process(*Request) error { return errors.New("this handler takes no messages") }

// Cancel does nothing.
func (BaseHandler) Cancel(*Round) {}

// Complete does nothing.
func (BaseHandler) Complete(*Round) {}

// Terminate does nothing.
func (BaseHandler) Terminate() {}

// Election says which member coordinates.
type Election = protocol.ProcessElection

const (
	Oldest    = protocol.ElectOldest    // the member that joined first
	LowestID  = protocol.ElectLowest    // the lowest session id
	Preferred = protocol.ElectPreferred // the highest weight, then the present coordinator
)

// Options of a member, and of the process. Zero values are the defaults. The options of the process
// count only for the join that creates it.
type Options struct {
	// Synchronous has Join return when the first round is complete here. By default it returns when
	// the session is a member.
	Synchronous bool
	// Key makes the member the same after a restart of its program: see Return. At most 128 bytes.
	Key string
	// Data is what the member shows the others. At most 512 bytes.
	Data []byte
	// Weight is for Preferred.
	Weight uint32
	// RetryInterval is the least wait before something unanswered is sent again; it doubles up to 5
	// s. Default 50 ms.
	RetryInterval time.Duration
	// MaxProcessFailures is how many messages in a row may fail before the round is reported
	// failed. Default 0: any number.
	MaxProcessFailures int
	// Logger gets failures of the handler. Default: nothing is logged.
	Logger *slog.Logger

	// Of the process. Times are at most a day.
	Election     Election
	Debounce     time.Duration // from a change to the next round. Default 0
	RoundTimeout time.Duration // until a round must be decided. Default 0: for ever
	BackoffMin   time.Duration // before a failed round is tried again. Default 50 ms
	BackoffMax   time.Duration // default 5 s
	Return       time.Duration // how long a member with a key keeps its place without a session. Default 0
}

// ofMember returns the name of an option that is set and belongs to one member, or "".
func (o *Options) ofMember() string {
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"Synchronous", o.Synchronous}, {"Key", o.Key != ""}, {"Data", len(o.Data) > 0}, {"Weight", o.Weight != 0},
		{"RetryInterval", o.RetryInterval != 0}, {"MaxProcessFailures", o.MaxProcessFailures != 0},
		{"Logger", o.Logger != nil},
	} {
		if x.set {
			return x.name
		}
	}
	return ""
}

// What a caller did wrong, or too late, by errors.Is.
var (
	// ErrRoundOver: the round or the membership is over.
	ErrRoundOver = machine.ErrRoundOver
	// ErrNotCoordinator: only the coordinator completes a round.
	ErrNotCoordinator = machine.ErrNotCoordinator
	// ErrNotReady: a round can be completed from Coordinate on.
	ErrNotReady = machine.ErrNotReady
	// ErrNotPrepared: a round can be failed by the error of Prepare, or after it.
	ErrNotPrepared = machine.ErrNotPrepared
	// ErrReplied: a message can be answered once.
	ErrReplied = machine.ErrReplied
	// ErrRequestGone: the sender has given the message up.
	ErrRequestGone = machine.ErrRequestGone
	// ErrTooLarge: messages are at most 1 MiB, results 32 KiB.
	ErrTooLarge = machine.ErrTooLarge
	// ErrNoReceiver: a receiver is not a member of the round, or is named twice.
	ErrNoReceiver = machine.ErrNoReceiver
	// ErrNotMember, ErrReplaced, ErrEvicted and ErrLeft are why a membership ended; so may be what
	// the session ended with.
	ErrNotMember = machine.ErrNotMember
	ErrReplaced  = machine.ErrReplaced
	ErrEvicted   = machine.ErrEvicted
	ErrLeft      = errors.New("left the process")
	// ErrAlreadyMember: the session is a member of the process already, or still leaves it after a
	// Join that failed.
	ErrAlreadyMember = handle.ErrHasHandler
	// ErrInHandler: the handler called a method that waits for the handler.
	ErrInHandler = errors.New("the handler would wait for itself; call it from another goroutine")
)

func check(name string, h Handler, o *Options) error {
	if h == nil {
		return fmt.Errorf("join process %q: handler is nil; give one", name)
	}
	m, err := o.join(name)
	millis.Of("retry interval", o.RetryInterval, &err)
	switch {
	case err != nil:
	case o.RetryInterval > 5*time.Second:
		err = protocol.Errorf(protocol.StatusBadRequest, "retry interval is %s; it must be up to 5s, or 0 for the default",
			o.RetryInterval)
	case o.MaxProcessFailures < 0:
		err = protocol.Errorf(protocol.StatusBadRequest, "%d process failures are allowed; it must be at least 0",
			o.MaxProcessFailures)
	default:
		m.Seq = 1
		err = protocol.Validate(m)
	}
	if err != nil {
		return fmt.Errorf("join process %q: %w", name, err)
	}
	return nil
}

func (o *Options) join(name string) (*protocol.ProcessJoin, error) {
	options, err := o.wire()
	return &protocol.ProcessJoin{Name: []byte(name), Key: o.Key, Data: o.Data, Weight: o.Weight, Options: options}, err
}

// wire are the options of the process. Errors: ErrBadRequest for a negative time.
func (o *Options) wire() (w protocol.ProcessOptions, err error) {
	w = protocol.ProcessOptions{
		Election: o.Election, Debounce: millis.Of("debounce", o.Debounce, &err),
		RoundTimeout: millis.Of("round timeout", o.RoundTimeout, &err),
		BackoffMin:   millis.Of("least back-off", o.BackoffMin, &err),
		BackoffMax:   millis.Of("greatest back-off", o.BackoffMax, &err),
		Return:       millis.Of("time to return", o.Return, &err),
	}
	return w, err
}

// transport is how a member reaches the server: a handle.Object, and in tests the server's state
// machine.
type transport interface {
	Handle(driver.ProcessHandler) (stop func(), err error)
	Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error
	Send(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error
	Follow(ctx context.Context, connected func())
}

package discovery

import (
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Option is an option of Register and Serve.
type Option func(*options)

type options struct {
	check    Check
	interval time.Duration
	timeout  time.Duration
	grace    time.Duration

	session []client.SessionOption
	first   func(s *client.Session) []client.AcquireOption
	notify  func(r *Registration, err error)
	onState func(state State, why string)
}

func optionsOf(opts []Option) options {
	o := options{interval: DefaultCheckInterval, timeout: DefaultCheckTimeout, grace: DefaultGrace}
	for _, f := range opts {
		f(&o)
	}
	return o
}

// validate refuses what is out of range, and a check of a member that cannot show its state.
func (o *options) validate(m Member) error {
	_, opaque := m.(Data)
	switch {
	case o.check != nil && opaque:
		return protocol.Errorf(protocol.StatusBadRequest,
			"a member with data of its own cannot show what a check finds; give it an Endpoint")
	case o.interval < minCheckInterval || o.interval > maxCheckInterval:
		return protocol.Errorf(protocol.StatusBadRequest, "the check's interval is %s; it must be %s to %s",
			o.interval, minCheckInterval, maxCheckInterval)
	case o.timeout <= 0 || o.timeout > o.interval:
		return protocol.Errorf(protocol.StatusBadRequest, "the check's timeout is %s; it must be at most its interval, %s",
			o.timeout, o.interval)
	}
	return checkGrace(o.grace)
}

// CheckOptions says what is wrong with a member or its options, as Register and Serve would.
func CheckOptions(m Member, opts ...Option) error {
	o := optionsOf(opts)
	if err := o.validate(m); err != nil {
		return err
	}
	_, err := m.encode(&status{})
	return err
}

// ReadyCheck has a member that is ready only while f succeeds. The check runs before the
// registration, so that nobody is sent to a program that cannot serve, and then in intervals. Two
// failures in a row make the member failing, with the error as Why; it stays registered. One
// success makes it ready again. If it fails again within 5 minutes, twice as many successes in a
// row are needed the next time, up to 16. What checks find is written at most once in 5 s.
func ReadyCheck(f Check) Option { return func(o *options) { o.check = f } }

// CheckInterval is the time between two checks: 1 s to 5 min, 5 s by default, with a jitter of
// 10 % to both sides.
func CheckInterval(d time.Duration) Option { return func(o *options) { o.interval = d } }

// CheckTimeout bounds one check: at most the interval, 1 s by default.
func CheckTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// DrainGrace is how long Serve lets a member drain when ctx ends: 0 to 10 min, 5 s by default. It
// should be longer than callers need to notice, and than their longest call.
func DrainGrace(d time.Duration) Option { return func(o *options) { o.grace = d } }

// SessionOptions gives the options of the sessions that hold Serve's membership. Their description
// is the program's name, host and process id unless an option says otherwise.
func SessionOptions(opts ...client.SessionOption) Option {
	return func(o *options) { o.session = append(o.session, opts...) }
}

// FirstRegistration has f called with the session that is to register first. The options that it
// returns, such as client.Wait, are for that registration alone: later ones of Serve wait for as
// long as it takes.
func FirstRegistration(f func(s *client.Session) []client.AcquireOption) Option {
	return func(o *options) { o.first = f }
}

// OnRegistration has Serve call f whenever the member is registered, and, with a nil registration
// and the reason, when it is not registered any more and when registering again was refused.
// Nothing registers while f runs.
func OnRegistration(f func(r *Registration, err error)) Option {
	return func(o *options) { o.notify = f }
}

// OnState has f called whenever the state of a member with an Endpoint changes: its check begins to
// fail, or succeeds again; or it drains, or need not any more. why is the last check's error, or
// the reason of the drain. A member begins as Ready. f is called by one goroutine at a time, up to
// 5 s before others see the state. It must not close the client. The client's Logger gets the same,
// as a warning if the check fails.
func OnState(f func(state State, why string)) Option {
	return func(o *options) { o.onState = f }
}

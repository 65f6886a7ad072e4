package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
)

// stopSignals are the signals that ask any verb to end, except those that it was started to ignore,
// for example by nohup. The commands that it runs ignore those too.
func stopSignals() []os.Signal { return notIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) }

// commandSignals are all that matter while a command runs: the stop signals, SIGQUIT, with which
// some services are stopped, and those that are passed on to the command and mean nothing to this
// process.
func commandSignals() []os.Signal {
	return append(stopSignals(), notIgnored(append(supervise.SystemSignals(), syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH)...)...)
}

func notIgnored(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }

// fromTerminal: a terminal sends the signal to all of its foreground group.
func fromTerminal(s syscall.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGHUP || s == syscall.SIGWINCH
}

// received has the signals of this process. There is one place for them: if a command's run and the
// process's context got them separately, one that comes while a command is about to start could
// miss both.
var received receivedSignals

type receivedSignals struct {
	c chan os.Signal // from the operating system; nil: none are caught

	mu       sync.Mutex
	stopped  bool // the context has ended, or is about to
	commands map[*commandSignalChannel]bool
}

// commandSignalChannel gets the signals while a command runs.
type commandSignalChannel struct {
	c         chan syscall.Signal
	ownHangup bool // SIGHUP is for the command and does not end this process's context
}

// signalContext gives a context that ends with the first stop signal. Later ones change nothing
// here: the time to end is bounded, and supervisors may send a signal twice. Where a command runs,
// the second signal kills it, see child.run; that of an instance ends --stop-wait.
func signalContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	received.c = make(chan os.Signal, 16)
	received.add(stopSignals()...)
	go func() {
		for s := range received.c {
			received.dispatch(s.(syscall.Signal), cancel)
		}
	}()
	return ctx, cancel
}

// add catches more signals.
func (r *receivedSignals) add(list ...os.Signal) {
	if r.c != nil && len(list) > 0 { // an empty list would be all signals
		signal.Notify(r.c, list...)
	}
}

// dispatch gives a signal to the commands that run, and ends the context if it is a stop signal.
func (r *receivedSignals) dispatch(s syscall.Signal, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stop := supervise.AsksForEnd(s) || s == syscall.SIGHUP
	for sub := range r.commands {
		select {
		case sub.c <- s:
		default: // as many wait to be passed on
		}
		stop = stop && (s != syscall.SIGHUP || !sub.ownHangup)
	}
	if stop {
		r.stopped = true
		end()
	}
}

// duringCommand gives the signals that come from now on, until stop. stopped: one that ended the
// context came before.
func (r *receivedSignals) duringCommand(ownHangup bool) (signals <-chan syscall.Signal, stopped bool, stop func()) {
	r.add(commandSignals()...)
	return r.subscribe(ownHangup)
}

// onSecond calls f at a signal that asks for the end and comes from now on, until stop.
func (r *receivedSignals) onSecond(f func()) (stop func()) {
	signals, _, unsubscribe := r.subscribe(false)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if supervise.AsksForEnd(s) {
					f()
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		unsubscribe()
		close(done)
	}
}

func (r *receivedSignals) subscribe(ownHangup bool) (signals <-chan syscall.Signal, stopped bool, stop func()) {
	sub := &commandSignalChannel{c: make(chan syscall.Signal, 16), ownHangup: ownHangup}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commands == nil {
		r.commands = make(map[*commandSignalChannel]bool)
	}
	r.commands[sub] = true
	return sub.c, r.stopped, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.commands, sub)
	}
}

// notifyHangup gives a channel that gets SIGHUP, even if the process was started to ignore it.
// SIGHUP does not ask for an end from then on.
func notifyHangup() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGHUP) // signalContext must not hear of it; Reset would let it kill for a moment
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// onHangup calls f at each SIGHUP of notifyHangup until stop, and at once if one came before.
func onHangup(c <-chan os.Signal, f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-c:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// interruptible calls a read, of standard input, a pipe or a large file, and returns when ctx ends
// all the same. The read goes on then, until the process ends.
func interruptible[T any](ctx context.Context, name string, read func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := read()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("interrupted while reading %s", name)
	}
}

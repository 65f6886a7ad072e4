package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// stopSignals are the signals that ask this process to end, except those that it was started to
// ignore, for example by nohup. The commands that it runs ignore those too.
func stopSignals() []os.Signal {
	var list []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// signalContext gives a context that ends with the first stop signal. Later ones change nothing
// here: the time to end is bounded, and supervisors may send a signal twice. Where a command runs,
// the second signal kills it, see child.run.
func signalContext() (context.Context, context.CancelFunc) {
	list := stopSignals()
	if len(list) == 0 { // NotifyContext would take it for all signals
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), list...)
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

// notifyStopSignals passes signals that ask for an end to c.
func notifyStopSignals(c chan<- os.Signal) {
	if list := stopSignals(); len(list) > 0 {
		signal.Notify(c, list...)
	}
}

package main

import (
	"context"
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

// onHangup calls f at each SIGHUP until stop, even if the process was started to ignore it. SIGHUP
// does not ask for an end then.
func onHangup(f func()) (stop func()) {
	c, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Reset(syscall.SIGHUP) // signalContext must not hear of it
	signal.Notify(c, syscall.SIGHUP)
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
	return func() {
		signal.Stop(c)
		close(done)
	}
}

// notifyStopSignals passes signals that ask for an end to c.
func notifyStopSignals(c chan<- os.Signal) {
	if list := stopSignals(); len(list) > 0 {
		signal.Notify(c, list...)
	}
}

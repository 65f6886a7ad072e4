package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// stopSignals are the signals that ask this process to end, but for those that it was started to
// ignore: what nohup or a shell's background job ignores stays ignored, here and in the commands
// that are run.
func stopSignals() []os.Signal {
	var list []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// signalContext gives a context that ends with the first signal that asks for it. Later ones change
// nothing here: ending is bounded in time already, and what supervisors send twice must not cut it
// short. Where a command runs, the second one ends it, see child.run.
func signalContext() (context.Context, context.CancelFunc) {
	list := stopSignals()
	if len(list) == 0 { // NotifyContext would take it for all signals
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), list...)
}

// onHangup has f called at each SIGHUP, which does not ask for an end any more, until stop. A
// process that was started to ignore it hears of it too.
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

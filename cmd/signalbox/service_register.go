package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

func registerError(name string, err error) error {
	if errors.Is(err, client.ErrNotAcquired) {
		return fmt.Errorf("%w: all units of %q are held, by a lock or by as many members as its limit allows", err, name)
	}
	return err
}

// keepRegistered registers while the command runs, or until a signal, and again whenever the
// registration is lost.
func keepRegistered(inv *invocation, h holdArgs) error {
	c, err := inv.client()
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.WithoutCancel(inv.longCtx))
	defer leave()
	start, cancelStart := context.WithCancelCause(ctx) // ends with --timeout until there is a session
	defer cancelStart(nil)
	bounded := context.AfterFunc(inv.ctx, func() { cancelStart(context.Cause(inv.ctx)) })
	defer bounded()
	waiting, wait := func() {}, &onceWait{length: h.wait}
	first, ended := make(chan *discovery.Registration, 1), make(chan error, 1)
	registered := 0
	go func() {
		ended <- discovery.Serve(start, c, inv.node, h.name, discovery.Data(h.data),
			discovery.WithSession(inv.sessionOptions()...),
			discovery.WithFirst(func(s *client.Session) (opts []client.AcquireOption) {
				bounded()
				waiting()
				left := h
				left.wait = wait.left(time.Now())
				opts, waiting = inv.waitOptions(s, left)
				return opts
			}),
			discovery.WithNotify(func(r *discovery.Registration, err error) {
				if r == nil {
					inv.note("signalbox: not registered in %q any more: %s; it is tried again\n",
						h.name, sanitize(err.Error()))
					return
				}
				if registered++; registered == 1 {
					first <- r
					return
				}
				inv.note("signalbox: registered in %q again, with token %d\n", h.name, r.Token())
			}))
	}()
	end := func() error { // Serve has ended then
		leave()
		err := <-ended
		waiting()
		return err
	}
	var r *discovery.Registration
	select {
	case r = <-first:
		defer func() { _ = end() }()
	case err := <-ended:
		waiting()
		if cause := context.Cause(start); cause != nil {
			err = cause
		}
		return inv.waitError(h.name, registerError(h.name, err))
	case <-inv.longCtx.Done():
		return inv.waitError(h.name, end())
	}
	granted := row{
		{"state", "state", "registered"}, {"name", "name", h.name}, {"token", "token", labelled{"token", r.Token()}},
		{"count", "count", labelled{"count", amount(1)}}, {"session_id", "", sessionID(r.Session().ID())},
	}
	if len(h.command) == 0 {
		if err := inv.reporter().event(granted); err != nil {
			return err
		}
		<-inv.longCtx.Done()
		return nil
	}
	command := &child{
		args: h.command, stdin: inv.stdin, stdout: inv.stdout, stderr: inv.stderr, notes: inv.notes,
		interrupted: inv.longCtx.Done(), env: inv.holdEnv(h.name, r.Token(), r.Session()),
	}
	return command.run(ctx)
}

// onceWait is a wait that goes on when it is begun again, with another session.
type onceWait struct {
	length time.Duration
	until  time.Time // zero before the first begin
}

// left is how long the wait still lasts when it begins now, for the first time or again.
func (w *onceWait) left(now time.Time) time.Duration {
	if w.length == client.Forever {
		return w.length
	}
	if w.until.IsZero() {
		w.until = now.Add(w.length)
	}
	return max(w.until.Sub(now), 0)
}

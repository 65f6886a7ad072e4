package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// child is a command that runs under a lease.
type child struct {
	args           []string
	env            []string // in addition to the process's own
	stdin          io.Reader
	stdout, stderr io.Writer
	notes          io.Writer     // for messages of this process; nil: stderr
	grace          time.Duration // between SIGTERM and SIGKILL once its lease is lost
	renew          time.Duration // how often the supervisor hears of left
	// how long its leases may be relied on, and their grace; nil: it runs under something else
	left func() (left, grace time.Duration)
	// called at the first signal that asks for an end, which waits for it; nil: it does not
	drain         func() <-chan struct{}
	preempted     <-chan struct{} // closed once a waiter preempts the units; nil: never
	preemptSignal syscall.Signal  // that the command gets then; 0: none
	// closed once this process is asked to end; nil: held ends then, also at SIGHUP
	interrupted <-chan struct{}
}

// errLost: the child was stopped because its lease, or what else it ran under, was lost.
var errLost = errors.New("the command was stopped because its lease was lost")

const (
	// duplicateSignalWindow: the same signal twice within this time counts once. timeout(1) sends
	// it to the process and to its group.
	duplicateSignalWindow = 200 * time.Millisecond

	// extensionShare is how often in a session's timeout the supervisor hears how long the lease
	// may be relied on.
	extensionShare = 10

	// cleanupGrace is how long a command has at least after the first signal that asks for an end,
	// if a second one follows.
	cleanupGrace = time.Second
)

// run starts the command and waits until it and all that it started have ended. When held ends
// first, all of them get SIGTERM, and after the grace SIGKILL, and run returns errLost. Signals of
// this process are passed on to the command. The second that asks for an end ends all of them with
// SIGKILL, a second later if the first one still waits for drain. When the command ends by itself,
// its remaining processes are killed. Otherwise the result is a codeError with the command's exit
// code, or nil for 0. If the process was asked to end before run, no command is started.
//
// If this process is stopped while the lease is lost, the supervisor ends the command in time.
//
// The command is started by a supervisor, see package supervise. Its process group is its own; on a
// terminal it stays in ours, or it could not read from the terminal.
func (c *child) run(held context.Context) error {
	signals, stopped, stop := received.duringCommand(c.interrupted != nil)
	defer stop()

	select {
	case <-c.interrupted:
		stopped = true
	default:
	}
	if stopped && c.interrupted != nil {
		return &codeError{code: exitNotAcquired, err: errors.New("interrupted before the command was started")}
	}
	if held.Err() != nil {
		return &codeError{code: exitLost, err: errLost} // before it began
	}
	group := 0
	if terminal.Is(c.stdin) || terminal.Foreground() {
		group = syscall.Getpgrp()
	}
	w, err := supervise.Start(supervise.Command{
		Args: c.args, Env: c.env, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr, Group: group,
	})
	if err != nil {
		return &codeError{code: supervise.CannotRun,
			err: fmt.Errorf("cannot start the process that watches over the command: %w", err)}
	}

	var renew <-chan time.Time
	if c.left != nil {
		c.extend(w)
		t := time.NewTicker(c.renew)
		defer t.Stop()
		renew = t.C
	}

	lost := false
	var kill <-chan time.Time
	killAfter := func(d time.Duration) {
		if kill == nil {
			kill = time.After(d)
		}
	}
	var first, last time.Time // signals that asked for an end
	var before syscall.Signal
	var early []syscall.Signal // of a terminal, before the command was there to get them
	var drained <-chan struct{}
	var preempted <-chan struct{} // while the command runs
	started, done := w.Started, held.Done()
	for {
		select {
		case r := <-w.Reports:
			w.Close(r)
			if len(r.Remaining) > 0 {
				fmt.Fprintf(cmp.Or(c.notes, c.stderr),
					"signalbox: could not end %s: signals are not permitted, or the kernel does not let go of it\n",
					processList(r.Remaining))
			}
			if lost || r.Expired {
				return &codeError{code: exitLost, err: errLost}
			}
			return result(r)
		case <-renew:
			c.extend(w)
		case <-done:
			lost, done = true, nil
			w.Send(supervise.Request{End: syscall.SIGTERM})
			grace := c.grace
			if c.left != nil {
				_, grace = c.left()
			}
			kill = time.After(grace)
		case <-kill:
			kill = nil
			w.Send(supervise.Request{End: syscall.SIGKILL})
		case <-drained:
			drained = nil
			w.Send(supervise.Request{Signal: before})
		case <-started:
			started, preempted = nil, c.preempted
			for _, s := range early {
				w.Send(supervise.Request{Signal: s})
			}
		case <-preempted:
			preempted = nil
			c.extend(w) // it may end sooner now
			if c.preemptSignal != 0 {
				w.Send(supervise.Request{Signal: c.preemptSignal})
			}
		case s := <-signals:
			switch {
			case group != 0 && fromTerminal(s): // the terminal sends it to the command as well, once it runs
				if started != nil {
					early = append(early, s)
				}
				continue
			case !supervise.AsksForEnd(s):
				w.Send(supervise.Request{Signal: s})
				continue
			}
			at := time.Now()
			repeated := s == before && at.Sub(last) < duplicateSignalWindow
			before, last = s, at
			switch {
			case repeated:
			case first.IsZero() && c.drain != nil:
				first, drained = at, c.drain()
			case first.IsZero():
				first = at
				w.Send(supervise.Request{Signal: s})
			default:
				if drained != nil {
					drained = nil
					w.Send(supervise.Request{Signal: s})
					first = at
				}
				killAfter(max(0, cleanupGrace-at.Sub(first)))
			}
		}
	}
}

// extend tells the supervisor until when the command may run if it does not hear of this process
// again.
func (c *child) extend(w *supervise.Supervisor) {
	if left, grace := c.left(); left > 0 {
		w.Send(supervise.Request{Deadline: left + grace})
	}
}

func processList(pids []int) string {
	if len(pids) == 1 {
		return fmt.Sprintf("process %d", pids[0])
	}
	return "processes " + strings.Trim(fmt.Sprint(pids), "[]")
}

// result turns the end of a command into ours: its code, or 128 + the signal that ended it, as
// shells do.
func result(r *supervise.Report) error {
	switch {
	case r.Error != nil:
		return &codeError{code: r.Code, err: errors.New(string(r.Error))}
	case r.Code != 0:
		return &codeError{code: r.Code, err: fmt.Errorf("the command ended with exit code %d", r.Code), quiet: true}
	}
	return nil
}

// execCommand has a command take the place of this process, which holds nothing that it would have
// to watch over: signals, the terminal and what the command leaves running are the command's own.
// Where this process's input and output are not the standard ones, it runs the command and waits
// for it.
func execCommand(inv *invocation, args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		code := supervise.CannotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = supervise.NoCommand
		}
		return &codeError{code: code, err: fmt.Errorf("cannot run %s: %w", args[0], err)}
	}
	if inv.stdin == io.Reader(os.Stdin) && inv.stdout == io.Writer(os.Stdout) {
		err = syscall.Exec(path, args, os.Environ())
		return &codeError{code: supervise.CannotRun, err: fmt.Errorf("cannot run %s: %w", path, err)}
	}
	c := exec.Command(path, args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = inv.stdin, inv.stdout, inv.stderr
	if err := c.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return &codeError{code: exit.ExitCode()}
		}
		return &codeError{code: supervise.CannotRun, err: err}
	}
	return nil
}

// shellCommand makes the command of a flag's text: sh runs it, as if a person had typed it. Its
// process group is its own, and gets the signal end when ctx ends.
func shellCommand(ctx context.Context, text string, end syscall.Signal) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, end) }
	cmd.WaitDelay = time.Second // for the signal, and for output that its remaining processes keep open
	return cmd
}

// killGroup kills the remaining processes of a shellCommand that has ended.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// outerCommand is the command line that runs this one under leases, on the same node of the same
// cluster.
type outerCommand struct {
	session uint64 // 0: there is none
	leases  []outerLease
}

type outerLease struct {
	Name  string `json:"name"`
	Count string `json:"count"` // a number, or max
}

// outerCommandOf reads the variables that a command gets. They are about something else if this
// command line goes elsewhere.
func outerCommandOf(values map[string]string) (o outerCommand) {
	for setting, variable := range map[string]string{
		"node": "SIGNALBOX_NODE", "endpoints": "SIGNALBOX_ENDPOINTS", "cluster": "SIGNALBOX_CLUSTER",
	} {
		if values[setting] != os.Getenv(variable) {
			return outerCommand{}
		}
	}
	o.session, _ = strconv.ParseUint(os.Getenv("SIGNALBOX_SESSION"), 10, 64)
	if o.session != 0 {
		_ = json.Unmarshal([]byte(os.Getenv("SIGNALBOX_LEASES")), &o.leases)
	}
	return o
}

// refuseNested refuses to wait for a lease of the outer command, which releases it when this
// command has ended. A lease of a part excludes another one only behind other waiters, which the
// graph of waits shows. A request that does not wait gets its answer anyway.
func (o *outerCommand) refuseNested(wait time.Duration, shared bool, names ...string) error {
	if wait == 0 {
		return nil
	}
	for _, l := range o.leases {
		for _, name := range names {
			if l.Name == name && (!shared || l.Count == "max") {
				return &codeError{code: exitNotAcquired, err: fmt.Errorf("%q is held by the command that runs this one, "+
					"by session %d, and is given back only when this one has ended; it is in SIGNALBOX_LEASES", name, o.session)}
			}
		}
	}
	return nil
}

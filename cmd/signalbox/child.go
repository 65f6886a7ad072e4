package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// child is a command that runs while something is held.
type child struct {
	args           []string
	env            []string // in addition to the process's own
	stdin          io.Reader
	stdout, stderr io.Writer
	grace          time.Duration // between SIGTERM and SIGKILL once what was held is lost
}

// errLost says that the child was stopped because what it needed was lost.
var errLost = errors.New("stopped the command because what it ran under was lost")

// Exit codes for a command that could not be started, as shells have them.
const (
	exitCannotRun = 126
	exitNoCommand = 127
)

// run starts the command and waits for its end. When held ends first, the command and all that it started get SIGTERM, and after the
// grace SIGKILL, and run returns errLost. Signals that ask this process to end are passed on. Otherwise the result is a codeError with the
// command's exit code, or nil for 0.
//
// The command's process group is its own, so that all it started can be stopped; on a terminal it stays in ours, or it could not read from
// the terminal, and what it started is found by the chain of parents. If this process is killed, the kernel kills the command.
func (c *child) run(held context.Context) error {
	// The death signal is bound to the thread that started the command, which must live as long as the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	own := !isTerminal(c.stdin) && !foreground()
	cmd.SysProcAttr = childAttr(own)
	// Pipes that a grandchild keeps open must not keep us waiting once the command is gone.
	cmd.WaitDelay = time.Second

	signals := make(chan os.Signal, 4)
	relay(signals)
	defer signal.Stop(signals)

	if held.Err() != nil {
		return &codeError{code: exitLost, err: errLost} // before it began
	}
	if err := cmd.Start(); err != nil {
		code := exitNoCommand
		if errors.Is(err, fs.ErrPermission) {
			code = exitCannotRun
		}
		return &codeError{code: code, err: err}
	}
	pid := cmd.Process.Pid
	send := func(s syscall.Signal) {
		if own {
			_ = syscall.Kill(-pid, s)
		} else {
			_ = cmd.Process.Signal(s)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	lost := false
	var kill <-chan time.Time
	var others []process // what the signals of send do not reach
	done := held.Done()
	for {
		select {
		case err := <-ended:
			if own {
				send(syscall.SIGKILL) // whatever it left behind must not outlive what it ran under
			}
			if lost {
				signalAll(others, syscall.SIGKILL)
				return &codeError{code: exitLost, err: errLost}
			}
			return childResult(err)
		case <-done:
			lost, done = true, nil
			for _, p := range descendants(pid) {
				if group, err := syscall.Getpgid(p.pid); !own || err == nil && group != pid {
					others = append(others, p)
				}
			}
			send(syscall.SIGTERM)
			signalAll(others, syscall.SIGTERM)
			t := time.NewTimer(c.grace)
			defer t.Stop()
			kill = t.C
		case <-kill:
			kill = nil
			send(syscall.SIGKILL)
			signalAll(others, syscall.SIGKILL)
		case s := <-signals:
			if own || s == syscall.SIGTERM { // the others a terminal sends to the group, which has the command in it
				send(s.(syscall.Signal))
			}
		}
	}
}

func signalAll(list []process, s syscall.Signal) {
	for _, p := range list {
		if p.alive() {
			_ = syscall.Kill(p.pid, s)
		}
	}
}

// childResult turns the end of a command into ours: its code, or 128 + the signal that ended it, as shells do.
func childResult(err error) error {
	var ee *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case errors.As(err, &ee):
		code := ee.ExitCode()
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		return &codeError{code: code, err: err, quiet: true}
	default:
		return &codeError{code: exitError, err: err}
	}
}

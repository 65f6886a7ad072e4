package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
)

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
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return &codeError{code: exit.ExitCode()}
		}
		return &codeError{code: supervise.CannotRun, err: err}
	}
	return nil
}

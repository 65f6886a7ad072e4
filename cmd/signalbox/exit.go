package main

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// Exit codes, the same for every verb. Verbs that run a command pass its exit code on.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotAcquired = 3
	exitLost        = 4
	exitUnreachable = 5
	exitDifference  = 6
)

// usagef makes an error of the command line, with exit code 2.
func usagef(format string, args ...any) error { return settings.Errorf(format, args...) }

// codeError is an error with an exit code. A quiet one is not printed, because the output or a
// child has reported it.
type codeError struct {
	code  int
	err   error
	quiet bool
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// exit prints an error, with a hint if there is one, and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return exitOK
	}
	if readerGone(err) {
		return exitBrokenPipe
	}
	code := a.code(err)
	own := code
	if x, ok := a.exitCodes[code]; ok {
		own = x
	}
	if ce, ok := errors.AsType[*codeError](err); ok && ce.quiet {
		return code
	}
	a.note("%s %s\n", terminal.Paint(a.color(a.stderr), terminal.Red, "signalbox:"), terminal.Sanitize(err.Error()))
	if h := a.hint(err, code); h != "" {
		a.note("  %s\n", h)
	}
	return own
}

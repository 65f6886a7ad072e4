package logging

import (
	"os"
	"os/signal"
	"syscall"
)

// CatchBrokenPipes makes a write to standard output or standard error whose reader has gone return
// an error. Otherwise the process ends by SIGPIPE. The signal is caught, not ignored: commands that
// the process runs would inherit that.
func CatchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

func isTerminal(x any) bool {
	f, ok := x.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// foreground reports whether this process is in the terminal's foreground group, which gets ^C and
// may read, whatever its own input is.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

const (
	bold = "\x1b[1m"
	red  = "\x1b[31m"
)

func paint(on bool, code, text string) string {
	if !on {
		return text
	}
	return code + text + "\x1b[0m"
}

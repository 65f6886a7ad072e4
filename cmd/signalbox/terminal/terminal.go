// Package terminal writes to terminals: text that they do not interpret, cut to columns.
package terminal

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Is reports whether x is a terminal.
func Is(x any) bool {
	f, ok := x.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Foreground reports whether this process is in the terminal's foreground group, which gets ^C and
// may read, whatever its own input is.
func Foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// Styles of Paint.
const (
	Bold = "\x1b[1m"
	Red  = "\x1b[31m"
)

// Paint gives a text a style, if on.
func Paint(on bool, style, text string) string {
	if !on {
		return text
	}
	return style + text + "\x1b[0m"
}

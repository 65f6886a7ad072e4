package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// now is the clock that processes share.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// stamp is a command that appends its process id, and then the time again and again, to a file for
// as long as it lives: `stamp FILE`. With a second file it starts another of its kind on that file
// first, and with STAMP_IGNORE set both take no notice of SIGTERM. With STAMP_GROUP set the second
// command has a process group of its own. With STAMP_DAEMON set it is a daemon: it has a session of
// its own, and its parent has ended.
func stamp() {
	if os.Getenv("STAMP_IGNORE") != "" {
		signal.Ignore(unix.SIGTERM)
	}
	if len(os.Args) > 2 {
		cmd := exec.Command(os.Args[0], os.Args[2:]...)
		if os.Getenv("STAMP_GROUP") != "" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		}
		if os.Getenv("STAMP_DAEMON") != "" {
			cmd = exec.Command("sh", append([]string{"-c", `setsid "$@" &`, "sh"}, cmd.Args...)...)
			if err := cmd.Run(); err != nil {
				panic(err)
			}
		} else if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	f, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		panic(err)
	}
	for {
		if _, err := fmt.Fprintln(f, int64(now())); err != nil {
			panic(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// packetPipe is a pipe that holds what one write gives it: the next write waits until that is read.
func packetPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return nil, nil, err
	}
	r, w = os.NewFile(uintptr(fds[0]), "packets"), os.NewFile(uintptr(fds[1]), "packets")
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		r.Close()
		w.Close()
		return nil, nil, err
	}
	return r, w, nil
}

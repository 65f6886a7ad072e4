package main

import "syscall"

// childAttr makes the kernel kill the child when this process dies, however it dies.
func childAttr(ownGroup bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: ownGroup, Pdeathsig: syscall.SIGKILL}
}

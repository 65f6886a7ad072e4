//go:build !linux

package main

import "syscall"

// childAttr cannot bind the child's life to ours here: if this process is killed with SIGKILL, the child goes on until it ends by itself.
func childAttr(ownGroup bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: ownGroup}
}

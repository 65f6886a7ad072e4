package bench

import "syscall"

// procAttr makes a server end with the stopwatch, however that ends.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

package bench

import "syscall"

// procAttr makes a server end with the benchmark, however that ends.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

package bench

import "syscall"

// bound makes a server end with the stopwatch, however that ends.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

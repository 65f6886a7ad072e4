package chaos

import (
	"fmt"
	"os/exec"
	"time"
)

// restartWithOtherClocks restarts an instance on other clocks: CLOCK_BOOTTIME and CLOCK_MONOTONIC
// are unrelated to their former values. (No decision rests on the third clock, that of the wall:
// see the law about clocks.)
func restartWithOtherClocks(x *faultCluster, in *instance) {
	shift := func() string { return fmt.Sprint(x.r.IntN(1_000_000)) } // seconds: up to 11 days ahead of the machine's
	in.wrapper = []string{"unshare", "--time", "--boottime", shift(), "--monotonic", shift()}
	if x.r.IntN(3) == 0 {
		in.wrapper = nil // back
	}
	restart(in)
}

// timeNamespaces reports whether this machine can give a process clocks of its own.
func timeNamespaces() bool {
	return exec.Command("unshare", "--time", "--boottime", "1000", "--monotonic", "1000", "true").Run() == nil
}

var clockFaults = []fault{
	{name: "SIGKILL and restart on other clocks", do: func(x *faultCluster) bool {
		if !timeNamespaces() {
			return false
		}
		in, ok := x.any()
		if ok {
			restartWithOtherClocks(x, in)
		}
		return ok
	}},
	{name: "SIGKILL of all and restart on other clocks, a second later", do: func(x *faultCluster) bool {
		if !timeNamespaces() {
			return false
		}
		for _, in := range x.instances() {
			in.kill()
		}
		time.Sleep(time.Second) // sessions' time does not run without a leader
		for _, in := range x.instances() {
			restartWithOtherClocks(x, in)
		}
		return true
	}},
}

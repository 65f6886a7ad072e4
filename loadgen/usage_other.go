// How much CPU does this process use, where the system does not report it?

//go:build !unix

package loadgen

import "time"

func cpuTime() time.Duration { return 0 }

// What CPU does this process use, where nobody tells?

//go:build !unix

package loadgen

import "time"

func cpuTime() time.Duration { return 0 }

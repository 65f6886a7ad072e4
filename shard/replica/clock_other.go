//go:build !linux

package replica

import "time"

func bootTime() time.Duration { return monotonic() }

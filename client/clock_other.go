//go:build !linux

package client

import "time"

func bootTime() time.Duration { return monotonic() }

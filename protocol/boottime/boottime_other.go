//go:build !linux

package boottime

import "time"

func system() time.Duration { return withoutSystem() }

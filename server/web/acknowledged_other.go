//go:build !linux

package web

import (
	"context"
	"time"
)

// SetUserTimeout does nothing: keep-alives of TCP find clients that are gone, later.
func SetUserTimeout(context.Context, time.Duration) {}

// Acknowledged is true: it is not known.
func Acknowledged(context.Context) bool { return true }

// Gone is false: it is not known.
func Gone(context.Context) bool { return false }

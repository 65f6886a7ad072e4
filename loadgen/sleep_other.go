// How do other systems sleep to the point?

//go:build !linux

package loadgen

import "time"

func sleepFine(d int64) { time.Sleep(time.Duration(d)) }

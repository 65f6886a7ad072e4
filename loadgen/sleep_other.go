// How do other systems sleep precisely?

//go:build !linux

package loadgen

import "time"

func sleepFine(d int64) { time.Sleep(time.Duration(d)) }

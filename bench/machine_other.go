//go:build !linux

package bench

import "time"

func ownCPU() time.Duration { return 0 }

func fileSystem(string) string { return "unknown" }

func openFiles() uint64 { return 0 }

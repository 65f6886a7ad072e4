// What does a system other than Linux report? Nothing.

//go:build !linux

package bench

import (
	"syscall"
	"time"
)

func ownCPU() time.Duration { return 0 }

func fileSystem(string) string { return "unknown" }

func openFiles() uint64 { return 0 }

func procAttr() *syscall.SysProcAttr { return nil }

func processCPU(int) (time.Duration, error) { return 0, errNoProc }

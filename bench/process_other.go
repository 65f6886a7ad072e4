//go:build !linux

package bench

import (
	"syscall"
	"time"
)

func procAttr() *syscall.SysProcAttr { return nil }

func processCPU(int) (time.Duration, error) { return 0, errNoProc }

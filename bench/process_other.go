//go:build !linux

package bench

import "syscall"

func bound() *syscall.SysProcAttr { return nil }

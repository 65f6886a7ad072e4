//go:build !linux

package client

import (
	"net"
	"syscall"
)

// reportLeft is nil: only Linux says with each read whether anything is left.
func reportLeft(net.Conn) syscall.RawConn { return nil }

func delayAck(uintptr) {}

func drain(uintptr, func() []byte, func(int, bool) (bool, error)) error {
	panic("signalbox: a read without a report")
}

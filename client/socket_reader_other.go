//go:build !linux

package client

import (
	"net"
	"syscall"
)

// reportLeft is nil: only Linux says with each read whether anything is left.
func reportLeft(net.Conn) syscall.RawConn { return nil }

func readReported(syscall.RawConn, func() []byte, func(int) error, func() bool) error {
	panic("signalbox: a read without a report")
}

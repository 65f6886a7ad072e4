package port

import (
	"fmt"
	"net"
	"syscall"
)

// locks are held until the process ends. They have no file, and end with the process however it
// ends.
var locks []net.Listener

// lock takes a port's name among all processes of the machine, or of the network namespace. mu is
// held.
func lock(p int) bool {
	l, err := net.Listen("unix", fmt.Sprintf("@signalbox-test-port-%d", p))
	if err != nil {
		return false
	}
	locks = append(locks, l)
	return true
}

// probe shows that nothing listens on a port of 127.0.0.1, 0 for one that the kernel chooses. It
// does not listen there: a process that is being started meanwhile has what is open here for a
// moment, and as long as one socket listens no other can.
func probe(p int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: p, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}

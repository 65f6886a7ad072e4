package port

import (
	"fmt"
	"net"
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

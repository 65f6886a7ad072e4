package peer

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Unreached is why an instance is not reached at the address that it advertises.
type Unreached struct {
	Err error // of the last attempt
	// From is the host from which that instance is connected to this one meanwhile: its process
	// runs. Empty if it is not.
	From string
}

// dialErrors are the errors of the last dials for calls, by address, if they failed.
type dialErrors struct {
	mu  sync.Mutex
	max int
	all map[string]error
}

// note notes how a dial ended. Answered is the address that the instance there advertises.
func (d *dialErrors) note(address, answered string, err error) {
	if err == nil && answered != address {
		err = ErrAddress
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.all, address)
		return
	}
	if d.all == nil || len(d.all) >= d.max {
		d.all = make(map[string]error)
	}
	d.all[address] = err
}

// unreached is what is known of an address. From is the host that an instance which advertises it
// is connected from, empty for none. A refused connection alone is the answer of a host on which
// the instance does not run.
func (d *dialErrors) unreached(address, from string) Unreached {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.all[address]
	if err == nil || from == "" && errors.Is(err, syscall.ECONNREFUSED) {
		return Unreached{}
	}
	return Unreached{Err: err, From: from}
}

func hostOf(nc net.Conn) string {
	host, _, _ := net.SplitHostPort(nc.RemoteAddr().String())
	return host
}

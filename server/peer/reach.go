package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Unreached describes an instance that is not reached at the address that it advertises.
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

// note records the end of a dial. answered is the address that the instance there advertises.
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

// unreached returns why an address is not reached. from is the host from which an instance that
// advertises it is connected, or empty. A refused connection alone is the answer of a host on which
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

const (
	// firstContact is how long an instance that was never reached may stay away without a warning:
	// it may start a little later than this one.
	firstContact = 30 * time.Second
	// stopNotice is the same for one that was reached before: that its stop is planned may be known
	// here a little later than its connection ends.
	stopNotice = 2 * time.Second
)

// unreachableLog logs once that an instance cannot be reached, and that it can again.
type unreachableLog struct {
	met    bool      // it was reached before
	since  time.Time // the first dial that failed in a row began; zero: none
	warned bool
}

// failed takes a dial that has failed, and when it began.
func (u *unreachableLog) failed(p *sender, err error, began time.Time) {
	first := u.since.IsZero()
	if first {
		u.since = began
	}
	allowed := firstContact
	if u.met {
		allowed = stopNotice
	}
	switch {
	case u.warned:
	case !unanswered(err) || time.Since(u.since) >= allowed && !p.m.cfg.Stopped(p.address):
		p.m.warn("instance unreachable", "address", p.address, "error", err)
		u.warned = true
	case first:
		p.m.log.Info("instance is not reached", "address", p.address, "error", err)
	}
}

func (u *unreachableLog) reached(p *sender) {
	if u.warned {
		p.m.log.Info("instance reachable again", "address", p.address)
	}
	*u = unreachableLog{met: true}
}

// unanswered reports whether a dial has failed because no process answers, or the one that did has
// ended. Any other error is an answer: a certificate, say, or a rejection with its reason.
func unanswered(err error) bool {
	var system syscall.Errno
	var name *net.DNSError
	return errors.As(err, &system) || errors.As(err, &name) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// Package access gives the packages below package client what that keeps from programs: its handles,
// and options and calls that only those packages need.
package access

import (
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
)

// Client is the handle of a client.
func Client(c *client.Client) handle.Client { return handle.Hooks.Client(c) }

// Node is the handle of a coordination node.
func Node(n *client.Node) handle.Node { return handle.Hooks.Node(n) }

// Session is the handle of a session.
func Session(s *client.Session) handle.Session { return handle.Hooks.Session(s) }

// NewSession is a session on a node that is not started yet.
func NewSession(n *client.Node, opts []client.SessionOption) (*client.Session, error) {
	s, err := handle.Hooks.NewSession(n, opts)
	if err != nil {
		return nil, err
	}
	return s.(*client.Session), nil
}

// DescribePages reads the pages of a description.
func DescribePages(d handle.Description) (*client.Semaphore, error) {
	sem, err := handle.Hooks.DescribePages(d)
	if err != nil {
		return nil, err
	}
	return sem.(*client.Semaphore), nil
}

// ListLimits says what read options mean for a list by name.
func ListLimits(opts []client.ReadOption) handle.ListLimits { return handle.Hooks.NameLimits(opts) }

// SessionListLimits says what read options mean for a list of sessions.
func SessionListLimits(opts []client.ReadOption) handle.ListLimits {
	return handle.Hooks.SessionLimits(opts)
}

// IgnorePreemption makes an acquire whose lease a preemption does not end.
func IgnorePreemption() client.AcquireOption {
	return handle.Hooks.IgnorePreemption.(client.AcquireOption)
}

// OnlyUnit acquires the unit of a semaphore with the limit 1. Options with another amount are refused.
// A second acquire of the session waits for the first one's release instead of failing with
// ErrAlreadyHeld.
func OnlyUnit() client.AcquireOption { return handle.Hooks.OnlyUnit.(client.AcquireOption) }

// CheckAcquire returns the error of options that an acquire would not send.
func CheckAcquire(opts []client.AcquireOption) error { return handle.Hooks.CheckAcquire(opts) }

// WaitAtMost bounds the wait of an acquire, beside its option Wait.
func WaitAtMost(d time.Duration) client.AcquireOption {
	return handle.Hooks.WaitAtMost(d).(client.AcquireOption)
}

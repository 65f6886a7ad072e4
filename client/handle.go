package client

import (
	"github.com/signalbox-dev/signalbox/client/internal/handle"
)

// What is here is for the packages below this one, as are the methods Handle. Programs cannot call
// it: they cannot name the type of the key.

// NewSession is for the packages below this one: a session that is not started yet.
func (n *Node) NewSession(_ handle.Key, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	return n.c.newSessionOn(n, o), nil
}

// IgnorePreemption is for the packages below this one: see gateway.IgnorePreemption.
func IgnorePreemption(handle.Key) AcquireOption {
	return func(o *acquireOptions) { o.ignores = true }
}

// DescribePages is for the packages below this one: it reads the pages of a description.
func DescribePages(_ handle.Key, d handle.Description) (*Semaphore, error) {
	return pages(d.Request, d.Read)
}

// ListLimits is for the packages below this one: what read options mean for a list by name.
func ListLimits(_ handle.Key, opts []ReadOption) handle.ListLimits {
	o, err := readOptionsOf(opts, nameListOptions)
	return o.limits(err)
}

// SessionListLimits is ListLimits for a list by session.
func SessionListLimits(_ handle.Key, opts []ReadOption) handle.ListLimits {
	o, err := readOptionsOf(opts, sessionListOptions)
	return o.limits(err)
}

package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// What the packages below this one need, and programs do not see: package access gives it to them.
func init() {
	h := &handle.Hooks
	h.Client = func(c any) handle.Client { return c.(*Client).handle() }
	h.Node = func(n any) handle.Node { return n.(*Node).h }
	h.Session = func(s any) handle.Session {
		own := s.(*Session)
		return handle.Session{Node: own.node.h, Session: own.d}
	}
	h.NewSession = func(n, options any) (any, error) {
		o, err := sessionOptionsOf(options.([]SessionOption))
		if err != nil {
			return nil, err
		}
		on := n.(*Node)
		return on.c.newSessionOn(on, o), nil
	}
	h.DescribePages = func(d handle.Description) (any, error) { return pages(d.Request, d.Read) }
	h.NameLimits = listLimits(nameListOptions)
	h.SessionLimits = listLimits(sessionListOptions)
	h.IgnorePreemption = AcquireOption(func(o *acquireOptions) { o.IgnorePreemption = true })
	h.OnlyUnit = onlyUnit
	h.CheckAcquire = func(options any) error { return optionsOfOne(options.([]AcquireOption)).err }
	h.WaitAtMost = func(d time.Duration) any { return waitAtMost(d) }
}

// listLimits says what options mean for a list that takes these.
func listLimits(takes readOption) func(options any) handle.ListLimits {
	return func(options any) handle.ListLimits {
		o, err := readOptionsOf(options.([]ReadOption), takes)
		return o.limits(err)
	}
}

// waitAtMost bounds the wait, beside the option Wait.
func waitAtMost(d time.Duration) AcquireOption {
	return func(o *acquireOptions) {
		o.Timeout = min(o.Timeout, uint64(max(d, 0).Milliseconds()), protocol.MaxAcquireTimeout)
	}
}

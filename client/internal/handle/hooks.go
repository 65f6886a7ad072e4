package handle

import "time"

// Hooks are functions and options of package client that programs cannot call. Package client fills
// them in when it is initialized, and nothing changes them then. Package access calls them, and
// gives them their types, which this package cannot name.
var Hooks struct {
	Client  func(client any) Client   // of a *client.Client
	Node    func(node any) Node       // of a *client.Node
	Session func(session any) Session // of a *client.Session

	NewSession    func(node, options any) (session any, err error) // options are a []client.SessionOption
	DescribePages func(Description) (semaphore any, err error)     // a *client.Semaphore

	// NameLimits and SessionLimits say what read options, a []client.ReadOption, mean for a list.
	NameLimits, SessionLimits func(options any) ListLimits

	// Options of type client.AcquireOption.
	IgnorePreemption, OnlyUnit any
	WaitAtMost                 func(time.Duration) (option any)
	// CheckAcquire is the error of options, a []client.AcquireOption, that an acquire would not send.
	CheckAcquire func(options any) error
}

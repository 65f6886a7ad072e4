// Package client is signalbox's SDK: sessions, leases on counting semaphores, watches, and recipes on top of them: Mutex, RWMutex, Election, Service, Config.
//
//	c, err := client.Dial(ctx, "127.0.0.1:7070")
//	s, err := c.Session(ctx, "/billing", client.Timeout(10*time.Second), client.Description("billing@host1"))
//	lease, err := s.Acquire(ctx, "jobs", client.Count(2), client.Data(addr))
//	defer lease.Release(ctx)
//	work(lease.Context(), lease.Token()) // stop when the context ends; send the token with every write
//
// # What may be relied on
//
// A lease's context ends before the server may give to another what the lease is for, whatever happens to the link or to this process's timers:
// every answered keep-alive vouches for the session from the moment it was sent, for 0.85 of the session's timeout, on a clock that goes on while the machine sleeps.
// What no clock can promise is that the code between two looks at the context runs in time: a process may stop anywhere for as long as it likes. So send
// Lease.Token with every write to what the lease protects, and let that refuse a lower token than it has seen.
//
// # Outcomes
//
// Calls wait out lost connections, changes of leader and overload until their context ends; a request on a session has its effect at most once, however often it is
// sent. An error says what the server answered (errors.Is with NotFound and its kin), or why the wait ended: the context's end, ErrSessionExpired, ErrSessionClosed,
// ErrClientClosed. Only when a context or a session ends between a request's sending and its answer does the error add ErrOutcomeUnknown.
//
// # Cost
//
// All sessions of a client share one connection per instance, and one keep-alive per connection. Idle sessions cost no goroutine, calls that wait cost the goroutine
// that waits, and watches by function (WatchFunc) one for all. Nothing here reads configuration, logs (unless given a logger) or keeps global state.
package client

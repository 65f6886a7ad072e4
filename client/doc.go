// Package client is signalbox's SDK: sessions, leases on counting semaphores, watches, and recipes
// built from them: [Mutex], [RWMutex], [Election], [Service] and [ConfigValue].
//
//	c, err := client.Dial(ctx, "127.0.0.1:7070")
//	s, err := c.Session(ctx, "/billing", client.Timeout(10*time.Second))
//	lease, err := s.Acquire(ctx, "jobs", client.Count(2), client.Data(addr))
//	defer lease.Release(ctx)
//	work(lease.Context(), lease.Token()) // stop when the context ends; send the token
//
// A [Client] is a connection to a cluster; one per process is enough. A [Session] is an identity at
// the server. What a session acquires is released when the session ends. A [Lease] is what a
// session holds of a semaphore. A [Node] reads and watches without a session. [OpenSession] makes a
// client together with its first session, [New] one that does not wait for the cluster.
//
// The packages below this one have the rest: client/recipes has what fewer programs need (once,
// gate, latch, barrier, pool), client/discovery services that outlive their sessions,
// client/ratelimit rate limits, client/process and client/rollout coordination processes and staged
// rollouts, and client/admin calls for operators.
//
// # Guarantees
//
// A lease's context ends before the server can grant the lease to another session, whatever happens
// to the connection or to this process's timers. Every answered keep-alive renews the session for
// 0.85 of its timeout, counted from the moment when the keep-alive was sent. The clock goes on
// while the machine sleeps.
//
// A look at Err of the context of a lease or a session, or of one that Run or Supervise gives,
// reads the clock, as Held does: it is right in the first moment in which a stopped process runs
// again. Done, and contexts that are derived from it, end with a timer. In a process that runs,
// that comes some milliseconds late at most, and on a busy machine some tens. In one that was
// stopped it comes some time after it goes on: ask Held or Err before what must not be done late.
//
// No clock can promise that the code between two checks of the context runs in time: a process may
// be stopped anywhere, for any time. So send [Lease.Token], the fencing token, with every write to
// what the lease protects. The resource must reject a token that is lower than one it has seen.
//
// # Errors
//
// Calls wait out lost connections, leader changes and overload until their context ends. A request
// of a session takes effect at most once, however often it is sent. An error is the server's answer
// (errors.Is with [ErrNotFound] and the others), or says why the wait ended: the end of the
// context, [ErrSessionExpired], [ErrSessionClosed] or [ErrClientClosed]. An error also is
// [ErrOutcomeUnknown] if the context or the session ended after the request was sent and before it
// was answered.
//
// # Cost
//
// All sessions of a client share one connection per instance, and one keep-alive per connection. An
// idle session needs no goroutine. A waiting call needs the goroutine that called it. All watches
// by function ([Node.WatchFunc]) share one. Only [FromEnv] reads the environment, and only that,
// [TokenFile] and [CAFile] read files. The package keeps no global state, and logs only to a logger
// that it is given.
package client

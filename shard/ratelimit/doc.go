// Package ratelimit is the pure core of rate limits: trees of resources, and the leases by which
// clients use their rates without asking for each call.
//
// Two parts have different lives:
//
//   - A [Tree] is in the log: the configuration of its resources, and the sessions that take part.
//   - [Leases] are the memory of one leadership of a tree: who may use which rate, until when. A
//     leader that ends loses them, and the next one learns them from the clients.
//
// A client asks for leases by a [Refresh], again and again:
//
//	tree, err := ratelimit.New(now, "api", protocol.LimitConfig{Rate: 1000_000})
//	leases := ratelimit.NewLeases(leadership, now)
//	err = leases.Refresh(now, tree, version, &refresh, &reply)
//
// The contract:
//
//   - Equal calls give equal states and equal answers. Nothing in here reads a clock, draws a random
//     number, does I/O or starts a goroutine, and the order of a map decides nothing.
//   - Invariant: at each resource the sum of the counted rates of leases, and of the rate of the
//     leader's own bucket, is at most the resource's rate; the same for bursts. A lease is counted
//     from its grant until the client has confirmed that it does not use it, or until its end.
//     [Leases.Check] asserts it.
//   - Times are ms of the log time of the tree's bucket. A refresh is answered with the time at which
//     the read barrier that confirmed the leadership began.
//   - Rates are thousandths of a unit per second, amounts thousandths of a unit.
//
// DESIGN.md has the protocol between client and leader, and why each rule is needed.
package ratelimit

// Package ratelimit is the client of rate limits that a fleet shares.
//
// A limit is a tree of resources of a coordination node, such as api with the children api/tenant-a
// and api/tenant-b. A session leases rates of leaves of the tree, and decides about each call by
// itself, without a packet. The server sees to it that all leases together never exceed the limit
// of any resource: not when servers or clients are killed, stopped, cut off or moved.
//
//	l, err := ratelimit.Join(ctx, client, "/default", "api/tenant-a")
//	defer l.Close(ctx)
//	if !l.Allow(1) { ... }      // now, or not at all
//	err = l.Wait(ctx, 1)        // in the order of the calls
//	l.Spent(40)                 // the cost is known afterwards
//
// Shares follow demand: what one client or tenant does not use, others have. Guarantees and weights
// of the resources say who has how much when all want more.
package ratelimit

// Package queue is the pure core of semaphores with options: which waiter is served next, which
// slots it gets, which owners are preempted, and which holds ended. A plain semaphore has no queue.
//
// A [Queue] knows its entries by token alone. A waiter has an [Ask], an owner has a [Grant]; an
// entry without special demands has neither. A Queue asks the semaphore through [Entries] for
// anything else. Inside, lanes are the waiters' demands and the order in which they are served;
// holdings are the owners' grants and slots.
//
//	q := queue.New(options, limit)
//	q.Wait(queue.Place{Place: token, Waiter: waiter}, queue.DemandOf(request), now)
//	next, slots, fits := q.Next(entries, queue.Units{Used: used, Limit: limit})
//	ask := q.Leave(place, waiters)
//	q.Own(token, ask, slots, now)
//
// The contract:
//
//   - Equal calls give equal states and equal answers. Nothing in here reads a clock, draws a random
//     number, does I/O or starts a goroutine, and the order of a map decides nothing.
//   - Times are ms of the bucket's time.
//   - A waiter waits with its place in the queue as token, and owns under a token that is drawn at
//     the grant while tokens are late.
package queue

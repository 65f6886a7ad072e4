// Package assign is a ready-made handler of coordination processes: it keeps partitions, numbered
// from 0, over the members of a process.
//
// Whenever a worker comes, goes or dies, the partitions are spread again: each worker gets its
// share by weight, and as few partitions move as that allows. A partition that moves is revoked
// first, and assigned when its former holder has said that it stopped, or is dead:
//
//	work := func(ctx context.Context, p assign.Partition) { consume(ctx, p.Number, p.Token) }
//	w, err := assign.Join(ctx, session, "mail", 64, assign.Run(work), process.Options{})
//	defer w.Leave(ctx)
//
// So no two workers work on a partition at once, as long as they stop when their context ends; a
// worker that is stopped itself, and wakes up after its session has ended, is what the token is
// for: see [Partition].
package assign

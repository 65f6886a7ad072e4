// Package process takes part in coordination processes: the members of a process agree on something
// again whenever one of them joins, leaves or dies.
//
// A program joins a process by name with a [Handler]. For each change of the list of members one
// round runs. Every member's Prepare is called. When all have returned, one member's Coordinate
// exchanges messages with the others and then calls [Round.Complete]. Then every member's Complete
// is called. If the list changes before that, the round is cancelled and another one starts. All
// members of a round have the same list of members.
//
//	p, err := process.Join(ctx, session, "work-queue", handler, process.Options{})
//	err = p.WaitInitial(ctx) // the first round is complete here
//	defer p.Leave(ctx)
//
// All callbacks of one membership run one after the other, on a goroutine of its own. A handler
// that takes long watches [Round.Context], which ends as soon as the round is known to be
// superseded, even while a callback runs. Messages are delivered at least once, and executed with
// success at most once by each receiver of a round. For effects outside, pass [Round.Token] to
// resources that must reject an older round.
//
// Messages are bytes; [Messages] are typed, with a [Codec]. An [Operator] observes a process and
// steps in without being a member. Package assign is a ready-made handler: partitions over members.
package process

// Package process takes part in coordination processes: the members of a process agree on something
// anew whenever one of them joins, leaves or dies.
//
// A program joins a process by name with a [Handler]. For each change of the list of members one
// round runs: every member's Prepare is called; when all have returned, one member's Coordinate,
// which exchanges messages with the others and then calls [Round.Complete]; and then everybody's
// Complete. If the list changes before, the round is cancelled and another one starts. All members
// of a round have the same list of members.
//
//	p, err := process.Join(ctx, session, "work-queue", handler, process.Options{})
//	err = p.WaitInitial(ctx)   // the first round is complete here
//	defer p.Leave(ctx)
//
// All callbacks of one process run one after the other, on a goroutine of its own. A handler that
// takes long watches [Round.Context], which ends as soon as it is known that the round is
// superseded, even while a callback runs. Messages are delivered at least once, and executed at
// most once with success by each receiver of a round. For effects outside, hand [Round.Token] to
// whatever must not be changed by an older round.
//
// Messages are bytes; [Messages] are typed, with a [Codec]. An [Operator] looks at a process, and
// steps in, without being a member. Package assign below it is a ready-made handler: partitions
// over members.
package process

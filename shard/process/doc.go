// Package process is the pure state machine of coordination processes: members with one view of the
// topology, and the rounds they go through together.
//
// A [Process] is one process of one coordination node. It is changed by calls ([Process.Join],
// [Process.Prepared], [Process.Tick], ...), each given the [Moment] of the log entry it comes from;
// its output is appended to an [Out] the caller owns: events for members, and changes for watches.
//
//	p, err := process.New(bucketOrders, process.Options{})
//	joined, err := p.Join(at, process.Join{Session: id, Key: "worker-7"}, &out)
//	p.Tick(at, &out) // at the end of each Apply that called the process, and when Next says so
//
// The contract:
//
//   - Equal calls give equal states, equal events and equal digests. Nothing in here reads a
//     clock, draws a random number, does I/O or starts a goroutine; there are no maps.
//   - Calls check their arguments and refuse with a [protocol.Error]. A refused call changes
//     nothing but a count and the state that was due to change. Any bytes are safe in [Decode].
//   - Rounds start in Tick alone, so that the changes of one log entry make one round.
//   - Confirmations may be lost, late or repeated: [Process.Resend] repeats events that a member
//     has not confirmed, and a repeated confirmation is OK.
//   - Slices in events belong to the machine, which never changes them in place.
//
// DESIGN.md has the rules, the invariants, which [Process.Check] asserts, and the duties of the
// shard, the protocol and the SDK.
package process

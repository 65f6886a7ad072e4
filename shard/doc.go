// Package shard is the state machine of a data shard: sessions, remote sessions, semaphores, and
// hosted objects (processes, tracks and rate limits). It is pure and deterministic.
//
// A [Machine] is changed by [Machine.Apply] alone, one log entry at a time. An entry is a batch: a
// header with the leader's epoch and its stamp of log time, then commands, most of them the bodies
// of clients' requests as they came. What leaves the machine (replies, results of waiting acquires,
// ends of sessions, changes for watches) is appended to an [Events] the caller owns. Everything
// else reads: reads may run beside each other, and exclude Apply. The reads of a subject are
// methods of one type, such as [Sessions], which [Machine.Sessions] returns.
//
//	m := shard.New(1)
//	var out shard.Events
//	entry := shard.AppendHeader(nil, shard.Header{
//		Format: shard.FormatVersion, Epoch: term << 16, Seq: 1, LogTime: now, Wall: wall,
//	})
//	entry = shard.AppendCommand(entry, shard.Command{Kind: shard.CmdTakeOver})
//	m.Apply(index, entry, &out)
//
// The contract, which the package above relies on:
//
//   - Equal logs give equal states, equal events and equal digests, on every machine and after
//     every restore. Nothing in here reads a clock, draws a random number, does I/O or starts a
//     goroutine, and the order in which Go walks a map decides nothing.
//   - Any bytes are safe, in Apply as in Restore.
//   - Apply does not keep the entry. Byte slices in events and in reads' results belong to the
//     machine, which never changes them in place: they may be kept, and must not be written to.
//   - Work of one Apply beyond its commands is bounded. NextDeadline says when another is due: at
//     once while work is left over.
//   - A snapshot is written while Apply goes on; see [Snapshot].
//
// DESIGN.md has the flow, the rules that are not obvious, and the invariants, which [Machine.Check]
// asserts.
package shard

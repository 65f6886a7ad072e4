// Package wal is an append-only log store for the raft engine, behind its interface
// [raftio.ILogDB].
//
// One log holds the records of all replicas of an instance. It is a chain of checksummed frames in
// segments of fixed length. A call that must be durable appends one frame and syncs once, on the
// caller's own goroutine. Calls that come meanwhile share the next frame. Memory holds the
// positions of the entries, and hard states, snapshot records and bootstrap records in full.
//
// DESIGN.md in this folder has the file format and the rules of recovery.
package wal

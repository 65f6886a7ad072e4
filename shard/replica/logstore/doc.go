// Package logstore watches over the raft engine's log store. It adds facts that a store cannot know
// of itself:
//
//   - A watermark beside the log says how far each replica's log had come. A log behind its
//     watermark has lost acknowledged entries, by a flipped bit, a lost file or an old copy that
//     was put back. [Store.Create] fails with [ErrRolledBack], before a vote can be given twice.
//   - A write that does not finish within [Config.Stuck] is reported, and so is a failing disk.
//   - Free space is checked in time, before a write fails.
//
// DESIGN.md in this folder has the rules.
package logstore

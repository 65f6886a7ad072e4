// Package logstore watches over the raft engine's log store, the engine's own on pebble. It adds:
//
//   - A watermark beside the log says how far each replica's log had come. A log behind its
//     watermark has lost acknowledged entries, by a flipped bit, a lost file or an old copy that
//     was put back. pebble does not notice; [Store.Create] fails with [ErrRolledBack], before a
//     vote can be given twice.
//   - A write that does not finish within [Config.Stuck] is reported, and so is a failing disk:
//     pebble waits for ever.
//   - Free space is checked in time: on a full disk pebble neither fails nor goes on.
//
// DESIGN.md in this folder has the rules.
package logstore

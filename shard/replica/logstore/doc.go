// Package logstore watches over the raft engine's log store.
//
// The store itself is the engine's own, on pebble. What is added:
//
//   - A watermark beside the log says how far each replica's log had come. A log that is found behind it has lost what was acknowledged, by a flipped bit, a lost
//     file or an old copy that was put back, and pebble says nothing of it: [Store.Create] then fails with [ErrRolledBack], before a vote can be given twice.
//   - A write that does not end within [Config.Stuck] is reported, as is a disk that fails: pebble waits for ever.
//   - Free space is looked at while there is some: on a full disk pebble neither fails nor goes on.
//
// See DESIGN.md in this folder for the rules.
package logstore

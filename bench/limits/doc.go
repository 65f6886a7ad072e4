// Package limits is what is physically possible on a machine: the raft engine with nothing around
// it, and the event loop with nothing behind it. Both are run by bench/cmd in processes of their
// own, like any server that is measured.
package limits

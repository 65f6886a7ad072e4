// Package limits answers: what is physically possible on a machine? It has the raft engine with
// nothing around it, and the event loop with nothing behind it. Both are run by bench/cmd in
// processes of their own, like any server that is measured.
//
// Bare dragonboat is one raft group of one replica, a state machine that does nothing, and
// proposals of 64 bytes, one after the other: what a durable answer takes at least. Two are a pair
// of one caller.
//
// The bare gnet echo answers bytes with themselves.
package limits

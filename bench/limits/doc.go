// Package limits answers: how fast can a machine be? It has the raft engine with nothing around it,
// and the event loop with nothing behind it. bench/cmd runs both in processes of their own, like
// any server that is measured.
//
// Bare dragonboat is one raft group of one replica, a state machine that does nothing, and
// proposals of 64 bytes, one after the other: the least time of a durable answer. Two are a pair of
// one caller.
//
// The bare gnet echo answers bytes with themselves.
package limits

// Package core is the SDK's engine: what a client sends, when it sends it again, and what it may
// believe. It is one step machine, without a clock, a goroutine, a socket or randomness of its own.
// The rules of a client (R1 to R28 of its scripts) are here and nowhere else.
//
//	in   a call; frames of a connection; a connection is up or lost; a tick with the time
//	out  frames in the buffers of connections; Ready: dials, closes, completed calls, events
//
// One goroutine at a time steps an Engine, and does what Ready asks for after the step:
//
//	lock
//	e.Acquire(now, session, call) // or e.Received(now, conn, frames), e.Tick(now)
//	e.Take(&ready)
//	unlock
//	... write what stands in Conn.Out, wake the callers in ready.Done, dial ...
//
// What an input means for requests other than its own is done after its step, in one place: see
// request.go, beside the table of states. An engine that finds a rule broken stops itself: Engine.Bug.
//
// Package driver steps an engine for programs, package sim for its seeds, and the scripts in
// testdata for readers of the rules. Programs use package client: this package follows its needs, and
// promises nothing to others.
package core

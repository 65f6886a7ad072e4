// Package driver runs package core for a program: it steps the engine under its one mutex, and does
// outside of it what the engine asks for. Callers step it for their calls, readers for the frames
// of a read, a timer for what is due. It decides nothing about sessions, leases and requests.
package driver

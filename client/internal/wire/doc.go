// Package wire is one connection to an instance: the hello, whole frames in, bytes out. It knows
// frames and no messages but the hello's. It decides nothing: what to send, when a server is
// silent and what follows from a frame is package core's.
package wire

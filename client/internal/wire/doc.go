// Package wire is one connection to an instance: the hello, whole frames in, bytes out. It knows
// frames and no messages but the hello's. It decides nothing: what to send, when a server is
// silent and what follows from a frame is package core's.
//
// One goroutine hands over the frames of each read together, so that the engine is stepped once for
// all of them. The read buffer begins with 512 bytes and doubles up to 64 KiB while reads fill it.
// A caller that is alone costs two reads an answer, of which the second finds nothing; TCP_INQ
// would save it, and was worth 2 % of the rate.
package wire

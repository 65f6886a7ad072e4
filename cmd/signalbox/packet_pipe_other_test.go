//go:build !linux

package main

import "os"

// packetPipe has no means here to make writes wait.
func packetPipe() (r, w *os.File, err error) { return os.Pipe() }

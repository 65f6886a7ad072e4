// Package history checks what clients of a cluster saw. It compares calls (what was asked, what was
// answered and when) with models of a semaphore, a configuration and a coordination node. It starts
// nothing and reads no clock; its caller records the calls.
//
//	ops, err := history.Read(file)
//	findings := history.Check(ops, history.Options{Limit: time.Minute, Pictures: dir})
package history

// Package history judges what clients of a cluster saw: it holds calls, with what was asked, what was answered and when, against models of what a semaphore, a
// configuration and a coordination node may do. It starts nothing and reads no clock; whoever records the calls hands them in.
//
//	ops, err := history.Read(file)
//	findings := history.Check(ops, history.Options{Limit: time.Minute, Pictures: dir})
package history

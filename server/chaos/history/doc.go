// Package history checks what clients of a cluster saw. It compares calls (what was asked, what was
// answered and when) with models of a semaphore, a configuration and a coordination node. It starts
// nothing and reads no clock; its caller records the calls.
//
//	ops, err := history.Read(file)
//	findings := history.Check(ops, history.Options{Limit: time.Minute, Pictures: dir})
//
// To check another kind of call, add its kind to op.go and its effect to the model that it belongs
// to, and stories to check_test.go, of which the model must refuse at least one.
//
// The operations of one name are linearizable; across names nothing is promised, and a session's
// end reaches each name at its own moment. A wait that ended without a report of its beginning may
// never have been in the queue: the answer may be the remembered one of a request that was sent
// again. The search is exponential in calls that overlap and in calls without an outcome, so a name
// is for some hundred calls. A client whose connection breaks repeats the drop of a node, and takes
// the drop for its own when the node is gone.
package history

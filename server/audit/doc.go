// Package audit writes an audit log: one JSON object a line, into a file or on standard error.
// Writing an event never waits: events go through a queue. Those that do not fit are counted and
// reported.
package audit

// Package audit writes what happens to a cluster for those who must be able to say later what
// happened: one JSON object a line, into a file or on standard error. Writing an event never waits:
// a queue stands in between, and what does not fit into it is counted and said.
package audit

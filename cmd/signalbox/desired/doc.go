// Package desired compares what a cluster is to have, as documents say it, with what it has, and
// makes the changes. It knows the form of documents, which changes there are and in which order
// each of them is allowed. It knows neither flags nor requests: kinds of objects and the cluster
// are given by the command line.
//
//	documents -> Read -> Document --+
//	                                +-> Plan -> changes in order -> Run -> what was done
//	cluster   -> State -------------+
package desired

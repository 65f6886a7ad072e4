// Package discovery finds out, for an instance that belongs to no cluster yet, whether it is the
// one that makes the cluster or at which address it can join. Machine is the pure step machine;
// Discovery drives it over a network and answers the questions of others. DESIGN.md has the flow.
package discovery

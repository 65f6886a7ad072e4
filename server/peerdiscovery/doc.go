// Package peerdiscovery finds out whether an instance without a cluster makes the cluster, or at
// which address it can join. Machine is the pure step machine; Discovery drives it over a network
// and answers other instances. DESIGN.md has the flow.
package peerdiscovery

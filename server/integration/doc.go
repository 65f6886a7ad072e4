// Package integration has the tests of whole instances: one with clients that speak the protocol
// frame by frame, and clusters in one process, on disks and a network in memory. The kits are
// raw_test.go and cluster_kit_test.go. What needs one room only is tested beside it, and what needs
// processes in server/chaos.
package integration

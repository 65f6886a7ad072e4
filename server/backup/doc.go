// Package backup reads and writes the file of a cluster's backup, and checks it. Snapshots are what an
// instance has of its shards for one.
package backup

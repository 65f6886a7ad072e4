// Package backup is the file of a cluster's backup: written piece by piece, and read back whole to
// see that it is one. Nothing in it talks to a server.
package backup

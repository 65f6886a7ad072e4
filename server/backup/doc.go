// Package backup reads and writes the file of a cluster's backup, and checks it. Nothing in it
// talks to a server.
package backup

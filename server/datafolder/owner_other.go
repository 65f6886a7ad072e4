//go:build !unix

package datafolder

import "io/fs"

// There are no modes here that say who may write to a folder.

func inOwnGroup(fs.FileInfo) bool { return true }
func ownOrRoot(fs.FileInfo) bool  { return true }
func owner(fs.FileInfo) string    { return "another user" }

// Private makes all that this process creates from now on closed to other users, where the system
// knows that.
func Private() {}

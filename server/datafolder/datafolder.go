// Package datafolder keeps the rules of an instance's data folder: who may read it, one process at
// a time, and what must be there together.
//
// Restrict closes a folder that is this user's own. A folder of another user is used if only this
// process's own group can write to it: kubelet gives a pod's volume to the group of fsGroup before
// each start. One that all can write to, and that cannot be closed, is refused, such as an emptyDir
// itself; a folder below it is made and closed.
//
// A log without an identity is refused (CheckIdentity): the identity is written first. A restore
// that makes a cluster marks the folder from its first step to its last, and a marked folder is
// refused: a server that starts on what is left of it could make another, empty cluster.
package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// IdentityFile says who an instance is.
	IdentityFile = "identity.json"
	// RaftDir is the part of the folder that has the log.
	RaftDir = "raft"
)

// CheckExisting refuses a folder that has no instance in it.
func CheckExisting(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, IdentityFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil // what else is wrong, the start says
	}
	return fmt.Errorf("data folder %q has no instance in it, and an existing one is asked for; "+
		"restore a backup to it, choose another folder, or start without --existing to make a new cluster", dir)
}

// CheckIdentity refuses a folder that has a log and does not say whose. The identity is there
// before the log.
func CheckIdentity(dir string) error {
	identity, log := filepath.Join(dir, IdentityFile), filepath.Join(dir, RaftDir)
	if _, err := os.Lstat(identity); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the instance's identity, %q, is missing, and its log is there; put the file back from a copy, or start on a new folder and let it join", identity)
}

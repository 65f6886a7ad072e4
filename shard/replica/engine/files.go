package engine

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// Files of the engine in its directory: its owner, and the directory's random name. Each is half of
// an MD5 sum, followed by the content.
const (
	statusFile = "dragonboat.ds"
	idFile     = "NODEHOST.ID"
)

func fileSum(record []byte) []byte {
	sum := md5.Sum(record)
	return sum[8:]
}

// readFile returns the content of one.
func readFile(path string) (record []byte, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < 8 || !bytes.Equal(b[:8], fileSum(b[8:])) {
		return nil,
			fmt.Errorf("the raft engine's file %q is damaged; remove it, and the engine creates a new one", path)
	}
	return b[8:], nil
}

// CheckFiles returns an error for a damaged file. The engine creates missing ones.
func CheckFiles(dir string) error {
	for _, name := range []string{statusFile, idFile} {
		if _, err := readFile(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// AdoptHostname moves a directory from a host of another name to this host: the engine keeps its
// data under the host's name. It is for copies that are read elsewhere. An instance that is to
// continue with its folder keeps its host's name. A directory of this host stays as it is.
func AdoptHostname(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, statusFile)
	b, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the engine creates one
	}
	if err != nil {
		return err
	}
	var record pb.RaftDataStatus
	if err := record.Unmarshal(b); err != nil {
		return fmt.Errorf("the raft engine's file %q: %w", path, err)
	}
	if record.Hostname == "" || record.Hostname == host {
		return nil
	}
	if err := os.Rename(filepath.Join(dir, record.Hostname), filepath.Join(dir, host)); err != nil {
		return err
	}
	record.Hostname = host
	if b, err = record.Marshal(); err != nil {
		return err
	}
	return os.WriteFile(path, append(fileSum(b), b...), 0o600)
}

// LogIsMissing reports whether replicas lived in the directory and the log is gone. An empty one
// would be created, and the replicas would have forgotten everything. The folders for snapshots are
// created after the log.
func LogIsMissing(dir string) bool {
	stores, _ := filepath.Glob(filepath.Join(dir, "*", "*", "logdb-*"))
	replicas, _ := filepath.Glob(filepath.Join(dir, "*", "*", "snapshot-part-*"))
	return len(stores) == 0 && len(replicas) > 0
}

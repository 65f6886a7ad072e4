package replica

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// engineFlag is the engine's note in its directory about who made it: half of an MD5, and the note.
const engineFlag = "dragonboat.ds"

// Adopt makes a directory that was made on a host of another name one of this host: the engine keeps its data under the host's name, and refuses another. It is for copies,
// that are read elsewhere; an instance that is to go on with its folder keeps its host's name. A directory of this host is left as it is.
func Adopt(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, engineFlag)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	half := func(b []byte) []byte {
		sum := md5.Sum(b)
		return sum[8:]
	}
	var note pb.RaftDataStatus
	if len(b) < 8 || !bytes.Equal(b[:8], half(b[8:])) {
		return errors.New("the engine's note about the folder is damaged")
	}
	if err := note.Unmarshal(b[8:]); err != nil {
		return fmt.Errorf("the engine's note about the folder: %w", err)
	}
	if note.Hostname == "" || note.Hostname == host {
		return nil
	}
	if err := os.Rename(filepath.Join(dir, note.Hostname), filepath.Join(dir, host)); err != nil {
		return err
	}
	note.Hostname = host
	if b, err = note.Marshal(); err != nil {
		return err
	}
	return os.WriteFile(path, append(half(b), b...), 0o600)
}

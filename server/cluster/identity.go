package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Identity is who an instance is. It is on disk before the first word to anybody that depends on it, so that a crash at any moment leaves one instance, and not two.
type Identity struct {
	Format  int    `json:"format"`
	UUID    string `json:"uuid"`              // chosen by the process when the folder was new
	Founder bool   `json:"founder,omitempty"` // it makes the cluster, or has made it
	// Peers is what a discovery has learned; it is dropped when the instance belongs to a cluster.
	Peers []string `json:"peers,omitempty"`
	// The rest is zero until the cluster has taken the instance in.
	Cluster     string `json:"cluster,omitempty"`
	Instance    uint64 `json:"instance,omitempty"`
	MetaReplica uint64 `json:"meta_replica,omitempty"` // id of its replica of the meta shard
	MetaLogged  uint64 `json:"meta_logged,omitempty"`  // the replica of the meta shard whose log was begun in this folder: it must be there
	RaftAddress string `json:"raft_address,omitempty"` // where the others reach it; fixed for the life of the folder
	// Known is where the other instances were, as of the last map: after a restart they say what has happened meanwhile.
	Known []string `json:"known,omitempty"`
	// Expelled is for good: the folder tells it apart even where nobody else can be asked.
	Expelled bool `json:"expelled,omitempty"`
}

const identityFormat = 1

// Joined says that the instance belongs to a cluster, or is about to make one.
func (i *Identity) Joined() bool { return i.Instance != 0 }

// Store keeps an identity.
type Store interface {
	// Load returns nothing when there is none yet.
	Load() ([]byte, error)
	// Save returns when it is durable.
	Save(b []byte) error
}

// LoadIdentity reads the identity; found is false when there is none yet.
func LoadIdentity(s Store) (id Identity, found bool, err error) {
	b, err := s.Load()
	if err != nil {
		return id, false, fmt.Errorf("read the instance's identity: %w", err)
	}
	if len(b) == 0 {
		return id, false, nil
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return Identity{}, false, fmt.Errorf("the instance's identity cannot be read (%w); put the file back from a copy, or start on a new folder and let it join", err)
	}
	if id.Format > identityFormat {
		return Identity{}, false, errors.New("the instance's identity was written by a newer binary; upgrade this one")
	}
	if id.Format < 1 || id.Joined() && id.MetaReplica == 0 {
		return Identity{}, false, errors.New("the instance's identity is not whole; put the file back from a copy, or start on a new folder and let it join")
	}
	if id.UUID == "" {
		return Identity{}, false, errors.New("the instance's identity names no uuid; put the file back from a copy, or start on a new folder and let it join")
	}
	return id, true, nil
}

// SaveIdentity returns when the identity is durable.
func SaveIdentity(s Store, id Identity) error {
	id.Format = identityFormat
	b, err := json.MarshalIndent(&id, "", "  ")
	if err == nil {
		err = s.Save(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the instance's identity: %w", err)
	}
	return nil
}

// FileStore keeps it in a file. The file is replaced as a whole.
type FileStore string

// Load implements Store.
func (f FileStore) Load() ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(b) == 0 {
		return nil, errors.New("the file is empty; put it back from a copy, or start on a new folder and let it join")
	}
	return b, err
}

// Save implements Store.
func (f FileStore) Save(b []byte) (err error) {
	path := string(f)
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(t.Name())
		}
	}()
	_, err = t.Write(b)
	if err == nil {
		err = t.Sync()
	}
	if e := t.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

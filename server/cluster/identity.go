package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"

	"github.com/signalbox-dev/signalbox/server/file"
)

// maxIdentity is the largest file that FileStore reads, in bytes.
const maxIdentity = 1 << 20

// Identity is an instance's identity. It is on disk before the first message that depends on it, so
// that a crash leaves one instance and not two.
type Identity struct {
	Format  int    `json:"format"`
	UUID    string `json:"uuid"`              // chosen when the folder was new
	Founder bool   `json:"founder,omitempty"` // it makes the cluster, or has made it
	// Peers are the addresses that discovery has found, until the instance belongs to a cluster.
	Peers []string `json:"peers,omitempty"`
	// The rest is zero until the instance has joined.
	Cluster     string `json:"cluster,omitempty"`
	Instance    uint64 `json:"instance,omitempty"`
	MetaReplica uint64 `json:"meta_replica,omitempty"` // its replica of the meta shard
	MetaLogged  uint64 `json:"meta_logged,omitempty"`  // the meta replica whose log was begun in this folder: the log must be there
	RaftAddress string `json:"raft_address,omitempty"` // where others reach it; fixed for the folder
	// Known are the addresses of the other instances, as of the last map, to ask after a restart.
	Known []string `json:"known,omitempty"`
	// Expelled is final, also where nobody else can be asked.
	Expelled bool `json:"expelled,omitempty"`
	// Sum is the CRC-32C of the file up to here. With another instance's or replica's number a vote
	// could be given twice.
	Sum string `json:"sum,omitempty"`
}

// IdentityFormat is the version of the identity's file.
const IdentityFormat = 1

// Joined reports whether the instance belongs to a cluster, or is about to make one.
func (i *Identity) Joined() bool { return i.Instance != 0 }

// Store stores an identity.
type Store interface {
	// Load returns the stored bytes, or nil if nothing was saved yet.
	Load() ([]byte, error)
	// Save returns when it is durable.
	Save(b []byte) error
}

// LoadIdentity reads the identity; found is false if s has none yet.
func LoadIdentity(s Store) (id Identity, found bool, err error) {
	b, err := s.Load()
	if err != nil {
		return id, false, fmt.Errorf("read the instance's identity: %w", err)
	}
	if len(b) == 0 {
		return id, false, nil
	}
	refused := func(what string) (Identity, bool, error) {
		name := "the instance's identity"
		if n, ok := s.(fmt.Stringer); ok {
			name += " in " + n.String()
		}
		return Identity{}, false, fmt.Errorf("%s %s; %s", name, what, identityRemedy)
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return refused(fmt.Sprintf("cannot be read (%v)", err))
	}
	switch sum, ok := sumOf(b); {
	case id.Format > IdentityFormat:
		return Identity{}, false, errors.New("the instance's identity was written by a newer binary; upgrade this one")
	case ok && sum != id.Sum:
		return refused("is not what was written: its sum is " + sum + ", not " + id.Sum)
	case !ok || id.Format < 1 || id.Joined() && id.MetaReplica == 0:
		return refused("is not whole")
	case id.UUID == "":
		return refused("names no uuid")
	}
	id.Sum = ""
	return id, true, nil
}

const identityRemedy = "put the file back from a copy, or start on a new folder and let it join"

// sumKey begins the last field of an identity.
const sumKey = "\"sum\":"

// sumOf returns the checksum of the part of b before the sum; ok is false if b has no sum.
func sumOf(b []byte) (sum string, ok bool) {
	before, _, ok := bytes.Cut(b, []byte(sumKey))
	return fmt.Sprintf("%08x", crc32.Checksum(before, crc32.MakeTable(crc32.Castagnoli))), ok
}

// SaveIdentity returns when the identity is durable.
func SaveIdentity(s Store, id Identity) error {
	id.Format, id.Sum = IdentityFormat, "?"
	b, err := json.MarshalIndent(&id, "", "  ")
	if err == nil {
		id.Sum, _ = sumOf(b)
		b, err = json.MarshalIndent(&id, "", "  ")
	}
	if err == nil {
		err = s.Save(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the instance's identity: %w", err)
	}
	return nil
}

// FileStore stores it in a file, which is replaced as a whole.
type FileStore string

// String is the quoted file name.
func (f FileStore) String() string { return strconv.Quote(string(f)) }

// Load implements Store.
func (f FileStore) Load() ([]byte, error) {
	b, err := file.Read(string(f), maxIdentity)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(b) == 0 {
		return nil, fmt.Errorf("%v is empty; %s", f, identityRemedy)
	}
	return b, err
}

// Save implements Store.
func (f FileStore) Save(b []byte) error { return file.Write(string(f), b) }

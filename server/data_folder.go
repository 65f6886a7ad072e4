package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// inMemory reports that nothing survives the process, except on a memory disk that outlives it.
func (c *Config) inMemory() bool { return c.Memory || c.Disk != nil }

// tokenFile keeps the join token that a founder made because it was given none. The operator copies
// it for the next instance.
const tokenFile = "join-token"

// maxTokenFile is the length of a token's file, in bytes.
const maxTokenFile = 1 << 16

// joinToken is the secret that admits instances to the cluster.
func (c *Config) joinToken() ([]byte, error) {
	if c.JoinToken != "" {
		return []byte(c.JoinToken), nil
	}
	if c.inMemory() {
		return nil, nil
	}
	path := filepath.Join(c.DataDir, tokenFile)
	b, err := file.Read(path, maxTokenFile)
	switch {
	case err == nil && len(strings.TrimSpace(string(b))) > 0:
		return []byte(strings.TrimSpace(string(b))), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the join token: %w", err)
	case len(c.Peers) > 0:
		return nil, errors.New(
			"to join other instances the join token is needed; give the one of the cluster, which is in the file join-token of its first instance's data folder")
	}
	// The others of a cluster do not let in an instance with a token of its own.
	switch id, _, err := cluster.LoadIdentity(c.identityStore()); {
	case err != nil:
		return nil, err
	case len(id.Known) > 0:
		return nil, fmt.Errorf(
			"the join token, %q, is missing, and this instance is not the only one; put the file back from another instance's folder, or give the token", path)
	}
	var raw [24]byte
	_, _ = rand.Read(raw[:]) // it never fails
	token := hex.EncodeToString(raw[:])
	if err := cluster.FileStore(path).Save([]byte(token + "\n")); err != nil {
		return nil, fmt.Errorf("keep the join token: %w", err)
	}
	return []byte(token), nil
}

// openFolder makes the data folder, and locks it. The lock is nil in memory.
func (c *Config) openFolder(log *slog.Logger) (lock *os.File, err error) {
	if c.inMemory() {
		return nil, nil
	}
	if c.Existing {
		if err := datafolder.CheckExisting(c.DataDir); err != nil {
			return nil, err
		}
	}
	err = os.MkdirAll(c.DataDir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		_, err = os.Stat(c.DataDir) // a symbolic link that leads nowhere, or in a circle
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w; choose a folder that this process can make, or write to", err)
	}
	founds := c.restore != nil && !c.joinsRestored()
	if founds { // first of all: a start takes no part of a restore for a new folder
		if err := datafolder.MarkUnfinished(c.DataDir); err != nil {
			return nil, err
		}
	}
	if err := logstore.CheckSpace(c.DataDir); err != nil {
		return nil, err
	}
	if err := datafolder.Restrict(c.DataDir, log); err != nil {
		return nil, err
	}
	if lock, err = datafolder.Lock(c.DataDir); err != nil {
		return nil, err
	}
	if !founds { // a restore that does not end leaves the folder marked
		if err := datafolder.CheckUnfinished(c.DataDir); err != nil {
			return lock, err
		}
	}
	return lock, datafolder.CheckIdentity(c.DataDir)
}

// identityStore keeps the instance's identity.
func (c *Config) identityStore() cluster.Store {
	switch {
	case c.Disk != nil:
		return diskStore{c.Disk}
	case c.Memory:
		return new(memoryStore)
	}
	return cluster.FileStore(filepath.Join(c.DataDir, datafolder.IdentityFile))
}

// diskStore keeps the identity on a memory disk, memoryStore for the life of the process.
type diskStore struct{ disk *replica.MemoryDisk }

func (d diskStore) Load() ([]byte, error) { return d.disk.Metadata(), nil }
func (d diskStore) Save(b []byte) error   { d.disk.SetMetadata(b); return nil }

type memoryStore struct{ b []byte }

func (m *memoryStore) Load() ([]byte, error) { return m.b, nil }
func (m *memoryStore) Save(b []byte) error   { m.b = b; return nil }

// noPeers are those of an instance that is alone for good.
type noPeers struct{}

func (noPeers) Call(_ context.Context, address string, _ uint8, _ []byte) ([]byte, error) {
	return nil, protocol.Errorf(protocol.StatusUnavailable, "this instance has no way to %s: it is alone", address)
}
func (noPeers) Send(string, uint8, []byte)                                              {}
func (noPeers) HandleCall(uint8, func(context.Context, string, []byte) ([]byte, error)) {}
func (noPeers) HandleMessage(uint8, func(string, []byte))                               {}
func (noPeers) Unreached(string) (u peer.Unreached)                                     { return u }
func (n noPeers) Reach(ctx context.Context, address string) error {
	_, err := n.Call(ctx, address, 0, nil)
	return err
}

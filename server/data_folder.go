package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// inMemory says that nothing survives the process, but for what is on a memory disk that outlives it.
func (s *Server) inMemory() bool { return s.cfg.Memory || s.cfg.Disk != nil }

// raftAdvertise is where other instances connect.
func (s *Server) raftAdvertise() string { return cmp.Or(s.cfg.RaftAdvertise, s.cfg.Raft) }

// otherPeers are the peers to look for; none makes a cluster of its own.
func (s *Server) otherPeers() []string { return slices.Clone(s.cfg.Peers) }

// clusterID is the cluster's id, empty before it is known: who knows none may talk to any.
func (s *Server) clusterID() string {
	if s.entry == nil {
		return ""
	}
	return s.entry.Identity().Cluster
}

// domain is the failure domain in the form of the map; the configuration was checked.
func (s *Server) domain() []meta.Label {
	list, _ := s.cfg.domain()
	return list
}

// tokenFile keeps the join token that a founder made because it was given none: whoever starts the next instance copies it.
const tokenFile = "join-token"

// maxTokenFile is the length of a token's file, in bytes.
const maxTokenFile = 1 << 16

// joinToken is the secret that lets instances in.
func (s *Server) joinToken() ([]byte, error) {
	if s.cfg.JoinToken != "" {
		return []byte(s.cfg.JoinToken), nil
	}
	if s.inMemory() {
		return nil, nil
	}
	path := filepath.Join(s.cfg.DataDir, tokenFile)
	b, err := file.Read(path, maxTokenFile)
	switch {
	case err == nil && len(strings.TrimSpace(string(b))) > 0:
		return []byte(strings.TrimSpace(string(b))), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the join token: %w", err)
	case len(s.cfg.Peers) > 0:
		return nil, errors.New("to join other instances the join token is needed; give the one of the cluster, which is in the file join-token of its first instance's data folder")
	}
	// The others of a cluster do not let in an instance with a token of its own.
	switch id, _, err := cluster.LoadIdentity(s.identityStore()); {
	case err != nil:
		return nil, err
	case len(id.Known) > 0:
		return nil, fmt.Errorf("the join token, %q, is missing, and this instance is not the only one; put the file back from another instance's folder, or give the token", path)
	}
	var raw [24]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, fmt.Errorf("make a join token: %w", err)
	}
	token := hex.EncodeToString(raw[:])
	if err := cluster.FileStore(path).Save([]byte(token + "\n")); err != nil {
		return nil, fmt.Errorf("keep the join token: %w", err)
	}
	return []byte(token), nil
}

// makeFolder makes the data folder, and keeps others off it.
func (s *Server) makeFolder(context.Context) error {
	if s.inMemory() {
		return nil
	}
	err := os.MkdirAll(s.cfg.DataDir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		_, err = os.Stat(s.cfg.DataDir) // a symbolic link that leads nowhere, or in a circle
	}
	if err != nil {
		return fmt.Errorf("data folder: %w; choose a folder that this process can make, or write to", err)
	}
	if err := datafolder.Restrict(s.cfg.DataDir, s.log); err != nil {
		return err
	}
	if s.lock, err = datafolder.Lock(s.cfg.DataDir); err != nil {
		return err
	}
	if err := s.checkUnfinished(); err != nil {
		return err
	}
	return datafolder.CheckIdentity(s.cfg.DataDir)
}

func (s *Server) identityStore() cluster.Store {
	switch {
	case s.cfg.Disk != nil:
		return diskStore{s.cfg.Disk}
	case s.cfg.Memory:
		return new(memoryStore)
	}
	return cluster.FileStore(filepath.Join(s.cfg.DataDir, datafolder.IdentityFile))
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

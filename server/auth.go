package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// adminTokenFile keeps the first administrator's token, which the instance that makes the cluster
// made up.
const adminTokenFile = "admin-token"

// openAuth turns auth on in a cluster that this instance makes, before clients are let in. It may
// have died in the middle before: the secret is on disk first.
func (s *Server) openAuth(ctx context.Context) error {
	if !s.cfg.Auth || !s.entry.Identity().Founder {
		return nil
	}
	state := s.meta.State()
	if list, _ := state.Tokens(); state.AuthOn() || len(list) != 0 {
		return nil // turning it off later is an administrator's word, which a restart does not undo
	}
	secret, where := s.cfg.AdminToken, "the one given"
	if secret == "" {
		if s.cfg.inMemory() {
			return errors.New("auth is wanted in memory, where no file can keep the administrator's token; give one")
		}
		path := filepath.Join(s.cfg.DataDir, adminTokenFile)
		where = path
		b, err := file.Read(path, maxTokenFile)
		switch {
		case err == nil && len(strings.TrimSpace(string(b))) >= auth.MinSecretLen:
			secret = strings.TrimSpace(string(b))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read the administrator's token: %w", err)
		default:
			if secret, err = auth.NewSecret(); err != nil {
				return err
			}
			if err := cluster.FileStore(path).Save([]byte(secret + "\n")); err != nil {
				return fmt.Errorf("keep the administrator's token: %w", err)
			}
		}
	}
	t := meta.Token{ID: auth.AdminTokenID, Identity: auth.AdminIdentity, Hash: auth.HashToken([]byte(secret))}
	if err := s.governor.TurnAuth(ctx, true, t); err != nil && !errors.Is(err, protocol.StatusAlreadyExists) {
		return fmt.Errorf("turn auth on: %w", err)
	}
	s.requests.SetAuth(s.meta.State())
	s.log.Info("auth is on; the administrator's token is kept", "identity", auth.AdminIdentity, "file", where)
	return nil
}

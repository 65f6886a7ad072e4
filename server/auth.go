package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// adminTokenFile keeps the first administrator's token, which the instance that makes the cluster
// made up.
const adminTokenFile = "admin-token"

// adminSecret returns the first administrator's token: the configured one, or else that of the data
// folder, which it creates if necessary. where names its source, for the log.
func adminSecret(c *Config) (secret, where string, err error) {
	if c.AdminToken != "" {
		return c.AdminToken, "the one given", nil
	}
	if c.inMemory() {
		return "", "", errors.New("auth is wanted in memory, where no file can keep the administrator's token; give one")
	}
	path := filepath.Join(c.DataDir, adminTokenFile)
	b, err := file.Read(path, maxTokenFile)
	secret = strings.TrimSpace(string(b))
	switch {
	case err == nil && len(secret) >= auth.MinSecretLen:
		return secret, path, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("read the administrator's token: %w", err)
	}
	secret = auth.NewSecret()
	if err := cluster.FileStore(path).Save([]byte(secret + "\n")); err != nil {
		return "", "", fmt.Errorf("keep the administrator's token: %w", err)
	}
	return secret, path, nil
}

// dropTokens removes all tokens. With authentication on, the cluster gets a new administrator's
// token first, in file.
func dropTokens(ctx context.Context, s *Server) (file string, err error) {
	old, _ := s.meta.State().Tokens()
	if s.meta.State().AuthOn() {
		var secret string
		if secret, file, err = adminSecret(&s.cfg); err != nil {
			return "", err
		}
		id := auth.AdminTokenID
		for slices.ContainsFunc(old, func(t meta.Token) bool { return t.ID == id }) {
			id += "-new"
		}
		err = errors.Join(
			s.governor.PutToken(ctx, meta.Token{ID: id, Identity: auth.AdminIdentity, Hash: auth.HashToken([]byte(secret))}),
			s.governor.PutRight(ctx, meta.Right{Identity: auth.AdminIdentity, Rights: meta.AllRights}))
	}
	for _, t := range old {
		if err == nil {
			err = s.governor.RemoveToken(ctx, t.ID)
		}
	}
	if err != nil {
		return "", fmt.Errorf("drop the tokens of the backup: %w", err)
	}
	return file, nil
}

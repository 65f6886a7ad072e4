package server

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/file"
)

// adminTokenFile keeps the first administrator's token, which the instance that makes the cluster
// made up.
const adminTokenFile = "admin-token"

// adminSecret is the first administrator's token: the one given, or else that of the data folder,
// which is made up when there is none. Where says, for the log, which one it is.
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

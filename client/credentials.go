package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/reread"
)

// TokenFile is a Config.GetToken that reads a file, and removes the white space around the token.
// Replace the file and revoke the token in it later: sessions and their leases stay. A path that is
// no regular file, such as a pipe, is read once.
func TokenFile(path string) func(context.Context) ([]byte, error) {
	return reread.File(path, func(b []byte) ([]byte, error) {
		if b = bytes.TrimSpace(b); len(b) == 0 {
			return nil, fmt.Errorf("%s is empty", path)
		}
		return b, nil
	})
}

// CAFile is a Config.GetRootCAs that reads a file with the certificates of one or more authorities
// in PEM form. To change the authority, put both into the file first. A path that is not a
// regular file, such as a pipe, is read once.
func CAFile(path string) func(context.Context) (*x509.CertPool, error) {
	return reread.File(path, func(b []byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s has no certificate in PEM form; give those of the CA", path)
		}
		return pool, nil
	})
}

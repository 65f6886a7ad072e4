package main

import (
	"crypto/tls"

	"github.com/signalbox-dev/signalbox/server/file"
)

// maxPEM is the longest file of certificates or keys, in bytes.
const maxPEM = 4 << 20

// tlsConfig is how to connect over TLS; nil: without it. It does not read the file of tls-ca.
func tlsConfig(v map[string]string) (*tls.Config, error) {
	ca, cert, key, name := v["tls-ca"], v["tls-cert"], v["tls-key"], v["tls-server-name"]
	if v["tls"] != "true" && ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--tls-cert and --tls-key go together: give the certificate and its key, or neither")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if cert != "" {
		if _, err := keyPair(cert, key); err != nil {
			return nil, usagef("cannot use --tls-cert with --tls-key: %v", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := keyPair(cert, key)
			return &pair, err
		}
	}
	return c, nil
}

func keyPair(cert, key string) (pair tls.Certificate, err error) {
	c, err := file.Read(cert, maxPEM)
	if err != nil {
		return pair, err
	}
	k, err := file.Read(key, maxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(c, k)
}

package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client/internal/reread"
)

// Defaults of FromEnv, which are the command line's.
const (
	defaultEndpoint = "127.0.0.1:7070"
	DefaultNode     = "/default"
)

// FromEnv reads from the environment how to reach a cluster, and the path of the coordination node,
// by the variables that the command line uses:
//
//	SIGNALBOX_ENDPOINTS         addresses of instances, separated by commas; default 127.0.0.1:7070
//	SIGNALBOX_NODE              path of the coordination node; default /default
//	SIGNALBOX_CLUSTER           id or name of the cluster that is meant; default any
//	SIGNALBOX_TOKEN_FILE        file with the token; default none
//	SIGNALBOX_TLS               true: connect over TLS, which the variables below imply
//	SIGNALBOX_TLS_CA            file with the instances' CA certificates; default the system's
//	SIGNALBOX_TLS_CERT, _KEY    files with this client's certificate and key
//	SIGNALBOX_TLS_SERVER_NAME   name in the instances' certificates, in place of the host
//	SIGNALBOX_SESSION           session of the command line that runs this program: Config.Parent
//
// An empty variable counts as unset. An error names the variable. The files are read again for each
// connection.
//
//	cfg, node, err := client.FromEnv()
//	c, err := client.Open(ctx, cfg)
//	s, err := c.Session(ctx, node)
func FromEnv() (cfg Config, node string, err error) {
	if node = os.Getenv("SIGNALBOX_NODE"); node == "" {
		node = DefaultNode
	}
	endpoints := cmp.Or(os.Getenv("SIGNALBOX_ENDPOINTS"), defaultEndpoint)
	for e := range strings.SplitSeq(endpoints, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(e); err != nil {
			return cfg, node, fmt.Errorf("SIGNALBOX_ENDPOINTS: %q is not host:port", e)
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	if len(cfg.Endpoints) == 0 {
		return cfg, node, fmt.Errorf("SIGNALBOX_ENDPOINTS %q names no instance; name at least one as host:port",
			endpoints)
	}
	cfg.Cluster = os.Getenv("SIGNALBOX_CLUSTER")
	if file := os.Getenv("SIGNALBOX_TOKEN_FILE"); file != "" {
		cfg.GetToken = TokenFile(file)
		if _, err := cfg.GetToken(context.Background()); err != nil {
			return cfg, node, fmt.Errorf("SIGNALBOX_TOKEN_FILE: %w", err)
		}
	}
	if file := os.Getenv("SIGNALBOX_TLS_CA"); file != "" {
		cfg.GetRootCAs = CAFile(file)
		if _, err := cfg.GetRootCAs(context.Background()); err != nil {
			return cfg, node, fmt.Errorf("SIGNALBOX_TLS_CA: %w", err)
		}
	}
	if text := os.Getenv("SIGNALBOX_SESSION"); text != "" {
		if cfg.Parent, err = strconv.ParseUint(text, 10, 64); err != nil {
			return cfg, node, fmt.Errorf("SIGNALBOX_SESSION is %q, which is no session's id", text)
		}
	}
	cfg.TLS, err = tlsFromEnv()
	return cfg, node, err
}

// tlsFromEnv is nil when no variable asks for TLS.
func tlsFromEnv() (*tls.Config, error) {
	ca, cert, key := os.Getenv("SIGNALBOX_TLS_CA"), os.Getenv("SIGNALBOX_TLS_CERT"), os.Getenv("SIGNALBOX_TLS_KEY")
	name, on := os.Getenv("SIGNALBOX_TLS_SERVER_NAME"), false
	if text := os.Getenv("SIGNALBOX_TLS"); text != "" {
		var err error
		if on, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("SIGNALBOX_TLS is %q; write true or false", text)
		}
	}
	if !on && ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf(
			"SIGNALBOX_TLS_CERT and SIGNALBOX_TLS_KEY go together: give the certificate and its key, or neither")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if cert != "" {
		if _, err := readEnvKeyPair(cert, key); err != nil {
			return nil, fmt.Errorf("SIGNALBOX_TLS_CERT with SIGNALBOX_TLS_KEY: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return readEnvKeyPair(cert, key)
		}
	}
	return c, nil
}

func readEnvKeyPair(cert, key string) (*tls.Certificate, error) {
	c, err := readEnvFile("SIGNALBOX_TLS_CERT", cert)
	if err != nil {
		return nil, err
	}
	k, err := readEnvFile("SIGNALBOX_TLS_KEY", key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c, k)
	return &pair, err
}

func readEnvFile(variable, path string) ([]byte, error) {
	b, _, err := reread.Read(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return b, nil
}

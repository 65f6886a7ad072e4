package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/release"
)

// setup is the configuration that results from the settings.
type setup struct {
	gateway gateway.Config
	ready   func() error // nil: always
}

// maxConnections is the most that a limit of connections can be, as with an instance.
const maxConnections = 1 << 24

// configure turns settings into a configuration. Certificates are watched until ctx ends.
func configure(ctx context.Context, v values, stderr io.Writer) (s setup, log *logging.Log, err error) {
	c := &s.gateway
	if log, err = logging.New(stderr, v["log-level"], v["log-format"]); err != nil {
		return s, nil, usagef("%v", err)
	}
	c.Logger, c.LogDropped = log.Logger(), log.Dropped
	c.Database, c.Advertise = v["database"], splitList(v["advertise"])
	c.Cluster = client.Config{Endpoints: splitList(v["endpoints"]), Cluster: v["cluster"],
		Name: "signalbox-ydb/" + release.Current().Version}
	for _, e := range c.Cluster.Endpoints {
		if _, _, err := net.SplitHostPort(e); err != nil {
			return s, nil, usagef("--endpoints: %q is not host:port", e)
		}
	}
	if len(c.Cluster.Endpoints) == 0 {
		return s, nil, usagef("--endpoints is empty; name at least one instance as host:port")
	}
	for _, n := range []struct {
		flag string
		to   *int
	}{{"max-connections", &c.MaxConnections}, {"max-connections-per-address", &c.MaxConnectionsPerAddress}} {
		if *n.to, err = strconv.Atoi(v[n.flag]); err != nil || *n.to < 0 || *n.to > maxConnections {
			return s, nil, usagef("--%s %q is not a number from 0 to %d", n.flag, v[n.flag], maxConnections)
		}
	}
	if v["tls"] == "true" || v["tls-ca"] != "" || v["tls-server-name"] != "" {
		c.Cluster.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: v["tls-server-name"]}
	}
	if ca := v["tls-ca"]; ca != "" {
		c.Cluster.GetRootCAs = client.CAFile(ca)
		if _, err := c.Cluster.GetRootCAs(ctx); err != nil {
			return s, nil, usagef("cannot read --tls-ca: %v", err)
		}
	}
	if cert, key := v["listen-tls-cert"], v["listen-tls-key"]; cert != "" || key != "" {
		files, err := certs.Open(certs.Files{Cert: cert, Key: key}, c.Logger)
		if err != nil {
			return s, nil, usagef("cannot use --listen-tls-cert with --listen-tls-key: %v", err)
		}
		go files.Watch(ctx)
		c.TLS, c.CertificateExpires = files.Server(), files.Expires
		s.ready = func() error { return files.Check("--listen-tls-cert") }
	}
	return s, log, nil
}

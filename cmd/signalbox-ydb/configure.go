package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/certs"
)

// setup is what the settings come to.
type setup struct{ gateway gateway.Config }

// maxConnections is the most that a limit of connections can be, as with an instance.
const maxConnections = 1 << 24

// configure turns settings into a configuration. Certificates are watched until ctx ends.
func configure(ctx context.Context, v values, stderr io.Writer) (s setup, err error) {
	c := &s.gateway
	if c.Logger, err = logger(v, stderr); err != nil {
		return s, err
	}
	c.Database, c.Advertise = v["database"], splitList(v["advertise"])
	c.Cluster = client.Config{Endpoints: splitList(v["endpoints"]), Name: "signalbox-ydb/" + version}
	for _, e := range c.Cluster.Endpoints {
		if _, _, err := net.SplitHostPort(e); err != nil {
			return s, usagef("--endpoints: %q is not host:port", e)
		}
	}
	if len(c.Cluster.Endpoints) == 0 {
		return s, usagef("--endpoints is empty; name at least one instance as host:port")
	}
	for _, n := range []struct {
		flag string
		to   *int
	}{{"max-connections", &c.MaxConnections}, {"max-connections-per-address", &c.MaxConnectionsPerAddress}} {
		if *n.to, err = strconv.Atoi(v[n.flag]); err != nil || *n.to < 0 || *n.to > maxConnections {
			return s, usagef("--%s %q is not a number from 0 to %d", n.flag, v[n.flag], maxConnections)
		}
	}
	if v["tls"] == "true" || v["tls-ca"] != "" || v["tls-server-name"] != "" {
		c.Cluster.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: v["tls-server-name"]}
	}
	if ca := v["tls-ca"]; ca != "" {
		c.Cluster.GetRootCAs = client.CAFile(ca)
		if _, err := c.Cluster.GetRootCAs(ctx); err != nil {
			return s, usagef("cannot read --tls-ca: %v", err)
		}
	}
	if cert, key := v["listen-tls-cert"], v["listen-tls-key"]; cert != "" || key != "" {
		files, err := certs.Open(certs.Files{Cert: cert, Key: key}, c.Logger)
		if err != nil {
			return s, usagef("cannot use --listen-tls-cert with --listen-tls-key: %v", err)
		}
		go files.Watch(ctx)
		c.TLS, c.CertificateExpires = files.Server(), files.Expires
	}
	return s, nil
}

func logger(v values, stderr io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(v["log-level"])); err != nil || strings.ContainsAny(v["log-level"], "+-") {
		return nil, usagef("--log-level %q is unknown; choose debug, info, warn or error", v["log-level"])
	}
	switch options := (&slog.HandlerOptions{Level: level}); v["log-format"] {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(stderr, options)), nil
	}
	return nil, usagef("--log-format %q is unknown; choose text or json", v["log-format"])
}

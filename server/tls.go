package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/peer"
)

// checkTLS checks the settings of encryption. The files themselves are read at the start.
func (c *Config) checkTLS() error {
	none := certs.Files{}
	switch {
	case c.TLSListen == Off && c.TLS != none:
		return errors.New("certificates for clients are given and no address for TLS; give the address to listen on")
	case c.TLSListen == Off && c.TLSAdvertise != "":
		return errors.New("an advertised TLS address is given and none to listen on; give the address to listen on")
	case c.TLSListen == Off && c.Listen == Off:
		return errors.New("clients have no address, plain or with TLS; give one of the two")
	case c.ClusterTLS == none:
	case c.ClusterTLS.CA == "":
		return errors.New(
			"TLS between instances needs the certificate of the CA that signs theirs: without it anybody's would do")
	case c.Network == nil && (c.Memory || c.Disk != nil):
		return errors.New("TLS between instances is given to an instance in memory, which has no way to others; leave it out")
	}
	return nil
}

// certificates are the certificates of an instance.
type certificates struct {
	clients   *certs.Certs // of clients' TLS, or nil
	instances *certs.Certs // of instances' TLS, or nil
	console   *certs.Certs // of the console's TLS, or nil
	http      *certs.Certs // of the TLS of locks by HTTP, or nil
}

// open reads the files that the configuration names.
func (x *certificates) open(c *Config, log *slog.Logger) (err error) {
	if c.TLSListen != Off {
		if x.clients, err = certs.Open(c.TLS, log); err != nil {
			return fmt.Errorf("TLS for clients: %w", err)
		}
	}
	if c.ClusterTLS != (certs.Files{}) {
		f := c.ClusterTLS
		f.Require = true
		if x.instances, err = certs.Open(f, log); err != nil {
			return fmt.Errorf("TLS between instances: %w", err)
		}
	}
	if c.ConsoleTLS != (certs.Files{}) {
		if x.console, err = certs.Open(c.ConsoleTLS, log); err != nil {
			return fmt.Errorf("TLS of the console: %w", err)
		}
	}
	if c.HTTPTLS != (certs.Files{}) {
		if x.http, err = certs.Open(c.HTTPTLS, log); err != nil {
			return fmt.Errorf("TLS of locks by HTTP: %w", err)
		}
	}
	return nil
}

// each visits the present ones.
func (x *certificates) each(visit func(whose string, c *certs.Certs)) {
	if x.clients != nil {
		visit("clients", x.clients)
	}
	if x.instances != nil {
		visit("instances", x.instances)
	}
	if x.console != nil {
		visit("console", x.console)
	}
	if x.http != nil {
		visit("http", x.http)
	}
}

// refused are the connections that fail while the files of a kind are not valid, with the flags that
// name those files.
var refused = map[string]struct{ who, cert, ca string }{
	"clients":   {"clients over TLS", "--listen-tls-cert", "--listen-tls-client-ca"},
	"instances": {"other instances", "--cluster-tls-cert", "--cluster-tls-ca"},
	"console":   {"browsers", "--console-tls-cert", ""},
	"http":      {"callers of --http", "--http-tls-cert", ""},
}

// refusals says in sentences which new connections fail because of the dates of certificates.
func (x *certificates) refusals() (list []string) {
	x.each(func(whose string, c *certs.Certs) { list = append(list, refusalsOf(whose, c)...) })
	return list
}

func refusalsOf(whose string, c *certs.Certs) (list []string) {
	r := refused[whose]
	own, authorities := c.Invalid(time.Now())
	const replace = "; replace the file, which is loaded within seconds"
	if own != "" {
		list = append(list, fmt.Sprintf("new connections of %s fail: the certificate of %s %s%s", r.who, r.cert, own, replace))
	}
	if authorities != "" {
		list = append(list, fmt.Sprintf("new connections of %s with certificates fail: the authorities of %s %s%s",
			r.who, r.ca, authorities, replace))
	}
	return list
}

// reload reads the files now.
func (x *certificates) reload() error {
	var errs []error
	x.each(func(_ string, c *certs.Certs) { errs = append(errs, c.Reload()) })
	return errors.Join(errs...)
}

// network encrypts a network between instances, if there are certificates for it. Nil is TCP.
func (x *certificates) network(n peer.Network) peer.Network {
	if x.instances == nil {
		return n
	}
	n = cmp.Or(n, peer.TCP())
	return tlsNetwork{Network: n, certs: x.instances}
}

// tlsNetwork encrypts the traffic of instances. Each end shows a certificate that the CA has
// signed, and the dialler insists on the host that it dialled.
type tlsNetwork struct {
	peer.Network
	certs *certs.Certs
}

func (n tlsNetwork) Listen(address string) (net.Listener, error) {
	l, err := n.Network.Listen(address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, n.certs.Server()), nil
}

func (n tlsNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	nc, err := n.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	cfg := n.certs.Client()
	cfg.ServerName, _, _ = net.SplitHostPort(address)
	c := tls.Client(nc, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}

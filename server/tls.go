package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/peer"
)

// checkTLS checks what concerns encryption. The files themselves are read at the start.
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
		return errors.New("TLS between instances needs the certificate of the CA that signs theirs: without it anybody's would do")
	case c.Network == nil && (c.Memory || c.Disk != nil):
		return errors.New("TLS between instances is given to an instance in memory, which has no way to others; leave it out")
	}
	return nil
}

// readCerts reads the certificates, and has them followed while the server runs.
func (s *Server) readCerts(context.Context) error {
	if s.cfg.TLSListen != Off {
		c, err := certs.Open(s.cfg.TLS, s.log)
		if err != nil {
			return fmt.Errorf("TLS for clients: %w", err)
		}
		s.certs = c
		s.watchCerts(c, "clients")
	}
	if s.cfg.ClusterTLS != (certs.Files{}) {
		f := s.cfg.ClusterTLS
		f.Require = true
		c, err := certs.Open(f, s.log)
		if err != nil {
			return fmt.Errorf("TLS between instances: %w", err)
		}
		s.clusterCerts = c
		s.watchCerts(c, "instances")
	}
	return nil
}

func (s *Server) watchCerts(c *certs.Certs, whose string) {
	s.running.Go(func() { c.Watch(s.ctx) })
	s.metrics.NewGauge(fmt.Sprintf("signalbox_certificate_expiry_seconds{for=%q}", whose), func() float64 { return float64(c.Expires().Unix()) })
	s.metrics.NewGauge(fmt.Sprintf("signalbox_certificate_reloads_failed{for=%q}", whose), func() float64 { return float64(c.Failures()) })
}

// ReloadCertificates reads the files of certificates now, instead of within a second. With an error
// the former ones stay in use.
func (s *Server) ReloadCertificates() error {
	var errs []error
	for _, c := range []*certs.Certs{s.certs, s.clusterCerts} {
		if c != nil {
			errs = append(errs, c.Reload())
		}
	}
	return errors.Join(errs...)
}

// An instance has two addresses in the map when it listens over TLS too: "plain,tls://other", or "tls://other" alone. A client is told that of its own kind. When an
// instance has none, it is told the other one: it cannot connect there, and its error says so
// better than an instance without an address.
const tlsScheme = "tls://"

// advertise is where clients are told to connect.
func (s *Server) advertise() string {
	var list []string
	if plain := cmp.Or(s.cfg.Advertise, s.Addr()); plain != "" && s.cfg.Listen != Off {
		list = append(list, plain)
	}
	if address := s.TLSAddr(); address != "" {
		list = append(list, tlsScheme+cmp.Or(s.cfg.TLSAdvertise, address))
	}
	return strings.Join(list, ",")
}

// addressFor takes the map's address of an instance apart for a client.
func addressFor(address string, secure bool) string {
	other := address
	for one := range strings.SplitSeq(address, ",") {
		rest, is := strings.CutPrefix(one, tlsScheme)
		if is == secure {
			return rest
		}
		other = rest
	}
	return other
}

// tlsNetwork encrypts what instances say to each other. Each end shows a certificate that the CA
// has signed, and the dialler insists on the host that it dialled.
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

// peerNetwork is what instances' connections are made with.
func (s *Server) peerNetwork() peer.Network {
	network := s.cfg.Network
	if s.clusterCerts == nil {
		return network
	}
	if network == nil {
		network = peer.TCP()
	}
	return tlsNetwork{Network: network, certs: s.clusterCerts}
}

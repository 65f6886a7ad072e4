package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestTLS: the certificate is verified against the host that is dialled.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"box.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	server := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}

	f := newFake(t)
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		here, there := net.Pipe()
		fc := &fakeConn{f: f, nc: tls.Server(there, server), instance: 1, wake: make(chan struct{}, 1), closed: make(chan struct{})}
		f.set(func() { f.conns[fc] = true })
		go fc.write()
		go fc.serve()
		return here, nil
	}
	for _, x := range []struct {
		host string
		ok   bool
	}{{"box.example:7070", true}, {"other.example:7070", false}} {
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		c, err := Open(ctx, Config{Endpoints: []string{x.host}, TLS: &tls.Config{RootCAs: pool}, Dial: dial,
			Token: []byte("secret"), clock: bubbleClock{}})
		cancel()
		var wrong x509.HostnameError
		if x.ok != (err == nil) || !x.ok && !errors.As(err, &wrong) {
			t.Error(x.host, err)
		}
		if c != nil {
			info, err := c.ServerInfo(bg)
			if err != nil || info.Cluster != "fake" || info.Instance != 1 {
				t.Error(info, err)
			}
			m, err := c.clusterMap(bg)
			if err != nil || len(m.Shards) != 4 {
				t.Error(m, err)
			}
			c.CloseWithoutRelease()
		}
	}
	if m := decode[protocol.Hello](t, f.all(protocol.KindHello)[0].body); string(m.Token) != "secret" || m.Client != Version {
		t.Errorf("%+v", m)
	}
	f.drop()
}

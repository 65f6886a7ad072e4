package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// heldClient holds the connection with its first frame. The end of the read releases it, as a check
// beside it does that is over at once.
type heldClient struct {
	stubClient
	held bool
}

func (c *heldClient) Frame(p Cycle, h protocol.Header) {
	if !c.Established() {
		c.Hold()
		c.held = true
	}
	c.stubClient.Frame(p, h)
}

type releasingCycle struct{ stubCycle }

func (releasingCycle) End(client Client) int {
	if c := client.(*heldClient); c.held {
		c.held = false
		c.Release()
	}
	return 0
}

// TestReleasedAtOnce: frames that came with one that held the connection are served when it is
// released, however soon that is.
func TestReleasedAtOnce(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x, _ := start(t, func(c *Config) {
		c.NewClient = func(c *Conn) Client { return &heldClient{stubClient: stubClient{Conn: c}} }
		c.NewCycle = func() Cycle { return releasingCycle{} }
		c.TLS, c.TLSConfig = l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
	})
	secure, err := tls.Dial("tcp", x.TLSAddr(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secure.Close() })
	_ = secure.SetDeadline(time.Now().Add(wait))
	for _, nc := range []net.Conn{dial(t, x, 0), secure} {
		ping(t, nc, 3)
		for i := range uint64(3) {
			if h := pong(t, nc); h.ID != i {
				t.Errorf("frame %d was answered with %d", i, h.ID)
			}
		}
	}
}

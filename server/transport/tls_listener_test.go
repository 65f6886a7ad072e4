package transport

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countingSigner knows how many signatures were made at once. Each takes a moment, so that others
// could begin meanwhile.
type countingSigner struct {
	*ecdsa.PrivateKey
	now, most atomic.Int64
}

func (s *countingSigner) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(time.Millisecond)
	return s.PrivateKey.Sign(r, digest, opts)
}

// TestHandshakesAtOnce: no more handshakes are computed at once than there are slots, of first and
// of later messages, and a client that stops in the middle of one keeps none.
func TestHandshakesAtOnce(t *testing.T) {
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
	signer := &countingSigner{PrivateKey: key}
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: signer}},
		CurvePreferences: []tls.CurveID{tls.CurveP384}} // so that clients have to try again
	slots := newHandshakeSlots(1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	dial := func() *tls.Conn {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			defer accepted.Close()
			hc := newHandshakeConn(accepted.(*net.TCPConn), slots, time.Minute)
			_ = tls.Server(hc, cfg).Handshake()
			hc.end()
		})
		return tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	stuck := make(chan struct{})
	defer close(stuck)
	for range 3 {
		c := dial()
		hello := make(chan struct{})
		go func() { // it sends its first message, and is stopped when it has the answer
			_ = tls.Client(&stoppedConn{Conn: c.NetConn(), hello: hello, stuck: stuck}, &tls.Config{InsecureSkipVerify: true}).Handshake()
		}()
		<-hello
	}
	var clients sync.WaitGroup
	for range 50 {
		c := dial()
		clients.Go(func() {
			if err := c.Handshake(); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	if most := signer.most.Load(); most > 2 {
		t.Errorf("%d handshakes were computed at once", most)
	}
}

// stoppedConn is a client's connection that reads nothing after it has sent its first message.
type stoppedConn struct {
	net.Conn
	hello, stuck chan struct{}
}

func (c *stoppedConn) Write(b []byte) (int, error) {
	defer close(c.hello)
	return c.Conn.Write(b)
}

func (c *stoppedConn) Read([]byte) (int, error) {
	<-c.stuck
	c.Close()
	return 0, io.EOF
}

package main

import (
	"crypto/tls"
	"testing"

	"github.com/signalbox-dev/signalbox/server/certs/certstest"
)

// TestInstanceDialer: the console of an instance knows that instance by its file, and others by
// certificates that are good for the address that it dials, an IP address too.
func TestInstanceDialer(t *testing.T) {
	dir := t.TempDir()
	authority := certstest.New(t)
	ca := authority.Write(t, dir)
	listen := func(cert, key string) string {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-done })
		return l.Addr().String()
	}
	elsewhere, elsewhereKey := authority.Issue(t, dir, "elsewhere", certstest.Host("elsewhere.example"))
	here, hereKey := authority.Issue(t, dir, "here", certstest.Host("127.0.0.1"))
	for _, x := range []struct {
		cert, key, own string
		good           bool
	}{
		{elsewhere, elsewhereKey, here, false},
		{elsewhere, elsewhereKey, elsewhere, true},
		{here, hereKey, elsewhere, true},
	} {
		dial, err := instanceDialer(ca, x.own)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(t.Context(), listen(x.cert, x.key))
		if (err == nil) != x.good {
			t.Errorf("a certificate of %s, beside an own one of %s: %v", x.cert, x.own, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

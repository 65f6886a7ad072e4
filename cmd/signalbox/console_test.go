package main

import (
	"crypto/tls"
	"slices"
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
		dial, err := instanceDialer("console-ca", ca, x.own)
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

// TestConsoleHosts: a console of an instance is reached under the names that the instance
// advertises, and under those of --console-host.
func TestConsoleHosts(t *testing.T) {
	cfg, err := webOf(map[string]string{
		"console": "127.0.0.1:0", "console-host": "a.example,b.example", "advertise": "c.example:7070", "advertise-tls": "d.example:7070",
	}, "console", nil)
	if want := []string{"a.example", "b.example", "c.example", "d.example"}; err != nil || !slices.Equal(cfg.hosts, want) {
		t.Errorf("hosts are %q, want %q: %v", cfg.hosts, want, err)
	}
}

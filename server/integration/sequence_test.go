package integration

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// FuzzSequence says whole, well-formed messages to a connection that is new, in any order:
// greetings of all kinds, several of them, and requests before, between and after them. Each byte
// of the input is one of the messages. Before a greeting nothing is served; behind one that was
// refused nothing is; every request has one answer, but for pings.
func FuzzSequence(f *testing.F) {
	s := start(f, func(c *server.Config) { c.Authorizer = readers{} })
	client := connect(f, s)
	node := client.node()
	kept := client.session(node, 1)
	home := client.homeBucket(id16(1))
	at := client.bucket(node, "sequence")
	name := []byte("sequence")
	type word struct {
		kind   protocol.Kind
		bucket uint64
		m      protocol.Message
	}
	forged := append([]byte(nil), kept.Ticket...)
	forged[len(forged)/2] ^= 1
	words := []word{
		{protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "fuzz"}},
		{protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Token: make([]byte, 300)}},
		{protocol.KindHello, 0, &protocol.Hello{Magic: "other", Version: protocol.Version}},
		{protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version + 1}},
		{protocol.KindPing, 0, &protocol.Empty{}},
		{protocol.KindMap, 0, &protocol.MapRequest{}},
		{protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: kept.Ticket}},
		{protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: forged}},
		{protocol.KindSessionAttach, home, &protocol.SessionAttach{Session: kept.Session, Node: node, Epoch: 1, Key: id16(1), Timeout: 10_000, Nonce: 1}},
		{protocol.KindSessionAttach, home, &protocol.SessionAttach{Session: kept.Session, Node: node, Epoch: 9, Key: id16(2), Timeout: 10_000, Nonce: 1}},
		{protocol.KindAcquire, at, &protocol.Acquire{Head: protocol.Head{Session: kept.Session, Seq: 1}, Name: name, Count: 1, Ephemeral: true}},
		{protocol.KindRelease, at, &protocol.Release{Head: protocol.Head{Session: kept.Session, Seq: 2}, Name: name}},
		{protocol.KindForceRelease, at, &protocol.ForceRelease{Node: node, Name: name, First: 1, Last: 9, Reason: "fuzz"}}, // forbidden
		{protocol.KindSessionKill, home, &protocol.SessionKill{Node: node, Session: kept.Session, Reason: "fuzz"}},         // forbidden
		{protocol.KindDescribe, at, &protocol.Describe{Node: node, Name: name, Flags: protocol.WithOwners}},
		{protocol.KindWatch, at, &protocol.Watch{Node: node, Name: name}},
		{protocol.KindUnwatch, at, &protocol.Unwatch{WatchID: 1}},
		{protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodWhoAmI}},
		{protocol.KindSessionStop, home, &protocol.SessionStop{Session: kept.Session + 1, Epoch: 1}},
		{100, 0, &protocol.Empty{}},
	}
	f.Add([]byte{0, 4, 5, 6, 10, 14, 11})
	f.Add([]byte{4, 0})
	f.Add([]byte{2, 5, 0})
	f.Add([]byte{0, 0, 7, 9, 12, 13})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 200 {
			return
		}
		before := s.Metrics.Panics.Get()
		c := feedTo(t, s)
		defer c.pipe.Disconnect()
		asked := map[uint64]bool{} // whether a request with this id has an answer
		for i, b := range in {
			w := words[int(b)%len(words)]
			id := uint64(i + 1)
			frame := protocol.AppendFrame(nil, w.kind, id, w.bucket, w.m)
			served := c.Established() && !c.Ending()
			used := c.in(frame)
			if !c.Ending() && used != len(frame) {
				t.Fatalf("used %d of %d bytes", used, len(frame))
			}
			if i == 0 && c.Established() && (int(b)%len(words) != 0) && (int(b)%len(words) != 1) {
				t.Fatalf("greeted by message %d", int(b)%len(words))
			}
			if served && w.kind != protocol.KindPing {
				asked[id] = false
			}
		}
		await.True(t, "all answers", func() bool { c.drain(); return c.Unanswered() == 0 || c.Ending() })
		rest := c.drain()
		for len(rest) > 0 {
			frame, n, err := protocol.SplitFrame(rest, 64<<20)
			if err != nil || n == 0 {
				t.Fatal("what was written is not whole frames: ", err)
			}
			rest = rest[n:]
			h, err := protocol.ParseFrame(frame)
			if err != nil {
				t.Fatal(err)
			}
			if !h.Kind.IsReply() {
				continue
			}
			if asked[h.ID] {
				t.Fatalf("request %d is answered twice", h.ID)
			}
			asked[h.ID] = true
		}
		if !c.Ending() {
			for id, answered := range asked {
				if !answered {
					t.Fatalf("request %d has no answer", id)
				}
			}
		}
		if n := s.Metrics.Panics.Get() - before; n != 0 {
			t.Fatal("a panic was contained")
		}
	})
}

// FuzzFirstBytes says any bytes to the listener for TLS, as the first of a connection or inside one
// that is encrypted. The connection ends, no panic is contained, and others are served as before.
func FuzzFirstBytes(f *testing.F) {
	kit := newTLSKit(f)
	s := start(f, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", kit.files })
	f.Add(false, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(false, []byte{0x16, 3, 1, 0xff, 0xff, 1, 0, 0, 4, 3, 3, 0, 0})
	f.Add(false, []byte{0x15, 3, 3, 0, 2, 2, 40})
	f.Add(false, hello(protocol.Magic, protocol.Version))
	f.Add(true, hello(protocol.Magic, protocol.Version))
	f.Add(true, []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, inside bool, in []byte) {
		if len(in) > 64<<10 {
			return
		}
		before := s.Metrics.Panics.Get()
		nc, err := net.Dial("tcp", s.TLSAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(wait))
		socket := nc.(*net.TCPConn)
		var w io.ReadWriter = nc
		if inside {
			c := tls.Client(nc, kit.client)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			w = c
		}
		if _, err = w.Write(in); err == nil && inside { // the server may have hung up
			_ = w.(*tls.Conn).CloseWrite()
		}
		_ = socket.CloseWrite()
		if _, err := io.Copy(io.Discard, w); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection does not end")
		}
		if n := s.Metrics.Panics.Get() - before; n != 0 {
			t.Fatal("a panic was contained")
		}
	})
}

package peer

import (
	"bytes"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"
)

// scriptedConn is a connection whose other end says what the fuzzer wants.
type scriptedConn struct {
	in   *bytes.Reader
	read int
}

func (s *scriptedConn) Read(b []byte) (int, error) {
	n, err := s.in.Read(b)
	s.read += n
	return n, err
}

func (s *scriptedConn) Write(b []byte) (int, error) { return len(b), nil }

// FuzzHandshake: whatever the other end says, without the token it is let in nowhere, and little of
// it is read.
func FuzzHandshake(f *testing.F) {
	hello := handshakeMessage(msgHello, []byte{3}, make([]byte, nonceSize), text("a:1"), text("b:1"))
	proof := handshakeMessage(msgProof, text("c"), make([]byte, macSize))
	f.Add(append(bytes.Clone(hello), proof...))
	f.Add(append(handshakeMessage(msgChallenge, make([]byte, nonceSize), text("b:1")),
		handshakeMessage(msgAccept, text("c"), make([]byte, macSize))...))
	f.Add(handshakeMessage(msgRefuse, []byte{1}))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	me := identity{[][]byte{keyOf([]byte("secret"))}, "b:1", "c"}
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			s := &scriptedConn{in: bytes.NewReader(b)}
			if _, _, _, err := acceptHandshake(s, me); err == nil || s.read > 2*(maxHandshake+handshakeHeader) {
				t.Fatalf("acceptor: %v after %d bytes", err, s.read)
			}
			s = &scriptedConn{in: bytes.NewReader(b)}
			if _, _, err := dialHandshake(s, me, "b:1", purposeCalls, false); err == nil || s.read > 2*(maxHandshake+handshakeHeader) {
				t.Fatalf("dialer: %v after %d bytes", err, s.read)
			}
		}
	})
}

// FuzzFrames: no bytes make the reader panic, and what it reads it would write in the same way.
func FuzzFrames(f *testing.F) {
	f.Add(byte(3), append(appendFrame(nil, frameMessage, 7, nil, []byte("payload")), pingFrame...))
	f.Add(byte(1), appendFrame(nil, frameBatch, 0, nil, endless))
	f.Add(byte(2), []byte{0xff, 0xff, 0xff, 0xff, frameChunk, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p byte, b []byte) {
		r := frameReader{r: bytes.NewReader(b), limits: limitsOf(purpose(p%4), p < 128, 1000)}
		rest := b
		for {
			kind, arg, payload, err := r.next(nil)
			if err != nil {
				return
			}
			again := appendFrame(nil, kind, arg, nil, payload)
			if !bytes.HasPrefix(rest, again) {
				t.Fatal("a frame is read that nobody writes")
			}
			rest = rest[len(again):]
		}
	})
}

// FuzzBatches: what the walk lets through the engine's decoder ends with, without a panic.
func FuzzBatches(f *testing.F) {
	batch := testBatch("a:1")
	f.Add(raftpb.MustMarshal(&batch))
	f.Add(endless)
	f.Add([]byte{0x0a, 0x02, 0x5a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkBatch(b) != nil {
			return
		}
		m := Transport{log: quietLog}
		_ = m.decodeBatch(&conn{m: &m, peer: "a:1"}, b, &batch)
	})
}

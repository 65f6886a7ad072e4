package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// server answers the first bytes of a client on a pipe with writes, one after the other, and
// closes.
func server(t *testing.T, writes ...[]byte) net.Conn {
	client, peer := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = peer.Read(make([]byte, 1024))
		for _, b := range writes {
			if _, err := peer.Write(b); err != nil {
				break
			}
		}
		_ = peer.Close()
	}()
	t.Cleanup(func() {
		_ = client.Close()
		<-done
	})
	return client
}

var hello = &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "test"}

func helloReply() []byte {
	return protocol.AppendFrame(nil, protocol.KindHello|protocol.KindReply, helloID, 0, &protocol.HelloReply{Instance: 3, Window: 8})
}

// bytewise is each byte by itself.
func bytewise(b []byte) (list [][]byte) {
	for i := range b {
		list = append(list, b[i:i+1])
	}
	return list
}

// TestReads: frames are whole however they come, and those of one read come together. What came
// with the answer to the hello is first.
func TestReads(t *testing.T) {
	frame := func(id uint64) []byte { return protocol.AppendFrame(nil, protocol.KindPong, id, 1, nil) }
	long := protocol.AppendFrame(nil, protocol.KindGoodbye, 9, 0, &protocol.Goodbye{Message: strings.Repeat("x", 3*minReadBuffer)})
	writes := bytewise(helloReply())
	last := len(writes) - 1
	writes[last] = append(append(append([]byte{}, writes[last]...), frame(1)...), frame(2)[:4]...)
	writes = append(writes, frame(2)[4:], append(append(frame(3), frame(4)...), long[:2]...), long[2:])
	c, reply, _, err := Handshake(server(t, writes...), hello, nil)
	if err != nil || reply.Instance != 3 {
		t.Fatal(err, reply)
	}
	var got [][]uint64
	received := func(frames []protocol.Header) {
		var ids []uint64
		for _, h := range frames {
			ids = append(ids, h.ID)
		}
		got = append(got, ids)
	}
	if err := c.First(received); err != nil || len(got) != 1 || got[0][0] != 1 {
		t.Fatalf("behind the hello came %v, %v", got, err)
	}
	if err := c.Read(received); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := [][]uint64{{1}, {2}, {3, 4}, {9}}
	if len(got) != len(want) {
		t.Fatalf("reads brought %v, want %v", got, want)
	}
	for i := range want {
		if len(got[i]) != len(want[i]) || got[i][0] != want[i][0] {
			t.Fatalf("reads brought %v, want %v", got, want)
		}
	}
}

// TestBadFrames: what is no frame ends the connection, after what came before it.
func TestBadFrames(t *testing.T) {
	whole := protocol.AppendFrame(nil, protocol.KindPong, 7, 1, nil)
	for _, bad := range [][]byte{{0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 1, 0xc1}} {
		c, _, _, err := Handshake(server(t, helloReply(), append(append([]byte{}, whole...), bad...)), hello, nil)
		if err != nil {
			t.Fatal(err)
		}
		came := 0
		if err := c.Read(func(frames []protocol.Header) { came += len(frames) }); err == nil || errors.Is(err, io.EOF) || came != 1 {
			t.Errorf("%x: %v, behind %d frames", bad, err, came)
		}
	}
}

// TestHandshakeRefused: an answer that is no welcome is an error that says which.
func TestHandshakeRefused(t *testing.T) {
	refusal := protocol.AppendFrame(nil, protocol.KindHello|protocol.KindReply, helloID, uint64(protocol.StatusForbidden),
		&protocol.Failure{Message: "not you"})
	goodbye := protocol.AppendFrame(nil, protocol.KindGoodbye, 0, 0,
		&protocol.Goodbye{Status: protocol.StatusUnavailable, Message: "stopping"})
	for _, x := range []struct {
		answer []byte
		want   error
	}{
		{refusal, protocol.StatusForbidden}, {goodbye, protocol.StatusUnavailable},
		{[]byte("HTTP/1.1 400 Bad Request\r\n"), ErrNotProtocol}, {nil, io.EOF},
	} {
		_, _, received, err := Handshake(server(t, x.answer), hello, nil)
		if !errors.Is(err, x.want) {
			t.Errorf("%q: %v, want %v", x.answer, err, x.want)
		}
		if x.want == ErrNotProtocol && string(received) != string(x.answer) {
			t.Errorf("%q was received, want %q", received, x.answer)
		}
	}
}

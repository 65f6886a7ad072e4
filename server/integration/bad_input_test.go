package integration

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func hello(magic string, version uint32) []byte {
	return protocol.AppendFrame(nil, protocol.KindHello, 1, 0, &protocol.Hello{Magic: magic, Version: version})
}

func clientHello() []byte {
	a, b := net.Pipe()
	got := make(chan []byte, 1)
	go func() {
		buf := make([]byte, 4096)
		n, _ := b.Read(buf)
		got <- buf[:n]
		_ = b.Close()
	}()
	_ = tls.Client(a, &tls.Config{ServerName: "x"}).Handshake()
	_ = a.Close()
	return <-got
}

// TestWrongBytes: the connection is closed with a reason, and the server lives. Each case ends
// within the sender's own connection.
func TestWrongBytes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	healthy := connect(t, s)
	frame := func(kind protocol.Kind, m protocol.Message) []byte { return protocol.AppendFrame(nil, kind, 1, 0, m) }
	deep := bytes.Repeat([]byte{0x91}, 1<<20)
	deepMap := bytes.Repeat([]byte{0x81, 0xa1, 'a'}, 300_000)
	in := func(body ...byte) []byte { return framed(append([]byte{0x94, 34, 1, 0}, body...)) }
	for _, c := range []struct {
		name  string
		greet bool
		bytes []byte
		want  protocol.Status
	}{
		{"length 0", false, []byte{0, 0, 0, 0}, protocol.StatusBadRequest},
		{"length 1", false, []byte{0, 0, 0, 1, 0x94}, protocol.StatusBadRequest},
		{"length 2^31-1", false, []byte{0x7f, 0xff, 0xff, 0xff}, protocol.StatusBadRequest},
		{"length 2^31", false, []byte{0x80, 0, 0, 0}, protocol.StatusBadRequest},
		{"length 2^32-1", false, []byte{0xff, 0xff, 0xff, 0xff}, protocol.StatusBadRequest},
		{"above the hello's bound", false, framed(make([]byte, protocol.MaxHelloLen+1)), protocol.StatusBadRequest},
		{"above the bound", true, framed(make([]byte, protocol.MaxFrameLen+1)), protocol.StatusBadRequest},
		{"http", false, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), protocol.StatusBadRequest},
		{"tls", false, clientHello(), protocol.StatusBadRequest},
		{"ssh", false, []byte("SSH-2.0-OpenSSH_9.6\r\n"), protocol.StatusBadRequest},
		{"grpc", false, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), protocol.StatusBadRequest},
		{"wrong magic", false, hello("semaphore", 1), protocol.StatusBadRequest},
		{"version 0", false, hello(protocol.Magic, 0), protocol.StatusUnsupported},
		{"version 255", false, hello(protocol.Magic, 255), protocol.StatusUnsupported},
		{"request first", false, frame(protocol.KindMap, &protocol.MapRequest{}), protocol.StatusBadRequest},
		{"ping first", false, frame(protocol.KindPing, nil), protocol.StatusBadRequest},
		{"unknown first", false, frame(50, nil), protocol.StatusBadRequest},
		{"hello twice", true, hello(protocol.Magic, 1), protocol.StatusBadRequest},
		{"a reply", true, frame(protocol.KindAcquire|protocol.KindReply, nil), protocol.StatusBadRequest},
		{"an event", true, frame(protocol.KindPong, nil), protocol.StatusBadRequest},
		{"a goodbye", true, frame(protocol.KindGoodbye, &protocol.Goodbye{}), protocol.StatusBadRequest},
		{"not an array", true, framed([]byte{1}), protocol.StatusBadRequest},
		{"three elements", true, framed([]byte{0x93, 4, 1, 0}), protocol.StatusBadRequest},
		{"five elements", true, framed([]byte{0x95, 4, 1, 0, 0x90, 0}), protocol.StatusBadRequest},
		{"negative kind", true, framed([]byte{0x94, 0xff, 1, 0, 0x90}), protocol.StatusBadRequest},
		{"kind of 17 bits", true, framed([]byte{0x94, 0xce, 0, 1, 0, 0, 1, 0, 0x90}), protocol.StatusBadRequest},
		{"body is a map", true, in(0x80), protocol.StatusBadRequest},
		{"trailing bytes", true, in(0x90, 0x90), protocol.StatusBadRequest},
		{"bin of 4 GB", true, in(0x91, 0xc6, 0xff, 0xff, 0xff, 0xff), protocol.StatusBadRequest},
		{"str of 4 GB", true, in(0x91, 0xdb, 0xff, 0xff, 0xff, 0xff), protocol.StatusBadRequest},
		{"array of 4 G", true, in(0xdd, 0xff, 0xff, 0xff, 0xff), protocol.StatusBadRequest},
		{"map of 4 G", true, in(0x91, 0xdf, 0xff, 0xff, 0xff, 0xff), protocol.StatusBadRequest},
		{"ext of 4 GB", true, in(0x91, 0xc9, 0xff, 0xff, 0xff, 0xff, 1), protocol.StatusBadRequest},
		{"deep arrays", true, in(deep...), protocol.StatusBadRequest},
		{"deep maps", true, in(append([]byte{0x91}, deepMap...)...), protocol.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := dial(t, s)
			if c.greet {
				x = connect(t, s)
			}
			_ = x.writeErr(c.bytes) // the server may close before it has read everything
			g := x.closed()
			if g == nil || g.Status != c.want || g.Message == "" {
				t.Fatalf("goodbye is %+v, want %v", g, c.want)
			}
			healthy.ping()
		})
	}
}

// TestCutShort: a frame that never ends, and the client goes away in each way there is.
func TestCutShort(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	healthy := connect(t, s)
	whole := protocol.AppendFrame(nil, protocol.KindMap, 9, 0, &protocol.MapRequest{Known: 77})
	for n := 1; n < len(whole); n++ {
		x := connect(t, s)
		x.write(whole[:n])
		if n%2 == 0 {
			_ = socketOf(x.nc).SetLinger(0) // reset
		}
		_ = x.nc.Close()
	}
	healthy.ping()
	await.True(t, "the connections to go", func() bool { return s.Transport.Connections() == 1 })
}

// TestUnknownAndMalformed: an answer, and the connection lives.
func TestUnknownAndMalformed(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	for _, kind := range []protocol.Kind{0, 5, 9, 63, 97, 127, 0x100, 0x300, 0xff00} {
		id := c.nextID + 1
		c.nextID++
		c.write(protocol.AppendFrame(nil, kind, id, 0, nil))
		h := c.find("unsupported", func(h protocol.Header) bool { return h.ID == id })
		if protocol.Status(h.Arg) != protocol.StatusUnsupported || h.Kind != kind|protocol.KindReply {
			t.Fatalf("kind %d was answered %v %v", kind, h.Kind, protocol.Status(h.Arg))
		}
	}
	var requests []protocol.Kind
	for kind := range protocol.Kind(protocol.NumKinds) {
		if kind.IsRequest() && kind != protocol.KindHello && kind != protocol.KindPing {
			requests = append(requests, kind)
		}
	}
	bodies := [][]byte{
		{0x91, 0x81, 0xa1, 'a', 1},                 // a map where a field is
		{0x91, 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, // NaN
		{0x91, 0xff}, // -1
		{0x96, 0x92, 1, 2, 0xc3, 0x90, 0xc3, 0xc2, 0x91, 0x0}, // wrong types throughout
	}
	for _, kind := range requests {
		for i, body := range bodies {
			c.nextID++
			c.write(protocol.AppendFrameRaw(nil, kind, c.nextID, 0, body))
			if err := c.reply(kind, c.nextID, nil); protocol.StatusOf(err) != protocol.StatusBadRequest {
				t.Errorf("%v with body %d was answered %v", kind, i, err)
			}
		}
		// No fields at all: whatever the zero values mean, it is answered.
		c.nextID++
		c.write(protocol.AppendFrameRaw(nil, kind, c.nextID, 0, []byte{0x90}))
		_ = c.reply(kind, c.nextID, nil)
	}
	c.ping()
	// Fields a newer client may add are skipped.
	body := protocol.AppendBody(nil, &protocol.MapRequest{})
	body[0]++
	body = append(body, 0x92, 1, 0xa1, 'x')
	c.nextID++
	c.write(protocol.AppendFrameRaw(nil, protocol.KindMap, c.nextID, 0, body))
	if err := c.reply(protocol.KindMap, c.nextID, &protocol.MapReply{}); err != nil {
		t.Fatal(err)
	}
}

// TestChunks: frames come as the network likes.
func TestChunks(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := dial(t, s)
	for _, b := range hello(protocol.Magic, protocol.Version) {
		c.write([]byte{b})
	}
	c.find("hello", func(h protocol.Header) bool { return h.Kind == protocol.KindHello|protocol.KindReply })
	var all []byte
	for i := range 1000 {
		all = protocol.AppendFrame(all, protocol.KindMap, uint64(1000+i), 0, &protocol.MapRequest{})
	}
	c.write(all)
	for i := range 1000 {
		if err := c.reply(protocol.KindMap, uint64(1000+i), nil); err != nil {
			t.Fatal(err)
		}
	}
	node := c.node()
	r := c.session(node, 1)
	big := protocol.AppendFrame(nil, protocol.KindCreate, 5000, c.bucket(node, "big"), &protocol.Create{
		Head: c.head(r.Session), Name: []byte("big"), Limit: 1, Data: bytes.Repeat([]byte("x"), protocol.MaxDataLen),
	})
	for len(big) > 0 {
		n := min(len(big), 70_001)
		c.write(big[:n])
		big = big[n:]
	}
	if err := c.reply(protocol.KindCreate, 5000, nil); err != nil {
		t.Fatal(err)
	}
	d, err := c.describe(node, "big", protocol.Strict)
	if err != nil || len(d.Data) != protocol.MaxDataLen {
		t.Fatalf("describe of big data: %d bytes, %v", len(d.Data), err)
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) { clock = manual(c) })
	healthy := connect(t, s)
	silent := dial(t, s)
	slowHello := dial(t, s)
	slowHello.write(hello(protocol.Magic, 1)[:7])
	slowFrame := connect(t, s)
	slowFrame.write([]byte{0, 0, 1})
	idle := connect(t, s)
	await.True(t, "the server to see all bytes", func() bool {
		open, partial := 0, 0
		s.Requests.EachClient(func(c *request.Client) {
			open++
			if c.Unfinished() {
				partial++
			}
		})
		return open == 5 && partial == 2
	})
	clock.Advance(4 * time.Second)
	slowHello.write([]byte{0})
	healthy.ping()
	if s.Transport.Connections() != 5 {
		t.Fatal("closed too early")
	}
	clock.Advance(2 * time.Second)
	for _, c := range []*raw{silent, slowHello} {
		if g := c.closed(); g == nil || g.Status != protocol.StatusUnavailable {
			t.Fatalf("goodbye is %+v", g)
		}
	}
	slowFrame.write([]byte{0}) // a byte now and then does not help
	clock.Advance(5 * time.Second)
	if g := slowFrame.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
	healthy.ping()
	clock.Advance(50 * time.Second)
	if g := idle.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Fatalf("goodbye is %+v", g)
	}
	healthy.ping()
}

// TestUnfinishedFrames: what frames hold that do not end is bounded altogether. The connection that
// passes the bound is closed, the others go on, and nothing stays counted.
func TestUnfinishedFrames(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.InTotal = 1 << 20 })
	healthy := connect(t, s)
	whole := protocol.AppendFrame(nil, protocol.KindCreate, 5000, 0, &protocol.Create{
		Head: protocol.Head{Session: 1, Seq: 1, Low: 1}, Name: []byte("big"), Limit: 1, Data: make([]byte, protocol.MaxDataLen),
	})
	const part = 400 << 10
	begin := func(count int64) *raw {
		c := connect(t, s)
		c.write(whole[:part])
		await.True(t, "the bytes to count", func() bool { return s.Transport.UnfinishedBytes() == count })
		return c
	}
	a, b := begin(part), begin(2*part)
	over := connect(t, s)
	for n := 0; n < part; n += 20 << 10 { // in pieces, so that the bound is passed in the middle of a frame
		if over.writeErr(whole[n:n+20<<10]) != nil {
			break
		}
	}
	if g := over.closed(); g == nil || g.Status != protocol.StatusOverloaded {
		t.Fatalf("goodbye is %+v", g)
	}
	if n := s.Transport.Metrics.UnfinishedFrames.Get(); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	healthy.ping()
	_ = b.nc.Close()
	await.True(t, "the bytes of a closed connection to be gone", func() bool { return s.Transport.UnfinishedBytes() == part })
	a.write(whole[part:])
	if err := a.reply(protocol.KindCreate, 5000, nil); protocol.StatusOf(err) != protocol.StatusSessionExpired {
		t.Errorf("the frame that ended was answered %v", err)
	}
	// Pieces of small frames are free.
	for range 100 {
		c := connect(t, s)
		c.write(whole[:100])
	}
	await.True(t, "nothing to count", func() bool { return s.Transport.UnfinishedBytes() == 0 })
	healthy.ping()
}

func TestWindow(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.Window = 4 })
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	var all []byte
	const first, n = 1000, 64
	for i := range uint64(n) {
		c.seq++
		m := &protocol.Acquire{
			Head: protocol.Head{Session: r.Session, Seq: c.seq, Low: 1}, Name: []byte("w"), Count: 1, Timeout: 0, Ephemeral: true,
		}
		all = protocol.AppendFrame(all, protocol.KindAcquire, first+i, c.bucket(node, "w"), m)
	}
	all = protocol.AppendFrame(all, protocol.KindPing, 7, 0, nil)
	c.write(all)
	over := 0
	for i := range uint64(n) {
		if err := c.reply(protocol.KindAcquire, first+i, nil); err != nil {
			if protocol.StatusOf(err) != protocol.StatusOverloaded {
				t.Fatal(err)
			}
			over++
		}
	}
	if over < 1 || over > n-4 { // the first may be answered while the last are still read
		t.Fatalf("%d of %d requests in one segment were OVERLOADED with a window of 4", over, n)
	}
	c.find("pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 7 })
	if _, err := c.lock(node, r.Session, "w2", 0); err != nil {
		t.Fatalf("the window did not open again: %v", err)
	}
}

// TestLargeAnswersInOneSegment: reads that come together, whose answers are more than the server
// holds for a connection, are answered or turned away one by one. The client reads, so it is not
// cut as a slow one.
func TestLargeAnswersInOneSegment(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	b := c.bucket(node, "large")
	c.must(protocol.KindCreate, b, &protocol.Create{Head: c.head(r.Session), Name: []byte("large"), Limit: 1,
		Data: make([]byte, protocol.MaxDataLen)}, nil)
	for _, consistency := range []protocol.Consistency{protocol.Strict, protocol.Relaxed} {
		const first, n = 1 << 20, 16
		var all []byte
		for i := range uint64(n) {
			all = protocol.AppendFrame(all, protocol.KindDescribe, first+i, b,
				&protocol.Describe{Node: node, Name: []byte("large"), Consistency: consistency})
		}
		c.write(all)
		answered := 0
		for i := range uint64(n) {
			switch err := c.reply(protocol.KindDescribe, first+i, nil); {
			case err == nil:
				answered++
			case !errors.Is(err, protocol.StatusOverloaded):
				t.Fatal(err)
			}
		}
		if answered == 0 {
			t.Errorf("none of %d reads was answered", n)
		}
		c.ping()
	}
	if n := s.Transport.Metrics.SlowReader.Get(); n != 0 {
		t.Errorf("%d connections were cut as slow", n)
	}
}

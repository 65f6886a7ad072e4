package integration

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// fed is a connection that a test feeds by itself.
type fed struct {
	*request.Client
	pipe *transport.Pipe
	seen []byte
}

func feedTo(t testing.TB, s *instance) *fed {
	t.Helper()
	p := s.Transport.NewPipe("127.0.0.1:1")
	if p == nil {
		t.Fatal("no room")
	}
	return &fed{Client: p.Client().(*request.Client), pipe: p}
}

// in feeds bytes and scribbles over them afterwards, as the owner of the buffer does.
func (f *fed) in(b []byte) (used int) {
	buf := bytes.Clone(b)
	used = f.pipe.Read(buf)
	for i := range buf {
		buf[i] = 0xaa
	}
	return used
}

// drain takes what waits to be written.
func (f *fed) drain() []byte {
	f.seen = f.pipe.AppendWritten(f.seen)
	return f.seen
}

// reply waits for a reply among what waits to be written.
func (f *fed) reply(t testing.TB, id uint64) protocol.Header {
	t.Helper()
	var found protocol.Header
	await.True(t, "a reply", func() bool {
		rest := f.drain()
		for {
			frame, n, err := protocol.SplitFrame(rest, 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return false
			}
			rest = rest[n:]
			h, err := protocol.ParseFrame(frame)
			if err != nil {
				t.Fatal(err)
			}
			if h.Kind.IsReply() && h.ID == id {
				found = h
				return true
			}
		}
	})
	return found
}

// TestInputIsNotRetained: the bytes a connection was fed are overwritten right after, and every
// request still does what it said.
func TestInputIsNotRetained(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	client := connect(t, s)
	node := client.node()
	f := feedTo(t, s)
	defer f.pipe.Disconnect()
	f.in(hello(protocol.Magic, protocol.Version))
	create := &protocol.SessionStart{Node: node, CreateID: id16(1), Key: id16(2), Timeout: client.timeout(), Description: "kept", Nonce: 1}
	f.in(protocol.AppendFrame(nil, protocol.KindSessionStart, 2, client.homeBucket(id16(1)), create))
	var r protocol.SessionReply
	if err := protocol.DecodeBody(&r, f.reply(t, 2).Body); err != nil || r.Session == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	name, data := []byte("a/name/that/is/kept"), bytes.Repeat([]byte("data"), 1000)
	b := client.bucket(node, string(name))
	f.in(protocol.AppendFrame(nil, protocol.KindAcquire, 3, b, &protocol.Acquire{
		Head: protocol.Head{Session: r.Session, Seq: 1, Low: 1}, Name: name, Count: 1, Data: data, Ephemeral: true,
	}))
	if h := f.reply(t, 3); h.Arg != 0 {
		t.Fatal(protocol.Status(h.Arg))
	}
	for id, consistency := range map[uint64]protocol.Consistency{10: protocol.Strict, 11: protocol.Relaxed} {
		f.in(protocol.AppendFrame(nil, protocol.KindDescribe, id, b, &protocol.Describe{
			Session: r.Session, Node: node, Name: name, Flags: protocol.WithOwners | protocol.WatchOwners,
			Consistency: consistency, WatchID: id,
		}))
		var d protocol.DescribeReply
		if err := protocol.DecodeBody(&d, f.reply(t, id).Body); err != nil || len(d.Owners) != 1 ||
			!bytes.Equal(d.Owners[0].Data, data) || d.Owners[0].Description != "kept" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	f.in(protocol.AppendFrame(nil, protocol.KindWatch, 20, b, &protocol.Watch{Shard: s.shardAt(0, b).ID(), Node: node, Name: name}))
	if h := f.reply(t, 20); h.Arg != 0 {
		t.Fatal(protocol.Status(h.Arg))
	}
	f.in(protocol.AppendFrame(nil, protocol.KindNodeCreate, 30, 0, &protocol.NodeCreate{Path: "/kept"}))
	f.reply(t, 30)
	if client.nodeInfo("/kept").Path != "/kept" {
		t.Fatal("the node's path was not kept")
	}
	f.in(protocol.AppendFrame(nil, protocol.KindNodeList, 31, 0, &protocol.NodeList{Prefix: "/", Cursor: []byte("/k")}))
	var list protocol.NodeListReply
	if err := protocol.DecodeBody(&list, f.reply(t, 31).Body); err != nil || len(list.Nodes) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if n := f.Unanswered(); n != 0 {
		t.Fatalf("%d requests count as unanswered", n)
	}
}

// FuzzFeed feeds any bytes, whole and in pieces, to a connection that said hello or did not.
// Nothing may panic, nothing may be answered twice, and a connection that was not ended must have
// used every whole frame.
func FuzzFeed(f *testing.F) {
	s := start(f, func(c *server.Config) { c.Authorizer = readers{} })
	hi := hello(protocol.Magic, protocol.Version)
	f.Add(false, uint8(3), hi)
	f.Add(true, uint8(1), protocol.AppendFrame(nil, protocol.KindMap, 1, 0, &protocol.MapRequest{}))
	for kind := protocol.Kind(0); kind < 140; kind++ {
		f.Add(true, uint8(7), protocol.AppendFrameRaw(nil, kind, 1, 3, []byte{0x90}))
		f.Add(true, uint8(0), protocol.AppendFrameRaw(nil, kind, 1, 3, []byte{0x98, 1, 1, 1, 0xc4, 1, 'a', 1, 1, 1, 1}))
	}
	f.Fuzz(func(t *testing.T, greet bool, step uint8, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		before := s.Metrics.Panics.Get()
		c := feedTo(t, s)
		defer c.pipe.Disconnect()
		if greet {
			c.in(hi)
		}
		pending := data
		for len(pending) > 0 {
			n := len(pending)
			if step > 0 {
				n = min(n, max(int(step), c.pipe.Need()))
			}
			used := c.in(pending[:n])
			if used > n {
				t.Fatalf("used %d of %d bytes", used, n)
			}
			if used == 0 && n == len(pending) {
				break
			}
			if used == 0 && n >= c.pipe.Need() {
				t.Fatalf("stuck with %d bytes, %d needed", n, c.pipe.Need())
			}
			pending = pending[used:]
		}
		await.True(t, "all answers", func() bool { c.drain(); return c.Unanswered() == 0 || c.Ending() })
		if n := s.Metrics.Panics.Get() - before; n != 0 {
			t.Fatal("a panic was contained")
		}
	})
}

// readers lets nobody change nodes: a fuzzer would fill the meta shard.
type readers struct{}

func (readers) Allowed(_ string, right auth.Right, _ string) bool { return right <= auth.RightUse }

package integration

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// TestPageRoom: hundreds of clients that ask for large snapshots and do not read yet have the server
// hold a bounded number of pages. Others get replies and changes meanwhile. Each client gets its
// whole snapshot once those before it have read theirs, or have gone.
func TestPageRoom(t *testing.T) {
	t.Parallel()
	const readers, names, size = 80, 14, 64 << 10
	s := start(t, func(c *server.Config) { c.Shards = 1 })
	c, live := connect(t, s), connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	shard := s.shardAt(0, c.bucket(node, "live")).ID()
	create := func(name string, data []byte) {
		c.must(protocol.KindCreate, c.bucket(node, name),
			&protocol.Create{Head: c.head(r.Session), Name: []byte(name), Limit: 1, Data: data}, nil)
	}
	for i := range names {
		create(fmt.Sprintf("large/%02d", i), make([]byte, size))
	}
	create("live", nil)
	live.send(protocol.KindWatch, c.bucket(node, "live"), &protocol.Watch{Shard: shard, Node: node, Name: []byte("live")})
	live.event(protocol.KindSnapshot, nil)

	waiting := make([]*fed, readers)
	for i := range waiting {
		f := feedTo(t, s)
		f.in(protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
			&protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "reader"}))
		f.in(protocol.AppendFrame(nil, protocol.KindWatch, 2, 0,
			&protocol.Watch{Shard: shard, Node: node, Name: []byte("large/"), Prefix: true}))
		waiting[i] = f
	}
	most := int64(0)
	observe := func() int64 {
		now := s.Transport.PageBytes()
		most = max(most, now)
		return now
	}
	await.True(t, "pages to fill their room", func() bool { return observe() >= transport.MaxPages })
	for i := range 20 { // nobody waits for the pages, and none is added
		c.must(protocol.KindUpdate, c.bucket(node, "live"),
			&protocol.Update{Head: c.head(r.Session), Name: []byte("live"), Data: []byte{byte(i)}}, nil)
		live.event(protocol.KindDelta, nil)
		observe()
	}

	for i := 0; i < readers; i += 8 {
		waiting[i].pipe.Disconnect()
		waiting[i] = nil
	}
	await.True(t, "all snapshots", func() bool {
		whole := true
		for i, f := range waiting {
			if f == nil {
				continue
			}
			got := snapshotNames(t, f.drain())
			if got > names {
				t.Fatalf("reader %d got %d semaphores; there are %d", i, got, names)
			}
			whole = whole && got == names
			observe()
		}
		return whole
	})
	await.True(t, "no page to wait", func() bool { return s.Transport.PageBytes() == 0 })
	if bound := int64(transport.MaxPages + 2*request.PageBytes); most > bound {
		t.Errorf("%d bytes of pages waited, more than %d", most, bound)
	}
}

// snapshotNames is how many semaphores have come in pages.
func snapshotNames(t *testing.T, b []byte) (n int) {
	t.Helper()
	for {
		frame, used, err := protocol.SplitFrame(b, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if used == 0 {
			return n
		}
		b = b[used:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != protocol.KindSnapshot {
			continue
		}
		var page protocol.Snapshot
		if err := protocol.DecodeBody(&page, h.Body); err != nil {
			t.Fatal(err)
		}
		n += len(page.Semaphores)
	}
}

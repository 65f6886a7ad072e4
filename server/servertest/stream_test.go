package servertest_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestSlowWatcher: a watcher that reads nothing while far more changes than anybody would buffer
// for it gets a fresh snapshot when it reads again, ends up with the exact state, and has held up
// nobody.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) { c.Limits.OutSoft = 128 << 10 }))
	const names, rounds, size = 20, 6, 100 << 10
	filling := bytes.Repeat([]byte("x"), size)
	data := func(name, round int) []byte {
		return append(fmt.Appendf(nil, "%02d of round %d", name, round), filling...)
	}

	writer := dial(t, srv)
	writer.start(10 * time.Second)
	for n := range names {
		writer.must(writer.createSemaphore(fmt.Sprintf("watched/%02d", n), 1, string(data(n, 0))))
	}
	watcher := dial(t, srv)
	_ = watcher.c.(*net.TCPConn).SetReadBuffer(64 << 10)
	bucket := watcher.bucket("watched/00")
	watcher.must(watcher.ask(protocol.KindWatch, bucket, &protocol.Watch{
		Shard: watcher.shardOf(bucket), Node: watcher.node, Name: []byte("watched/"), Prefix: true,
	}, nil))
	id := watcher.id

	for r := 1; r <= rounds; r++ {
		for n := range names {
			name := fmt.Sprintf("watched/%02d", n)
			writer.must(writer.ask(protocol.KindUpdate, writer.bucket(name),
				&protocol.Update{Head: writer.head(), Name: []byte(name), Data: data(n, r)}, nil))
		}
	}

	// Read until everything is as it was written last.
	state := make(map[string][]byte)
	snapshots, right := 0, 0
	for right < names {
		h, err := watcher.next()
		watcher.must(err)
		switch h.Kind {
		case protocol.KindSnapshot:
			var p protocol.Snapshot
			watcher.must(protocol.DecodeBody(&p, h.Body))
			if h.ID != id {
				t.Fatalf("page of stream %d", h.ID)
			}
			if p.First {
				snapshots++
				clear(state)
			}
			for _, s := range p.Semaphores {
				state[string(s.Name)] = s.Data
			}
		case protocol.KindDelta:
			var d protocol.Delta
			watcher.must(protocol.DecodeBody(&d, h.Body))
			for _, c := range d.Changes {
				state[string(d.Name)] = c.Data
			}
		case protocol.KindStreamCut, protocol.KindGoodbye:
			t.Fatalf("cut: kind %d", h.Kind)
		}
		right = 0
		for n := range names {
			if got := state[fmt.Sprintf("watched/%02d", n)]; bytes.HasPrefix(got,
				fmt.Appendf(nil, "%02d of round %d", n, rounds)) && bytes.HasSuffix(got, filling) {
				right++
			}
		}
	}
	if snapshots < 2 {
		t.Errorf("%d snapshots for %d MiB of changes that were not read", snapshots, names*rounds*size>>20)
	}
}

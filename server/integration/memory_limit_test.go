package integration

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
)

// TestMemoryFull: an instance that holds too much takes nothing new, and says so; what keeps alive,
// gives back and reads goes on.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	const memory = 256 << 20 // the least that may be set
	s := start(t, func(c *server.Config) {
		c.Limits.MaxMemory = memory
		manual(c) // on which nothing is swept, and so nothing looked at
	})
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	s.Memory.Update(memory)

	name := []byte("b")
	at := c.bucket(node, "b")
	head := protocol.Head{Session: r.Session, Seq: 90, Low: 90}
	for kind, m := range map[protocol.Kind]protocol.Message{
		protocol.KindSessionStart: &protocol.SessionStart{Node: node, CreateID: id16(2), Key: id16(2), Nonce: 2},
		protocol.KindCreate:       &protocol.Create{Head: head, Name: name, Limit: 1},
		protocol.KindAcquire:      &protocol.Acquire{Head: head, Name: name, Count: 1, Ephemeral: true},
		protocol.KindWatch:        &protocol.Watch{Shard: 1, Node: node, Name: name},
		protocol.KindDescribe: &protocol.Describe{Session: r.Session, Node: node, Name: []byte("a"),
			Flags: protocol.WatchData, WatchID: 1},
		protocol.KindNodeCreate: &protocol.NodeCreate{Path: "/more"},
	} {
		if err := c.call(kind, at, m, nil); !errors.Is(err, protocol.StatusOverloaded) ||
			!strings.Contains(err.Error(), "takes nothing new above 153 MiB") {
			t.Errorf("%v: %v", kind, err)
		}
	}
	if n := s.Metrics.MemoryRefused.Get(); n != 6 {
		t.Errorf("%d refusals were counted", n)
	}

	c.ping()
	if _, err := c.attach(node, 1, r.Session, r.Epoch); err != nil {
		t.Errorf("attach: %v", err)
	}
	if d, err := c.describe(node, "a", protocol.Strict); err != nil || len(d.Owners) != 1 {
		t.Errorf("describe: %+v, %v", d, err)
	}
	if err := c.unlock(node, r.Session, "a"); err != nil {
		t.Errorf("release: %v", err)
	}
	s.Memory.Update(0)
	if _, err := c.lock(node, r.Session, "b", 0); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

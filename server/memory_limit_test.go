package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestMemoryMarks: what lives decides, with a gap between the marks; without a bound nothing is
// looked at.
func TestMemoryMarks(t *testing.T) {
	m := newMemoryLimit(1 << 30)
	for _, step := range []struct {
		share   int64 // hundredths
		crowded bool
	}{{10, false}, {59, false}, {60, true}, {58, true}, {55, true}, {54, false}, {59, false}, {100, true}} {
		m.update((1 << 30) / 100 * step.share)
		if full := m.rejection(); (full != nil) != step.crowded {
			t.Fatalf("at %d %%: %v", step.share, full)
		}
	}
	m.measure()
	if m.live.Load() == 0 || m.live.Load() >= 1<<29 {
		t.Errorf("this test lives on %d bytes", m.live.Load())
	}
	free := newMemoryLimit(0)
	if free.measure(); free.live.Load() != 0 || free.rejection() != nil {
		t.Error("it looks although there is no bound")
	}
}

// TestMemoryFull: an instance that holds too much takes nothing new, and says so; what keeps alive,
// gives back and reads goes on.
func TestMemoryFull(t *testing.T) {
	s := start(t, func(c *Config) {
		c.Limits.MaxMemory = minMemory
		manual(c) // on which nothing is swept, and so nothing looked at
	})
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	s.memory.update(minMemory)

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
	if n := s.metrics.MemoryRefused.Get(); n != 6 {
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
	s.memory.update(0)
	if _, err := c.lock(node, r.Session, "b", 0); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

package integration

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// nameIn is a semaphore's name whose bucket belongs to the shard.
func (c *raw) nameIn(node, shard uint64, prefix string) string {
	c.t.Helper()
	for i := 'a'; i <= 'z'; i++ {
		if name := prefix + string(i); c.s.shardAt(0, c.bucket(node, name)).ID() == shard {
			return name
		}
	}
	c.t.Fatalf("no name in shard %d", shard)
	return ""
}

// TestDescriptionForRemoteShard: what a session is called is shown beside its entries from the
// first moment, in shards that are not its home too, and to watches.
func TestDescriptionForRemoteShard(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	for _, id := range s.shardIDs() {
		name := c.nameIn(node, id, "")
		watcher := connect(t, s)
		watcher.must(protocol.KindWatch, c.bucket(node, name), &protocol.Watch{Shard: id, Node: node, Name: []byte(name)}, nil)
		watcher.event(protocol.KindSnapshot, nil)
		if _, err := c.lock(node, r.Session, name, 0); err != nil {
			t.Fatal(err)
		}
		d, err := c.describe(node, name, protocol.Strict)
		if err != nil || len(d.Owners) != 1 || d.Owners[0].Description != "raw" {
			t.Errorf("shard %d, home %d: %+v, %v", id, r.Shard, d.Owners, err)
		}
		var delta protocol.Delta
		watcher.event(protocol.KindDelta, &delta)
		if last := delta.Changes[len(delta.Changes)-1]; last.Kind != protocol.ChangeOwnerAdded || last.Owner.Description != "raw" {
			t.Errorf("shard %d, home %d: delta %+v", id, r.Shard, last)
		}
	}
}

// TestDescriptionByTicket: so it is on a connection that showed the session's ticket.
func TestDescriptionByTicket(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	home, c := connect(t, s), connect(t, s)
	node := home.node()
	r := home.session(node, 1)
	c.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket, Description: "raw"}, nil)
	for _, id := range s.shardIDs() {
		name := c.nameIn(node, id, "")
		if _, err := c.lock(node, r.Session, name, 0); err != nil {
			t.Fatal(err)
		}
		if d, err := c.describe(node, name, protocol.Strict); err != nil || len(d.Owners) != 1 || d.Owners[0].Description != "raw" {
			t.Errorf("shard %d, home %d: %+v, %v", id, r.Shard, d.Owners, err)
		}
	}
}

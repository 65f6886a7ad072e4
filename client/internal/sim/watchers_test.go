package sim

import (
	"fmt"
	"maps"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// watcher is a part of a program that follows semaphores: one of them, or all.
type watcher struct {
	c      *client
	watch  *core.Watch
	ready  bool // there may be something to take
	synced bool
	owners map[string]map[uint64]protocol.Owner // as the events have it: by semaphore and order id
	seen   map[string]uint64                    // the newest owner that an event had
}

// Done implements core.Waiter.
func (x *watcher) Done() { x.ready = true }

// startWatch begins to watch a semaphore, or all.
func (c *client) startWatch(name string) *watcher {
	x := &watcher{c: c, owners: map[string]map[uint64]protocol.Owner{}, seen: map[string]uint64{}}
	x.watch = &core.Watch{Waiter: x, Node: node, Tier: c.w.tier, Name: name, Prefix: name == ""}
	c.e.Watch(c.clock(), x.watch)
	return x
}

// step takes what there is, but now and then waits with that.
func (x *watcher) step() {
	w := x.c.w
	if x.ready && (w.faultsOver || w.chance(Watch, x.c.n, 0.5)) {
		for x.ready {
			x.take()
		}
		x.c.act()
	}
}

func (x *watcher) take() {
	w := x.c.w
	var ev core.WatchEvent
	ok, err := x.watch.Next(&ev)
	x.ready = ok
	switch {
	case err != nil:
		w.fail("the watch of client %d has ended: %v", x.c.n, err)
	case !ok:
	case ev.Kind == core.WatchSynced:
		x.synced = true
		w.counts["synced"]++
	case ev.Kind == core.WatchInterrupted:
		x.synced = false
		w.counts["interrupted"]++
	case ev.Kind == core.WatchDeleted:
		delete(x.owners, ev.Name)
	default:
		x.changed(&ev)
	}
}

// changed takes a change in. An owner that is new has a newer token than all that were seen before:
// else the watch went back in time.
func (x *watcher) changed(ev *core.WatchEvent) {
	w := x.c.w
	owners := x.owners[ev.Name]
	if owners == nil {
		owners = map[uint64]protocol.Owner{}
		x.owners[ev.Name] = owners
	}
	for _, o := range ev.Removed {
		if _, known := owners[o.OrderID]; !known {
			w.fail("a watch of client %d removes owner %d of %s, which it has not added", x.c.n, o.OrderID, ev.Name)
		}
		delete(owners, o.OrderID)
	}
	for _, o := range ev.Updated {
		owners[o.OrderID] = o
	}
	newest := x.seen[ev.Name]
	for _, o := range ev.Added {
		if o.OrderID <= x.seen[ev.Name] {
			w.fail("a watch of client %d goes back: owner %d of %s after %d", x.c.n, o.OrderID, ev.Name, x.seen[ev.Name])
		}
		newest = max(newest, o.OrderID)
		owners[o.OrderID] = o
	}
	x.seen[ev.Name] = newest
	w.counts["watched change"]++
}

// checkWatchersAtRest checks that all who follow semaphores have the server's state.
func (w *simulation) checkWatchersAtRest() {
	for _, s := range semaphores {
		name := []byte(s.name)
		want := map[uint64]string{}
		var out protocol.DescribeReply
		req := protocol.Describe{Node: node, Name: name, Flags: protocol.WithOwners}
		err := w.activeShard(protocol.Bucket(node, name, buckets)).committed.Semaphores().Describe(&req, &out)
		for _, o := range out.Owners {
			want[o.OrderID] = fmt.Sprint(o.Session, o.Count)
		}
		for _, c := range w.clients {
			for _, x := range c.watchers {
				if c.dead || x.watch.Name != "" && x.watch.Name != s.name {
					continue
				}
				got, exists := map[uint64]string{}, x.owners[s.name] != nil
				for id, o := range x.owners[s.name] {
					got[id] = fmt.Sprint(o.Session, o.Count)
				}
				switch {
				case !x.synced:
					w.fail("a watch of client %d is not synced: %v", c.n, x.watch.Last())
				case exists != (err == nil) || !maps.Equal(got, want):
					w.fail("a watch of client %d has owners %v of %s, want %v (%v)", c.n, got, s.name, want, err)
				}
			}
		}
	}
}

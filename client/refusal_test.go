package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// refuse answers that the bucket is not served here.
func (fc *fakeConn) refuse(h protocol.Header, m protocol.Failure) {
	fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusWrongShard), &m)
}

// updatedAt lists the instances where the updates went that arrived after the first ones.
func (f *fake) updatedAt(after int) (list []uint64) {
	for _, r := range f.all(protocol.KindUpdate)[after:] {
		list = append(list, r.instance)
	}
	return list
}

// owners lists the shards of tier 0's buckets.
func owners(r *routeTable) (list []uint64) {
	for b := range r.tiers[0].buckets {
		list = append(list, r.owner(0, b))
	}
	return list
}

// TestRefusalNamesOwner: a bucket has moved, and the client has not heard of it. The refusal names
// the shard that owns it, and the next request goes to that shard's leader: it waits neither for a
// pause nor for the map, which is fetched meanwhile.
func TestRefusalNamesOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		var asked []func()
		f.set(func() {
			f.version, f.moved = 2, map[uint64]uint64{1: 3}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind == protocol.KindMap:
					asked = append(asked, func() { fc.answer(h) })
					return true
				case h.Kind == protocol.KindUpdate && h.Arg == 1 && fc.instance == 1:
					fc.refuse(h, protocol.Failure{Shard: 3, MapVersion: 2})
					return true
				}
				return false
			}
		})
		began := time.Now()
		for range 2 {
			if _, err := s.Update(bg, nameIn(1), nil); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the updates took %s", d)
		}
		if at := f.updatedAt(0); !slices.Equal(at, []uint64{1, 2, 2}) {
			t.Errorf("updates went to instances %v", at)
		}
		synctest.Wait()
		if v := c.routes.Load().version; v != 1 || len(asked) != 1 {
			t.Errorf("the map was asked for %d times, version %d came", len(asked), v)
		}
		f.set(func() { asked[0]() })
		synctest.Wait()
		if r := c.routes.Load(); r.version != 2 || r.owner(0, 1) != 3 || r.owner(0, 0) != 1 {
			t.Errorf("map %d, owners %v", r.version, owners(r))
		}
	})
}

// TestRefusalNamesNewShard: the owner is a shard that the client's map does not have. The map is
// fetched from the instance that has it.
func TestRefusalNamesNewShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
		s := f.sessionIn(t, c, 0)
		before := f.count(protocol.KindUpdate)
		f.set(func() {
			old := f.mapReply()
			f.version = 2
			now := f.mapReply()
			now.Shards = append(now.Shards, protocol.MapShard{ID: 9, Master: 2, Replicas: []uint64{2}})
			now.Tiers[0].Runs[0].Shard = 9
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind == protocol.KindMap && fc.instance == 2:
					fc.reply(h, old)
				case h.Kind == protocol.KindMap:
					fc.reply(h, now)
				case h.Kind == protocol.KindUpdate && h.Arg == 0 && fc.instance == 1:
					fc.refuse(h, protocol.Failure{Shard: 9, MapVersion: 2})
				default:
					return false
				}
				return true
			}
		})
		began := time.Now()
		if _, err := s.Update(bg, nameIn(0), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the update took %s", d)
		}
		if at := f.updatedAt(before); !slices.Equal(at, []uint64{1, 2}) {
			t.Errorf("updates went to instances %v", at)
		}
	})
}

// TestRefusalByOlderMap: the leader of the bucket's new shard has not heard of the move yet. It
// speaks of the shard that had the bucket, and of that shard's leader. The client fetches no map,
// looks for no other leader, and asks again when this one says that it serves, or has the map.
func TestRefusalByOlderMap(t *testing.T) {
	t.Run("serves", func(t *testing.T) {
		testRefusalByOlderMap(t, protocol.MapChanged{Version: 2, Shard: 3, Master: 2, Term: 4})
	})
	t.Run("has the map", func(t *testing.T) { testRefusalByOlderMap(t, protocol.MapChanged{Version: 2}) })
}

func testRefusalByOlderMap(t *testing.T, word protocol.MapChanged) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3], f.version, f.moved = 2, 2, map[uint64]uint64{1: 3}
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		refusals := 0
		var served time.Time
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindUpdate || refusals == maxBehindTries {
					return false
				}
				fc.refuse(h, protocol.Failure{Master: 1, Term: 9, Shard: 2, MapVersion: 1})
				if refusals++; refusals == maxBehindTries {
					served = time.Now()
					fc.send(protocol.KindMapChanged, 0, 0, &word)
				}
				return true
			}
		})
		maps := f.count(protocol.KindMap)
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(served); d > 0 {
			t.Errorf("the update went on %s after the bucket was served", d)
		}
		if n := f.count(protocol.KindMap) - maps; n != 0 {
			t.Errorf("the map was fetched %d times", n)
		}
		if at := f.updatedAt(0); !slices.Equal(at, []uint64{2, 2, 2, 2}) {
			t.Errorf("updates went to instances %v", at)
		}
		c.cluster.mu.Lock()
		defer c.cluster.mu.Unlock()
		if w := c.routes.Load().byShard[3]; w.master.Load() != 2 || w.term != word.Term {
			t.Errorf("shard 3 is looked for at instance %d of term %d", w.master.Load(), w.term)
		}
	})
}

// TestRefusalByCutOffLeader: a leader that never hears of the newer map is not asked for ever. It
// may have been replaced.
func TestRefusalByCutOffLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3], f.version, f.moved = 2, 2, map[uint64]uint64{1: 3}
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindUpdate || fc.instance == 1 {
					return false
				}
				fc.refuse(h, protocol.Failure{Shard: 2, MapVersion: 1})
				return true
			}
		})
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if at := f.updatedAt(0); !slices.Equal(at, []uint64{2, 2, 2, 2, 1}) {
			t.Errorf("updates went to instances %v", at)
		}
	})
}

// TestRefusalWithoutLeader: an instance that has the shard and does not know who leads it makes the
// client ask another replica, and still without fetching the map.
func TestRefusalWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindUpdate || fc.instance == 2 {
					return false
				}
				fc.refuse(h, protocol.Failure{Shard: 2, MapVersion: 1})
				return true
			}
		})
		maps := f.count(protocol.KindMap)
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if at := f.updatedAt(0); !slices.Equal(at, []uint64{1, 2}) {
			t.Errorf("updates went to instances %v", at)
		}
		if n := f.count(protocol.KindMap) - maps; n != 0 {
			t.Errorf("the map was fetched %d times", n)
		}
	})
}

// TestLearnOwner: what a refusal says of a bucket counts until a newer word or map, and only for
// the bucket that was asked for.
func TestLearnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		first := c.routes.Load()
		for i, x := range []struct {
			asked          uint64
			bucket         uint32
			owner, version uint64
			want           bool
		}{
			{2, 1, 3, 1, false},   // the version of the client's map
			{2, 1, 9, 7, false},   // no such shard
			{2, 0, 3, 7, false},   // another shard's bucket
			{2, 1, 2, 7, false},   // it is asked there already
			{2, 999, 3, 7, false}, // no such bucket
			{2, 1, 3, 7, true},
			{2, 1, 4, 8, false}, // the request was sent before the former line's word
			{3, 1, 4, 6, false}, // an older word
			{1, 0, 4, 7, true},
			{3, 1, 4, 8, true},
		} {
			if got := c.learnOwner(first.byShard[x.asked], x.bucket, x.owner, x.version); got != x.want {
				t.Errorf("%d: shard %d owns bucket %d in map %d: %v", i, x.owner, x.bucket, x.version, got)
			}
		}
		r := c.routes.Load()
		if !slices.Equal(owners(r), []uint64{4, 4, 3, 4}) || r.forBucket(0, 1) != first.byShard[4] || r.version != 1 {
			t.Errorf("owners %v of map %d", owners(r), r.version)
		}
		if !slices.Equal(owners(first), []uint64{1, 2, 3, 4}) || first.forBucket(0, 1) != first.byShard[2] {
			t.Errorf("the table changed: %v", owners(first))
		}
		f.set(func() { f.version = 9 })
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		if r := c.routes.Load(); !slices.Equal(owners(r), []uint64{1, 2, 3, 4}) {
			t.Errorf("owners %v of a newer map", owners(r))
		}
	})
}

// TestMapOfNewConnection: an instance says in its hello how new its map is. What it announced
// before the connection was there is fetched.
func TestMapOfNewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() { f.version = 2 })
		defer c.needMap()()
		f.drop()
		if _, err := s.Update(bg, nameIn(1), nil); err != nil { // connects again
			t.Fatal(err)
		}
		synctest.Wait()
		if v := c.routes.Load().version; v != 2 {
			t.Errorf("map %d", v)
		}
	})
}

// TestRefusedStream: a stream follows a refusal as other requests do, and at once. The second
// request goes to the shard that owns the bucket, and waits for no map.
func TestRefusedStream(t *testing.T) {
	t.Run("name", func(t *testing.T) {
		testRefusedStream(t, protocol.KindWatch, func(t *testing.T, n *Node) { followName(t, n, nameIn(1)) },
			func(fc *fakeConn, h protocol.Header) uint64 { return decode[protocol.Watch](fc.f.t, h.Body).Shard }, []uint64{2, 3})
	})
	t.Run("process", func(t *testing.T) {
		testRefusedStream(t, protocol.KindProcessWatch, func(t *testing.T, n *Node) { followProcess(t, n, 1) },
			func(fc *fakeConn, _ protocol.Header) uint64 { return fc.instance }, []uint64{1, 2})
	})
}

// testRefusedStream refuses the first request of a stream. goes says where a request went, and
// wants is where the two have to go.
func testRefusedStream(t *testing.T, kind protocol.Kind, follow func(*testing.T, *Node),
	goes func(*fakeConn, protocol.Header) uint64, wants []uint64,
) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3] = 2
		_, n := f.openNode(t)
		var asked []uint64
		f.set(func() {
			f.version, f.moved = 2, map[uint64]uint64{1: 3}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch h.Kind {
				case protocol.KindMap: // it never comes
					return true
				case kind:
					asked = append(asked, goes(fc, h))
					if len(asked) == 1 {
						fc.refuse(h, protocol.Failure{Shard: 3, MapVersion: 2})
						return true
					}
				}
				return false
			}
		})
		began := time.Now()
		follow(t, n)
		for synctest.Wait(); f.count(kind) < 2; synctest.Wait() {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the second request was sent after %s", d)
		}
		if !slices.Equal(asked, wants) {
			t.Errorf("requests went to %v, want %v", asked, wants)
		}
	})
}

// TestWatchRefusedByOlderMap: an instance with an older map than the client's refuses a stream. The
// client fetches no map.
func TestWatchRefusedByOlderMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.version, f.moved = 2, map[uint64]uint64{1: 3}
		_, n := f.openNode(t)
		refusals := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindWatch || refusals == 3 {
					return false
				}
				refusals++
				fc.refuse(h, protocol.Failure{Shard: 2, MapVersion: 1})
				return true
			}
		})
		maps := f.count(protocol.KindMap)
		followName(t, n, nameIn(1))
		for synctest.Wait(); f.count(protocol.KindWatch) < 4; synctest.Wait() {
			time.Sleep(time.Millisecond)
		}
		if n := f.count(protocol.KindMap) - maps; n != 0 {
			t.Errorf("the map was fetched %d times", n)
		}
	})
}

// TestRefusedWatchAfterNewMap: the shard that owns a name refuses it for long. The next map names
// the same shard, and the stream is opened at once, without the wait that has grown meanwhile.
func TestRefusedWatchAfterNewMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		var served time.Time
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindWatch || f.version > 1 {
					if h.Kind == protocol.KindWatch && served.IsZero() {
						served = time.Now()
					}
					return false
				}
				fc.refuse(h, protocol.Failure{Shard: 2, Master: fc.instance, MapVersion: 1})
				return true
			}
		})
		followName(t, n, nameIn(1))
		asked := 0
		for asked < 20 || f.count(protocol.KindWatch) == asked { // it has just been refused again
			asked = f.count(protocol.KindWatch)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		began := time.Now()
		f.set(func() {
			f.version = 2
			for fc := range f.conns {
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 2})
			}
		})
		synctest.Wait()
		if served.IsZero() {
			t.Error("the stream waits, though there is a new map")
		} else if d := served.Sub(began); d > 0 {
			t.Errorf("the stream was opened %s after the map", d)
		}
	})
}

// followName watches a name until the test ends.
func followName(t *testing.T, n *Node, name string) {
	untilEnd(t, func(ctx context.Context) {
		for range n.Watch(ctx, name) {
		}
	})
}

// followProcess watches a process that belongs to a bucket until the test ends.
func followProcess(t *testing.T, n *Node, bucket uint32) {
	name := "process"
	for protocol.ProcessBucket(n.id, []byte(name), 4) != bucket {
		name += "s"
	}
	decoder := func() rpc.Decoder {
		return func(protocol.Header) (any, rpc.Step, error) { return nil, rpc.Append, nil }
	}
	untilEnd(t, func(ctx context.Context) {
		o, req := newObject(nil, n, name, protocol.ProcessBucket), &protocol.ProcessWatch{Node: n.id, Name: []byte(name)}
		for range o.Events(ctx, protocol.KindProcessWatch, req, decoder) {
		}
	})
}

// untilEnd runs f until the test ends.
func untilEnd(t *testing.T, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestStreamCutByMove: a stream that ends because its bucket moves says nothing of the shard's
// leader: other requests still go there.
func TestStreamCutByMove(t *testing.T) {
	t.Run("name", func(t *testing.T) {
		testStreamCutByMove(t, protocol.KindWatch, func(t *testing.T, n *Node) { followName(t, n, nameIn(1)) })
	})
	t.Run("process", func(t *testing.T) {
		testStreamCutByMove(t, protocol.KindProcessWatch, func(t *testing.T, n *Node) { followProcess(t, n, 1) })
	})
}

func testStreamCutByMove(t *testing.T, kind protocol.Kind, follow func(*testing.T, *Node)) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
		c.cluster.replicaSeed = 1 // the stream is at the leader
		n, err := c.Node(bg, DefaultNode)
		if err != nil {
			t.Fatal(err)
		}
		follow(t, n)
		synctest.Wait()
		f.set(func() {
			for fc := range f.conns {
				for _, r := range f.log {
					if r.kind == kind {
						fc.send(protocol.KindStreamCut, r.id, 0,
							&protocol.StreamCut{Status: protocol.StatusWrongShard, Message: "the bucket moves"})
					}
				}
			}
		})
		for synctest.Wait(); f.count(kind) < 2; synctest.Wait() {
			time.Sleep(time.Millisecond)
		}
		if at := c.routes.Load().byShard[2].master.Load(); at != 2 {
			t.Errorf("shard 2 is looked for at instance %d", at)
		}
	})
}

// TestTierOfOlderServer: a server that would ignore the tier of a new node is not asked. Without a
// tier it is.
func TestTierOfOlderServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		_, err := c.CreateNode(bg, "/n", NodeConfig{}, InTier("cold"))
		if protocol.StatusOf(err) != protocol.StatusUnsupported || f.count(protocol.KindNodeCreate) != 0 {
			t.Errorf("a tier at a server without tiers: %v", err)
		}
		if _, err := c.EnsureNode(bg, "/n", NodeConfig{}); err != nil || f.count(protocol.KindNodeCreate) != 1 {
			t.Errorf("no tier: %v", err)
		}
		f.set(func() { f.features = protocol.FeatureNodeTier })
		if _, err := f.open(t).EnsureNode(bg, "/n", NodeConfig{}, InTier("cold")); err != nil {
			t.Error(err)
		}
		if all := f.all(protocol.KindNodeCreate); decode[protocol.NodeCreate](t, all[len(all)-1].body).Tier != "cold" {
			t.Errorf("the tier was not sent: %v", all)
		}
	})
}

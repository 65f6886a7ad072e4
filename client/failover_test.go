package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// wrong answers that another instance leads the shard.
func (fc *fakeConn) wrong(h protocol.Header, master, term uint64) {
	fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusWrongShard),
		&protocol.Failure{Message: "not here", Master: master, Term: term})
}

// onShard says whether a request is one that shards serve.
func onShard(h protocol.Header) bool {
	return h.Kind >= protocol.KindCreate && h.Kind < protocol.KindPong ||
		h.Kind >= protocol.KindSessionStart && h.Kind <= protocol.KindSessionStop
}

// TestHint: who does not lead a shard says who does; the next try goes there, without a new map and
// without a wait.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		maps := f.count(protocol.KindMap)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if onShard(h) && h.Arg == 1 && fc.instance != 2 {
					fc.wrong(h, 2, 5)
					return true
				}
				return false
			}
		})
		began := time.Now()
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the redirect waited for %s", d)
		}
		if n := f.count(protocol.KindMap); n != maps {
			t.Errorf("the map was fetched %d times more", n-maps)
		}
		// Older word, from an instance that has not heard of it, changes nothing.
		r := c.routes.Load()
		c.learnMaster(r.byShard[2], 1, 1, 4)
		if at := r.byShard[2].master.Load(); at != 2 {
			t.Errorf("older word of the master made it %d", at)
		}
		c.learnMaster(r.byShard[2], 1, 77, 9)
		if at := r.byShard[2].master.Load(); at != 2 {
			t.Errorf("an instance without a replica was taken for the master: %d", at)
		}
	})
}

// TestMasterAway: the master is dead, and the map does not know. Another replica is asked, which
// says who leads now, or leads itself.
func TestMasterAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		hangs := false
		c := f.open(t, func(cfg *Config) {
			cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if hangs && address == "1" {
					<-ctx.Done() // as behind a network that swallows everything
					return nil, context.Cause(ctx)
				}
				return f.dial(ctx, address)
			}
		})
		s := f.sessionIn(t, c, 0)
		lease, err := s.Acquire(bg, nameIn(1))
		if err != nil {
			t.Fatal(err)
		}
		hangs = true
		f.drop()
		began := time.Now()
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("it took %s to find another replica", d)
		}
		if !lease.Held() {
			t.Error(lease.Lost())
		}
	})
}

// TestNewMasterWakes: who waits for a shard without a master goes on as soon as an instance says
// that there is one.
func TestNewMasterWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		leads := false
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if onShard(h) && h.Arg == 1 && (!leads || fc.instance != 2) {
					fc.fail(h, protocol.StatusUnavailable)
					return true
				}
				return false
			}
		})
		done := make(chan time.Time, 1)
		go func() {
			if _, err := s.Update(bg, nameIn(1), nil); err != nil {
				t.Error(err)
			}
			done <- time.Now()
		}()
		time.Sleep(20 * time.Second) // waits are long by now
		elected := time.Now()
		f.set(func() {
			leads = true
			for fc := range f.conns {
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 1, Shard: 2, Master: 2, Term: 3})
			}
		})
		if d := (<-done).Sub(elected); d > 0 {
			t.Errorf("the request went on %s after the election", d)
		}
	})
}

// TestOnlyEndpointLost: instances are learned from the map. When all that were configured are gone
// for good, the others do.
func TestOnlyEndpointLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		gone := false
		c := f.open(t, func(cfg *Config) {
			cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if gone && address == "1" {
					return nil, errors.New("no such host")
				}
				return f.dial(ctx, address)
			}
		})
		gone = true
		f.drop()
		if _, err := c.CreateNode(bg, "/x", NodeConfig{}); err != nil && protocol.StatusOf(err) != protocol.StatusInternal {
			t.Fatal(err)
		}
		if info, err := c.ServerInfo(bg); err != nil || info.Instance != 2 {
			t.Fatal(info, err)
		}
	})
}

// TestReplicaReads: RELAXED reads go to the replica that the client chose, STRICT ones to the
// master, and so do all for a while after a change, and one that the replica refuses because it is
// behind.
func TestReplicaReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, n := f.openNode(t)
		c.replicaSeed = 1 // shard 2's second replica
		read := func(opts ...ReadOption) uint64 {
			t.Helper()
			if _, err := n.Describe(bg, nameIn(1), opts...); err != nil {
				t.Fatal(err)
			}
			all := f.all(protocol.KindDescribe)
			return all[len(all)-1].instance
		}
		if at := c.preferredReplica(c.routes.Load().byShard[2]); at != 2 {
			t.Fatal(at)
		}
		read() // makes the connection
		synctest.Wait()
		if at := read(); at != 2 {
			t.Errorf("a relaxed read went to %d", at)
		}
		if at := read(ReadConsistency(Strict)); at != 1 {
			t.Errorf("a strict read went to %d", at)
		}
		s := f.sessionIn(t, c, 0)
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if at := read(); at != 1 {
			t.Errorf("a read after a change went to %d", at)
		}
		time.Sleep(time.Minute)
		if at := read(); at != 2 {
			t.Errorf("a read long after a change went to %d", at)
		}
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindDescribe && fc.instance == 2 {
					fc.wrong(h, 1, 0)
					return true
				}
				return false
			}
		})
		if at := read(); at != 1 {
			t.Errorf("a read that the replica refused went to %d", at)
		}
		// What was read once is asked for by its index from then on.
		all := f.all(protocol.KindDescribe)
		if m := decode[protocol.Describe](t, all[len(all)-1].body); m.MinIndex != 1 {
			t.Errorf("min index is %d", m.MinIndex)
		}
	})
}

// TestAbandonedAcquireElsewhere: an acquire was sent over a connection that was lost. It may arrive
// yet, so that its release waits until it can say that the number is closed, which an older request
// that is open prevents.
func TestAbandonedAcquireElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		var older []func()
		swallow := true
		f.set(func() {
			f.master[3] = 2
			f.version = 2
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind == protocol.KindUpdate:
					older = append(older, func() { fc.reply(h, &protocol.UpdateReply{Version: 2}) })
					return true
				case h.Kind == protocol.KindAcquire && swallow:
					return true
				}
				return false
			}
		})
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		updated := make(chan error, 1)
		go func() {
			_, err := s.Update(bg, nameIn(1), nil) // number 1, at instance 1, stays open
			updated <- err
		}()
		synctest.Wait()
		ctx, cancel := brief()
		defer cancel()
		acquired := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, nameIn(2)) // number 2, at instance 2
			acquired <- err
		}()
		synctest.Wait()
		f.set(func() {
			for fc := range f.conns {
				if fc.instance == 2 {
					_ = fc.nc.Close()
					delete(f.conns, fc)
				}
			}
		})
		if err := <-acquired; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute / 10)
		if n := f.count(protocol.KindRelease); n > 0 {
			t.Fatalf("%d releases went out while the acquire's number could not be closed", n)
		}
		f.set(func() {
			swallow = false
			for _, answer := range older {
				answer()
			}
		})
		if err := <-updated; err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(bg, nameIn(2)); err != nil {
			t.Fatal(err)
		}
		releases := f.all(protocol.KindRelease)
		if len(releases) != 1 {
			t.Fatal(len(releases))
		}
		acquires := f.all(protocol.KindAcquire)
		lost := decode[protocol.Acquire](t, acquires[0].body)
		if m := decode[protocol.Release](t, releases[0].body); m.Low <= lost.Seq {
			t.Fatalf("the release closes numbers below %d; the acquire has %d", m.Low, lost.Seq)
		}
		if !slices.ContainsFunc(acquires, func(a seenRequest) bool { return decode[protocol.Acquire](t, a.body).Seq > lost.Seq }) {
			t.Fatal("no later acquire")
		}
	})
}

// TestCloseWithoutServer: Close waits no longer than the session could be relied on.
func TestCloseWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() { f.refuse = true })
		f.drop()
		synctest.Wait()
		left := s.Remaining()
		began := time.Now()
		if err := s.Close(bg); !errors.Is(err, ErrUnreachable) {
			t.Fatal(err)
		}
		if d := time.Since(began); d > left {
			t.Errorf("close took %s, the session had %s left", d, left)
		}
		if err := s.Close(bg); !errors.Is(err, ErrUnreachable) {
			t.Fatal(err)
		}
	})
}

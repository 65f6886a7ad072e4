package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// streams makes the fake serve watches: each shard has a semaphore "s<shard>", which the test may
// change.
func (f *fake) streams(t *testing.T, names map[uint64]string, refuse func(fc *fakeConn, shard uint64) protocol.Status) {
	f.set(func() {
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			if h.Kind != protocol.KindWatch {
				return false
			}
			m := decode[protocol.Watch](t, h.Body)
			if st := refuse(fc, m.Shard); st != 0 {
				fc.fail(h, st)
				return true
			}
			fc.reply(h, &protocol.Empty{})
			page := &protocol.Snapshot{First: true, Last: true, Index: 1}
			if name := names[m.Shard]; name != "" {
				page.Semaphores = append(page.Semaphores, protocol.SnapshotItem{Name: []byte(name), Limit: 1, Version: 1})
			}
			fc.send(protocol.KindSnapshot, h.ID, m.Shard, page)
			return true
		}
	})
}

// story reads events until the watch is synced, or ends.
func story(t *testing.T, next func() (Event, error, bool)) (delivered []string, err error) {
	t.Helper()
	for {
		ev, err, ok := next()
		if !ok || err != nil {
			return delivered, err
		}
		switch ev.Kind {
		case EventSynced:
			return delivered, nil
		case EventInterrupted:
			delivered = append(delivered, "interrupted")
		case EventDeleted:
			delivered = append(delivered, "-"+ev.Name)
		case EventChanged:
			delivered = append(delivered, "+"+ev.Name)
		}
	}
}

// watchForm is a way to take a watch: next waits for a step, stop ends it and returns when it has
// ended.
type watchForm func(ctx context.Context, n *Node, name string, prefix bool) (next func() (Event, error, bool), stop func())

// watchForms are the ways there are.
var watchForms = []struct {
	name string
	by   watchForm
}{
	{"iterator", func(ctx context.Context, n *Node, name string, prefix bool) (func() (Event, error, bool), func()) {
		if prefix {
			return iter.Pull2(n.WatchPrefix(ctx, name))
		}
		return iter.Pull2(n.Watch(ctx, name))
	}},
	{"function", func(ctx context.Context, n *Node, name string, prefix bool) (func() (Event, error, bool), func()) {
		ctx, cancel := context.WithCancel(ctx)
		type step struct {
			ev  Event
			err error
		}
		steps := make(chan step, 1000)
		called := func(ev Event, err error) {
			steps <- step{ev, err} // behind the last one it panics
			if err != nil {
				close(steps)
			}
		}
		if prefix {
			n.WatchPrefixFunc(ctx, name, called)
		} else {
			n.WatchFunc(ctx, name, called)
		}
		next := func() (Event, error, bool) {
			x, ok := <-steps
			return x.ev, x.err, ok
		}
		return next, func() {
			cancel()
			for range steps {
			}
		}
	}},
}

// TestWatchOverRedirects: parts of a watch find their shards, over refusals, cuts, lost links and
// shards that go, and tell differences only.
func TestWatchOverRedirects(t *testing.T) {
	for _, way := range watchForms {
		t.Run(way.name, func(t *testing.T) { watchOverRedirects(t, way.by) })
	}
}

func watchOverRedirects(t *testing.T, by watchForm) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		names := map[uint64]string{1: "a", 2: "b", 3: "c", 4: "d"}
		opened := map[uint64]uint64{}
		busy := 2
		f.streams(t, names, func(fc *fakeConn, shard uint64) protocol.Status {
			if busy > 0 {
				busy--
				return protocol.StatusOverloaded
			}
			if f.master[shard] != fc.instance && fc.instance != 2 { // instance 2 has a replica of everything
				return protocol.StatusWrongShard
			}
			opened[shard] = fc.instance
			return 0
		})
		ctx, cancel := context.WithTimeout(bg, time.Minute) // what is not told by then never is
		defer cancel()
		next, stop := by(ctx, n, "", true)
		defer stop()
		delivered, err := story(t, next)
		if err != nil || len(delivered) != 4 {
			t.Fatal(delivered, err)
		}

		// A stream is cut, and what it knew has changed meanwhile.
		f.set(func() {
			for fc := range f.conns {
				for _, r := range f.log {
					if r.kind == protocol.KindWatch && decode[protocol.Watch](t, r.body).Shard == 2 {
						fc.send(protocol.KindStreamCut, r.id, 2, &protocol.StreamCut{Status: protocol.StatusUnavailable})
					}
				}
			}
			names[2] = "bb"
		})
		if delivered, err = story(t, next); err != nil || fmt.Sprint(delivered) != "[interrupted -b +bb]" {
			t.Fatal(delivered, err)
		}

		// A shard moves to another instance, with the link.
		f.set(func() { f.version, f.master[3] = 2, 2 })
		f.drop()
		if delivered, err = story(t, next); err != nil || fmt.Sprint(delivered) != "[interrupted]" || opened[3] != 2 {
			t.Fatal(delivered, err, opened)
		}

		// A shard leaves the map: its stream is closed. What it told stays, until another shard
		// tells of its buckets (TestLocalCopyOverMoves).
		f.set(func() {
			f.version = 3
			old := f.on
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindMap {
					m := f.mapReply()
					m.Tiers[0].Runs = []protocol.MapRun{{Count: 2, Shard: 1}, {Count: 1, Shard: 2}, {Count: 1, Shard: 3}}
					fc.reply(h, m)
					return true
				}
				return old(fc, h)
			}
			for fc := range f.conns {
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 3})
			}
		})
		if delivered, err = story(t, next); err != nil || fmt.Sprint(delivered) != "[interrupted]" {
			t.Fatal(delivered, err)
		}
		stop()
		synctest.Wait()
		if f.count(protocol.KindUnwatch) == 0 {
			t.Error("streams were not closed")
		}
	})
}

// TestWatchOverOneShardAway: what the other shards say is told while one cannot be reached.
func TestWatchOverOneShardAway(t *testing.T) {
	for _, way := range watchForms {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				_, n := f.openNode(t)
				f.streams(t, map[uint64]string{1: "a", 3: "c", 4: "d"}, func(fc *fakeConn, shard uint64) protocol.Status {
					if shard == 2 {
						return protocol.StatusUnavailable
					}
					return 0
				})
				next, stop := way.by(bg, n, "", true)
				defer stop()
				delivered := map[string]bool{}
				for len(delivered) < 3 {
					ev, err, _ := next()
					if err != nil || ev.Kind != EventChanged {
						t.Fatal(ev, err)
					}
					delivered[ev.Name] = true
				}
			})
		})
	}
}

// TestWatchOverInstancesAway: all that a shard says is told while the attempts to reach other
// instances take their time.
func TestWatchOverInstancesAway(t *testing.T) {
	for _, way := range watchForms {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const names = 100
				f := newFake(t)
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					switch h.Kind {
					case protocol.KindMap:
						m := f.mapReply()
						m.Instances, m.Shards = nil, nil
						for i := uint64(1); i <= 4; i++ { // shard 4 is the only one that can be reached
							m.Instances = append(m.Instances, protocol.MapInstance{ID: i, Address: fmt.Sprint(i)})
							m.Shards = append(m.Shards, protocol.MapShard{ID: i, Master: 5 - i, Replicas: []uint64{5 - i}})
						}
						fc.reply(h, m)
					case protocol.KindWatch:
						fc.reply(h, &protocol.Empty{})
						page := &protocol.Snapshot{First: true, Last: true, Index: 1}
						for i := range names {
							page.Semaphores = append(page.Semaphores,
								protocol.SnapshotItem{Name: fmt.Appendf(nil, "name %03d", i), Limit: 1, Version: 1})
						}
						fc.send(protocol.KindSnapshot, h.ID, h.Arg+1, page)
					default:
						return false
					}
					return true
				}
				c := f.open(t, func(cfg *Config) {
					cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
						if address != "1" {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return f.dial(ctx, address)
					}
				})
				n, err := c.Node(bg, "/n")
				if err != nil {
					t.Fatal(err)
				}
				// Each of the others is waited for, at most openTimeout, before this one.
				ctx, cancel := context.WithTimeout(bg, 10*openTimeout)
				defer cancel()
				next, stop := way.by(ctx, n, "", true)
				defer stop()
				for i := range names {
					if ev, err, _ := next(); err != nil || ev.Kind != EventChanged {
						t.Fatalf("event %d: %v, %v", i, ev, err)
					}
				}
			})
		})
	}
}

// TestWatchEnds: what trying again does not change ends a watch, and so do its context and its
// client.
func TestWatchEnds(t *testing.T) {
	for _, way := range watchForms {
		t.Run(way.name, func(t *testing.T) { watchEnds(t, way.by) })
	}
}

func watchEnds(t *testing.T, by watchForm) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, n := f.openNode(t)
		f.streams(t, nil, func(*fakeConn, uint64) protocol.Status { return protocol.StatusForbidden })
		last := func(ctx context.Context) error {
			next, stop := by(ctx, n, "x", false)
			defer stop()
			for {
				if _, err, ok := next(); err != nil || !ok {
					return err
				}
			}
		}
		if err := last(bg); !errors.Is(err, Forbidden) {
			t.Fatal(err)
		}
		f.streams(t, nil, func(*fakeConn, uint64) protocol.Status { return protocol.StatusUnavailable })
		ctx, cancel := brief()
		defer cancel()
		if err := last(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		f.set(func() { f.refuse = true })
		f.drop()
		ctx, cancel = context.WithTimeout(bg, time.Minute)
		defer cancel()
		if err := last(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, c.CloseWithoutRelease)
		for range 2 { // the second time it is closed already
			if err := last(bg); !errors.Is(err, ErrClientClosed) {
				t.Fatal(err)
			}
		}
	})
}

// TestObserveResumes: that nobody leads is told once, however often the watch resumes.
func TestObserveResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		f.streams(t, nil, func(*fakeConn, uint64) protocol.Status { return 0 })
		ctx, cancel := context.WithCancel(context.Background())
		var seen []Leader
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l, err := range n.Election("boss").Observe(ctx) {
				if err == nil {
					seen = append(seen, l)
				}
			}
		}()
		const links = 4
		for range links - 1 {
			time.Sleep(time.Minute)
			f.drop()
		}
		time.Sleep(time.Minute)
		cancel()
		<-done
		if watches := f.count(protocol.KindWatch); watches < links || len(seen) != 1 || seen[0].Exists {
			t.Fatal(watches, seen)
		}
	})
}

// TestWatchSaysWhy: a watch that a limit keeps from being opened names the limit when its context
// ends. One that is live, or was, ends with its context alone.
func TestWatchSaysWhy(t *testing.T) {
	for _, way := range watchForms {
		t.Run(way.name, func(t *testing.T) { watchSaysWhy(t, way.by) })
	}
}

func watchSaysWhy(t *testing.T, by watchForm) {
	for refused, want := range map[protocol.Status]error{0: nil, protocol.StatusOverloaded: Overloaded} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			_, n := f.openNode(t)
			tries := 0
			f.streams(t, nil, func(*fakeConn, uint64) protocol.Status {
				if tries++; refused == 0 && tries < 3 {
					return protocol.StatusOverloaded
				}
				return refused
			})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			next, stop := by(ctx, n, "a name", false)
			defer stop()
			_, err := story(t, next)
			if want == nil && err == nil {
				_, err = story(t, next)
			}
			if !errors.Is(err, context.DeadlineExceeded) || (want != nil) != errors.Is(err, Overloaded) {
				t.Errorf("refused with %s, it ends with: %v", refused, err)
			}
		})
	}
}

// TestObjectStreamSaysWhy: so it is with the stream of a process or of a rollout.
func TestObjectStreamSaysWhy(t *testing.T) {
	for refused, want := range map[protocol.Status]error{0: nil, protocol.StatusOverloaded: Overloaded} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			_, n := f.openNode(t)
			tries := 0
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind != protocol.KindProcessWatch {
						return false
					}
					if tries++; refused != 0 || tries < 3 {
						fc.fail(h, protocol.StatusOverloaded)
						return true
					}
					fc.reply(h, &protocol.Empty{})
					fc.send(protocol.KindProcessState, h.ID, 0, &protocol.ProcessState{})
					return true
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			o, req := newObject(nil, n, "process", protocol.ProcessBucket), &protocol.ProcessWatch{Node: n.id, Name: []byte("process")}
			decoder := func() rpc.Decoder {
				return func(protocol.Header) (any, rpc.Step, error) { return nil, rpc.Append, nil }
			}
			delivered := 0
			var ended error
			for _, err := range o.Events(ctx, protocol.KindProcessWatch, req, decoder) {
				if ended = err; err == nil {
					delivered++
				}
			}
			if !errors.Is(ended, context.DeadlineExceeded) || !errors.Is(ended, want) && want != nil ||
				want == nil && (delivered != 1 || errors.Is(ended, Overloaded)) {
				t.Errorf("refused with %s, it ends after %d events with: %v", refused, delivered, ended)
			}
		})
	}
}

// TestLateFollow: what a refusal says of a shard ends the wait that began with it, and not that of
// a newer refusal.
func TestLateFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		p := newShardWatch(newWatch(n, "", true), 1)
		cn, err := n.c.connToShard(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		st := &watchStream{shardWatch: p, cn: cn}
		refused := &protocol.Error{Status: protocol.StatusWrongShard, MapVersion: 1, Shard: 1, Master: 1}
		older := time.Now().Add(retryMax)
		newer := older.Add(time.Second)
		for _, due := range []time.Time{older, newer} {
			p.due = due
			p.follow(st, refused, 0, 0, older)
			if waits := p.due.Equal(newer); waits != due.Equal(newer) || p.due.Equal(older) {
				t.Errorf("the part that waited until %v waits until %v", due, p.due)
			}
		}
	})
}

// TestObjectStreamSaysWhatItWaitsFor: its first try may wait until the context ends.
func TestObjectStreamSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := newFake(t).openNode(t)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		elsewhere := *n
		elsewhere.tier = 7 // the cluster does not have it yet
		o, req := newObject(nil, &elsewhere, "process", protocol.ProcessBucket), &protocol.ProcessWatch{Node: n.id, Name: []byte("process")}
		for _, err := range o.Events(ctx, protocol.KindProcessWatch, req, func() rpc.Decoder { return nil }) {
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) {
				t.Error("it ends with: ", err)
			}
		}
	})
}

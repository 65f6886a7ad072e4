package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// openStream is a watch of a name whose stream is live, on a connection that is nothing else.
func openStream(tb testing.TB, step func(Event, error)) (*Client, *watch, *watchStream) {
	c := newClient(Config{Endpoints: []string{"x"}, clock: bubbleClock{}, Logger: discard()})
	c.routes.Store(&routeTable{})
	w := newWatch(&Node{c: c, id: 7}, "a name", false)
	w.routes, w.synced = c.routes.Load(), true
	if step != nil {
		w.dispatcher, w.callback = c.dispatcher, watchCallback{ctx: tb.Context(), step: step, stopAfterFunc: func() bool { return true }}
		c.dispatcher.all[w] = struct{}{}
	}
	p := newShardWatch(w, 3)
	p.live = true
	st := &watchStream{shardWatch: p, cn: &conn{}, id: 1, key: streamKey{3, 7, "a name"}, pages: []pageRange{{last: true}}}
	p.stream, w.shardWatches = st, []*shardWatch{p}
	st.cn.streams.add(st, false)
	return c, w, st
}

// deltaFrame is a change of the data of openStream's name, as it comes in.
func deltaFrame(index uint64, data string) protocol.Header {
	kind := protocol.ChangeData
	if index == 1 {
		kind = protocol.ChangeCreated
	}
	m := &protocol.Delta{Node: 7, Name: []byte("a name"), Index: index,
		Changes: []protocol.SemaphoreChange{{Kind: kind, Version: index, Data: []byte(data)}}}
	return protocol.Header{Kind: protocol.KindDelta, Arg: 3, Body: m.AppendBody(nil)}
}

// TestDeltaAllocs: a change of a value allocates the value, and nothing else.
func TestDeltaAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops what pools keep")
	}
	_, w, st := openStream(t, nil)
	list := []protocol.Header{deltaFrame(1, "")}
	const runs = 200
	for i := range uint64(runs + 2) {
		list = append(list, deltaFrame(2+i, fmt.Sprint(i)))
	}
	var ev Event
	each := testing.AllocsPerRun(runs, func() {
		if err := st.cn.streamEvent(list[0]); err != nil {
			t.Fatal(err)
		}
		list = list[1:]
		if ok, err := w.next(&ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	if each > 1 {
		t.Errorf("a change allocates %v times", each)
	}
}

// TestDeltaMemory: what a watch delivers is its own, although the memory of deltas is used again,
// and so are deltas that wait for the end of a snapshot.
func TestDeltaMemory(t *testing.T) {
	_, w, st := openStream(t, nil)
	receive := func(h protocol.Header) {
		t.Helper()
		if err := st.cn.streamEvent(h); err != nil {
			t.Fatal(err)
		}
		for i := range h.Body {
			h.Body[i] = 0xff // the reader uses its buffer again
		}
	}
	var list []Event
	read := func() {
		t.Helper()
		var ev Event
		if ok, err := w.next(&ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
		list = append(list, ev)
	}
	receive(deltaFrame(1, "one"))
	read()
	receive(deltaFrame(2, "two"))
	read()
	st.building, st.pages = map[string]*snapshot{}, []pageRange{{upTo: "b"}}
	receive(deltaFrame(3, "three"))
	receive(deltaFrame(4, "four"))
	if len(st.held) != 2 {
		t.Fatalf("%d deltas wait", len(st.held))
	}
	receive(deltaFrame(5, "five"))
	for _, d := range st.held {
		w.apply(st.shardWatch, d)
		read()
	}
	want := []string{"one", "two", "three", "four", "five"}
	if len(list) != len(want) {
		t.Fatalf("%d events", len(list))
	}
	for i, ev := range list {
		if ev.Name != "a name" || !bytes.Equal(ev.Data, []byte(want[i])) {
			t.Errorf("event %d is of %q: %q, not %q", i, ev.Name, ev.Data, want[i])
		}
	}
}

// TestDispatcherSleeps: a client whose watches have nothing to deliver has no goroutine for them,
// and its end makes their last calls.
func TestDispatcherSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		var ends []error
		hold := make(chan struct{})
		c, _, st := openStream(t, func(ev Event, err error) {
			if err != nil {
				ends = append(ends, err)
				return
			}
			got = append(got, string(ev.Data))
			<-hold
		})
		running := func() bool {
			c.dispatcher.mu.Lock()
			defer c.dispatcher.mu.Unlock()
			return c.dispatcher.running
		}
		for i, data := range []string{"one", "two", "three"} {
			if err := st.cn.streamEvent(deltaFrame(uint64(i)+1, data)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !running() {
				t.Error("nobody delivers")
			}
			hold <- struct{}{}
			synctest.Wait()
			if running() {
				t.Error("the dispatcher's goroutine has nothing to do, and is there")
			}
		}
		if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
			t.Errorf("delivered %q", got)
		}
		c.CloseWithoutRelease()
		if len(ends) != 1 || !errors.Is(ends[0], ErrClientClosed) {
			t.Errorf("last calls: %v", ends)
		}
	})
}

// TestCloseWaitsForFunction: a client ends while a function of a watch runs. Its last call comes
// after that, and before the client's Close returns.
func TestCloseWaitsForFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		hold := make(chan struct{})
		c, _, st := openStream(t, func(_ Event, err error) {
			if err != nil {
				calls = append(calls, "end")
				return
			}
			calls = append(calls, "begin")
			<-hold
			calls = append(calls, "done")
		})
		if err := st.cn.streamEvent(deltaFrame(1, "one")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		closed, after := context.WithCancel(t.Context())
		go func() {
			c.CloseWithoutRelease()
			after()
		}()
		synctest.Wait()
		if closed.Err() != nil || !slices.Equal(calls, []string{"begin"}) {
			t.Errorf("closed: %v; calls: %q", closed.Err(), calls)
		}
		close(hold)
		<-closed.Done()
		if !slices.Equal(calls, []string{"begin", "done", "end"}) {
			t.Errorf("calls: %q", calls)
		}
	})
}

// TestFunctionEndsGoroutine: a function that ends its goroutine, as FailNow of a test does, keeps
// neither what is ready, nor later changes, from being delivered, nor the client from being closed.
func TestFunctionEndsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		var ready *watch
		c, w, st := openStream(t, func(ev Event, err error) {
			if err != nil {
				calls = append(calls, "end")
				return
			}
			if ev.Kind == EventSynced {
				calls = append(calls, "synced")
			} else {
				calls = append(calls, string(ev.Data))
			}
			ready.dispatcher.queue(ready)
			runtime.Goexit()
		})
		w.synced = false // so that one is delivered behind the first change
		ready = newWatch(w.n, "a name", false)
		ready.dispatcher, ready.err = c.dispatcher, errors.New("refused")
		ready.callback = watchCallback{ctx: t.Context(), stopAfterFunc: func() bool { return true },
			step: func(Event, error) { calls = append(calls, "ready") }}
		for i, data := range []string{"one", "two"} {
			if err := st.cn.streamEvent(deltaFrame(uint64(i)+1, data)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		c.CloseWithoutRelease()
		if want := []string{"one", "ready", "synced", "two", "end"}; !slices.Equal(calls, want) {
			t.Errorf("calls: %q", calls)
		}
	})
}

// TestFunctionEndsOpeningGoroutine: the same of the goroutine that has opened the watch.
func TestFunctionEndsOpeningGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		c, w, st := openStream(t, func(ev Event, err error) {
			if err != nil {
				calls = append(calls, "end")
				return
			}
			calls = append(calls, string(ev.Data))
			runtime.Goexit()
		})
		r, err := newRouteTable(&protocol.MapReply{Version: 1, Shards: []protocol.MapShard{{ID: 3}},
			Tiers: []protocol.MapTier{{Buckets: 1, Runs: []protocol.MapRun{{Count: 1, Shard: 3}}}}})
		if err != nil {
			t.Fatal(err)
		}
		c.routes.Store(r)
		w.routes, w.synced, w.callback.hasGoroutine = r, false, true
		c.run(w.openAndDeliver)
		synctest.Wait()
		if err := st.cn.streamEvent(deltaFrame(1, "one")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.CloseWithoutRelease()
		if want := []string{"", "one", "end"}; !slices.Equal(calls, want) { // the first says that the watch has all there is
			t.Errorf("calls: %q", calls)
		}
	})
}

// TestCloseWaitsForEndedGoroutine: the client is closed while a function runs that then ends its
// goroutine.
func TestCloseWaitsForEndedGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var ends []error
		c, _, st := openStream(t, func(_ Event, err error) {
			if err != nil {
				ends = append(ends, err)
				return
			}
			<-hold
			runtime.Goexit()
		})
		if err := st.cn.streamEvent(deltaFrame(1, "one")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(hold) })
		c.CloseWithoutRelease()
		if len(ends) != 1 || !errors.Is(ends[0], ErrClientClosed) {
			t.Errorf("last calls: %v", ends)
		}
	})
}

// TestDeltaBesidePages: a change is for the local copy once the pages of the snapshot cover its
// name, and if it is newer than the page that has it.
func TestDeltaBesidePages(t *testing.T) {
	_, w, st := openStream(t, nil)
	st.pages = nil
	index := func() uint64 { // of the newest change in the copy, which is its version
		w.mu.Lock()
		defer w.mu.Unlock()
		if x := w.names["a name"]; x != nil {
			return x.version
		}
		return 0
	}
	receive := func(at, want uint64) {
		t.Helper()
		if err := st.cn.streamEvent(deltaFrame(at, "data")); err != nil {
			t.Fatal(err)
		}
		if got := index(); got != want {
			t.Errorf("after a change at %d the copy is of %d, want %d", at, got, want)
		}
	}
	receive(4, 0) // no page has come
	item := protocol.SnapshotItem{Name: []byte("a name"), Limit: 1, Version: 3}
	st.page(&protocol.Snapshot{First: true, Index: 5, Semaphores: []protocol.SnapshotItem{item}})
	receive(4, 0)
	receive(7, 0) // held
	st.page(&protocol.Snapshot{Last: true, Index: 9})
	if got := index(); got != 7 {
		t.Errorf("with its last page the copy is of %d", got)
	}
	receive(5, 7) // the page has it
	receive(8, 8) // newer than its page, and older than the last one
	receive(10, 10)
	item.Version = 15
	st.page(&protocol.Snapshot{First: true, Last: true, Index: 20, Semaphores: []protocol.SnapshotItem{item}})
	receive(20, 15) // the only page has it
	receive(21, 21)
}

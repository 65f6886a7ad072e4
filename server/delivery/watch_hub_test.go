package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// hubModel is a hub with connections, and what a test does with it in a line.
type hubModel struct {
	*model
	t *testing.T
}

func newHubModel(t *testing.T, opt WatchOptions) *hubModel {
	h := &hubModel{newModel(opt), t}
	for conn := uint64(1); conn <= 3; conn++ {
		h.conn(conn)
	}
	return h
}

// expect compares the status of a call.
func (h *hubModel) expect(what string, err error, status protocol.Status) {
	h.t.Helper()
	if protocol.StatusOf(err) != status {
		h.t.Errorf("%s: %v, want %v", what, err, status)
	}
}

func (h *hubModel) stream(conn, id uint64, name string, prefix bool) error {
	return h.hub.Open(conn, id, &protocol.Watch{Shard: testShard, Node: 1, Name: []byte(name), Prefix: prefix}, noQuota)
}

func (h *hubModel) oneShot(conn, session uint64, name string, id, maxWatchers uint64) error {
	return h.hub.OneShot(conn, session, 1, []byte(name), protocol.WatchData, id, maxWatchers)
}

// fires are the lines about one-shot watches that f makes, sorted.
func (h *hubModel) fires(f func()) (lines []string) {
	h.lines = nil
	f()
	for _, line := range h.lines {
		if strings.Contains(line, "fired") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func (h *hubModel) setData(name string) {
	h.change(shard.SemaphoreChange{Node: 1, Name: []byte(name),
		SemaphoreChange: protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: 2, Data: []byte("x")}})
}

func (h *hubModel) nothingLeft(when string) {
	h.t.Helper()
	h.advance(h.now + time.Second)
	if left := h.left(); left != "" {
		h.t.Errorf("left over %s: %s", when, left)
	}
}

// TestWatchBounds: what is refused leaves nothing behind, and what ends makes room.
func TestWatchBounds(t *testing.T) {
	t.Parallel()
	h := newHubModel(t, WatchOptions{Limits: WatchLimits{Streams: 1, Watchers: 2, OneShots: 1}})
	h.expect("a name that is too long", h.stream(1, 1, strings.Repeat("x", protocol.MaxNameLen+1), false), protocol.StatusBadRequest)
	h.expect("a one-shot watch of nothing", h.hub.OneShot(1, 70, 1, []byte("a"), 1<<7, 1, noQuota), protocol.StatusOK)
	h.expect("over the quota", h.oneShot(1, 70, "a", 1, 0), protocol.StatusOverloaded)
	if h.hub.Close(1, 9) {
		t.Error("a stream that is not there was closed")
	}
	h.nothingLeft("after refusals")
	for _, prefix := range []bool{false, true} {
		for range 3 {
			h.expect("the first", h.stream(1, 1, "a", prefix), protocol.StatusOK)
			h.expect("too many of the connection", h.stream(1, 2, "a", prefix), protocol.StatusOverloaded)
			h.expect("the second", h.stream(2, 1, "a", prefix), protocol.StatusOK)
			h.expect("too many", h.stream(3, 1, "a", prefix), protocol.StatusOverloaded)
			if !h.hub.Close(1, 1) || h.hub.Close(1, 1) || !h.hub.Close(2, 1) {
				t.Error("not closed once")
			}
			h.nothingLeft("after streams")
		}
	}
	for range 3 {
		h.expect("the first one-shot watch", h.oneShot(1, 70, "a", 1, noQuota), protocol.StatusOK)
		h.expect("too many one-shot watches of the connection", h.oneShot(1, 70, "b", 2, noQuota), protocol.StatusOverloaded)
		h.expect("the second one-shot watch", h.oneShot(2, 80, "a", 3, noQuota), protocol.StatusOK)
		h.expect("too many one-shot watches", h.oneShot(3, 90, "a", 4, noQuota), protocol.StatusOverloaded)
		h.expect("in place of an older one", h.oneShot(1, 70, "a", 5, noQuota), protocol.StatusOK)
		h.expect("in place of another connection's, over the limit", h.oneShot(1, 80, "a", 6, noQuota), protocol.StatusOverloaded)
		want := []string{"conn 1 < fired 5 of session 70: data=true owners=false", "conn 2 < fired 3 of session 80: data=true owners=false"}
		if got := h.fires(func() { h.setData("a") }); !slices.Equal(got, want) {
			t.Errorf("fired\n%s", strings.Join(got, "\n"))
		}
		h.nothingLeft("after one-shot watches")
	}
	h.expect("a stream beside", h.stream(1, 1, "a", false), protocol.StatusOK)
	for range 3 { // those that fired make room while the name stays watched
		h.expect("one beside a stream", h.oneShot(2, 80, "a", 1, noQuota), protocol.StatusOK)
		h.expect("too many beside a stream", h.oneShot(3, 90, "a", 2, noQuota), protocol.StatusOverloaded)
		if got := h.fires(func() { h.setData("a") }); len(got) != 1 {
			t.Errorf("fired %q beside a stream", got)
		}
	}
	h.hub.Close(1, 1)
	h.nothingLeft("after the stream beside")
}

// TestOneShotsOfASession: a session's end takes all its watches, those that are left when some have
// fired too, and no other session's.
func TestOneShotsOfASession(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(h *hubModel){
		"its end":                    func(h *hubModel) { h.hub.SessionEnded(70) },
		"the loss of its connection": func(h *hubModel) { h.hub.SessionUnbound(1, 70, false) },
		"its end, told twice":        func(h *hubModel) { h.hub.SessionEnded(70); h.hub.SessionEnded(70) },
	} {
		h := newHubModel(t, WatchOptions{Window: -1})
		for i, name := range []string{"a", "b", "c"} {
			h.expect(name, h.oneShot(1, 70, name, uint64(i), noQuota), protocol.StatusOK)
		}
		h.expect("another session's", h.oneShot(2, 80, "b", 7, noQuota), protocol.StatusOK)
		if got := h.fires(func() { h.setData("a") }); len(got) != 1 {
			t.Errorf("%q of one watch", got)
		}
		if got := h.fires(func() { end(h) }); len(got) != 0 {
			t.Errorf("%s fires %q", what, got)
		}
		want := []string{"conn 2 < fired 7 of session 80: data=true owners=false"}
		if got := h.fires(func() { h.setData("b"); h.setData("c") }); !slices.Equal(got, want) {
			t.Errorf("after %s: %q", what, got)
		}
		h.nothingLeft("after " + what)
	}
}

// TestOneShotsWithoutSession: those of two connections are two watches.
func TestOneShotsWithoutSession(t *testing.T) {
	t.Parallel()
	h := newHubModel(t, WatchOptions{Window: -1})
	h.expect("the first", h.oneShot(1, 0, "a", 5, noQuota), protocol.StatusOK)
	h.expect("the second", h.oneShot(2, 0, "a", 6, noQuota), protocol.StatusOK)
	want := []string{"conn 1 < fired 5 of session 0: data=true owners=false", "conn 2 < fired 6 of session 0: data=true owners=false"}
	if got := h.fires(func() { h.setData("a") }); !slices.Equal(got, want) {
		t.Errorf("fired %q", got)
	}
	h.nothingLeft("after both")
}

// TestMergedBeforeTheEnd: what was merged goes out before a stream is cut with its node.
func TestMergedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	h := newHubModel(t, WatchOptions{Window: 10 * time.Millisecond})
	h.store[1] = map[string]semaphore{"a": {limit: 1, owners: map[uint64]string{}}}
	h.expect("a stream", h.stream(1, 1, "a", false), protocol.StatusOK)
	h.hub.Page(1, h, 10)
	h.setData("a")
	h.setData("a")
	h.lines = nil
	h.hub.nodeDropped(1)
	if len(h.lines) != 2 || !strings.Contains(h.lines[0], "delta") || !strings.Contains(h.lines[1], "cut") {
		t.Errorf("%q, want a delta and a cut", h.lines)
	}
	h.nothingLeft("after the node")
}

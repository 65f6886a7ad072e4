package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// hubsModel is the hubs of a shard on a machine that leads, with recorded connections.
type hubsModel struct {
	*machineModel
	d       *Hubs
	leading bool
}

func (h *hubsModel) View(fn func(*shard.Machine)) { fn(h.m) }
func (h *hubsModel) Leading() bool                { return h.leading }
func (h *hubsModel) LogTime() uint64              { return h.m.LogTime() }

// watched is one of each kind of watch. Those of connection 1 are in node 1, those of connection 2
// in node 2.
const watched = `
conn 1 stream 1: semaphore s
conn 1 stream 2: all semaphores
conn 1 stream 3: process p
conn 1 stream 4: track t
conn 1 stream 5: track t, targets of SAS
conn 1 stream 6: track u
conn 1 one-shot 7 of session 70: semaphore s
conn 2 stream 1: semaphore s
conn 2 stream 3: process p
conn 2 one-shot 7 of session 80: semaphore s
`

// newHubsModel makes the hubs of a shard that leads, with the watches above. Each stream has its
// first page.
func newHubsModel(t *testing.T) *hubsModel {
	t.Helper()
	h := &hubsModel{machineModel: newMachineModel(2), leading: true}
	session := h.startSession()
	for i, name := range []string{"t", "u"} {
		h.begin()
		h.request(shard.CmdTrackCreate, &protocol.TrackCreate{
			Head: protocol.Head{Session: session.id, Seq: uint64(i) + 1, Low: 1}, Name: []byte(name),
			Config: protocol.TrackConfig{Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}}},
		})
		h.apply()
	}
	h.d = NewHubs(testShard, h, h, WatchOptions{Window: -1})
	h.conn(1)
	h.conn(2)
	for _, err := range []error{
		h.d.Semaphores.Open(1, 1, &protocol.Watch{Shard: testShard, Node: 1, Name: []byte("s")}, noQuota),
		h.d.Semaphores.Open(1, 2, &protocol.Watch{Shard: testShard, Node: 1, Prefix: true}, noQuota),
		h.d.Processes.Open(1, 3, 1, []byte("p"), struct{}{}, noQuota),
		h.d.Tracks.Open(1, 4, 1, []byte("t"), TrackFilter{}, noQuota),
		h.d.Tracks.Open(1, 5, 1, []byte("t"), TrackFilter{Location: "SAS", Targets: true}, noQuota),
		h.d.Tracks.Open(1, 6, 1, []byte("u"), TrackFilter{}, noQuota),
		h.d.Semaphores.OneShot(1, 70, 1, []byte("s"), protocol.WatchData, 7, noQuota),
		h.d.Semaphores.Open(2, 1, &protocol.Watch{Shard: testShard, Node: 2, Name: []byte("s")}, noQuota),
		h.d.Processes.Open(2, 3, 2, []byte("p"), struct{}{}, noQuota),
		h.d.Semaphores.OneShot(2, 80, 2, []byte("s"), protocol.WatchData, 7, noQuota),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.pages()
	if open := h.d.Quota.Open(1); open != 7 {
		t.Fatalf("the quota counts %d watchers in node 1, want 7", open)
	}
	return h
}

// pages reads all pages that are due.
func (h *hubsModel) pages() {
	for conn := uint64(1); conn <= 2; conn++ {
		for h.d.Page(conn, h.m, 100) {
		}
	}
}

// did are the lines of what f does. Some of it is in no order.
func (h *hubsModel) did(f func()) string {
	h.lines = nil
	f()
	lines := slices.Clone(h.lines)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// tookOver gives the hubs leaders' epochs, of which the last one is that of another leader or not.
func (h *hubsModel) tookOver(another bool, epochs ...uint64) {
	got := false
	for _, e := range epochs {
		got = h.d.TookOver(e)
	}
	if got != another {
		h.lines = append(h.lines, fmt.Sprintf("another leader: %v", got))
	}
}

// TestWatchesEnd: which watches end or restart with what ends or changes in their shard, and how.
func TestWatchesEnd(t *testing.T) {
	t.Parallel()
	const total = 4096 // no two of the names have a bucket in common
	frozen := func(h *hubsModel, bucket uint32) {
		h.d.BucketsFrozen(bucket, 1, total)
	}
	const untold = "fired 7 of session 70: data=false owners=false"
	const untold2 = "conn 2 < fired 7 of session 80: data=false owners=false"
	cut := func(conn int, why string, streams ...int) (lines string) {
		for _, s := range streams {
			lines += fmt.Sprintf("conn %d < stream %d cut: %s\n", conn, s, why)
		}
		return lines
	}
	const dropped = "not found: the coordination node was deleted; nothing is left to watch"
	const moves = "'s bucket moves to another shard; fetch the map and ask its instance"
	const led = "unavailable: the shard is led elsewhere now; fetch the map and watch again"
	for _, c := range []struct {
		name string
		do   func(h *hubsModel)
		want string
	}{
		{"a first leader", func(h *hubsModel) { h.tookOver(false, 5<<16) }, ""},
		{"a leader that takes over again", func(h *hubsModel) { h.tookOver(false, 5<<16, 5<<16+1) }, ""},
		{"another leader", func(h *hubsModel) { h.tookOver(true, 5<<16, 6<<16) }, "conn 1 < " + untold + "\n" + untold2},
		{"another leader, again", func(h *hubsModel) { h.tookOver(false, 5<<16, 6<<16, 6<<16+1) }, "conn 1 < " + untold + "\n" + untold2},
		{"a dropped node", func(h *hubsModel) { h.d.NodeDropped(1) },
			"conn 1 < fired 7 of session 70: data=true owners=true\n" + cut(1, dropped, 1, 2, 3, 4, 5, 6)},
		{"a deleted track", func(h *hubsModel) { h.d.Tracks.Deleted(1, []byte("t")) }, cut(1, "not found: the track was deleted; nothing is left to watch", 4, 5)},
		{"a track deleted in another node", func(h *hubsModel) { h.d.Tracks.Deleted(2, []byte("t")) }, ""},
		{"a frozen semaphore", func(h *hubsModel) { frozen(h, protocol.Bucket(1, []byte("s"), total)) },
			"conn 1 < " + untold + "\n" + cut(1, "wrong shard: the semaphore"+moves, 1) +
				"conn 1 waits for pages"},
		{"a frozen process", func(h *hubsModel) { frozen(h, protocol.ProcessBucket(1, []byte("p"), total)) },
			cut(1, "wrong shard: the process"+moves, 3) +
				"conn 1 waits for pages"},
		{"a frozen track", func(h *hubsModel) { frozen(h, protocol.Bucket(1, []byte("t"), total)) },
			cut(1, "wrong shard: the track"+moves, 4, 5) +
				"conn 1 waits for pages"},
		{"the bucket beside that of a track", func(h *hubsModel) { frozen(h, protocol.Bucket(1, []byte("t"), total)-1) },
			"conn 1 waits for pages"},
		{"the bucket that a prefix would have as a name", func(h *hubsModel) { frozen(h, protocol.Bucket(1, nil, total)) },
			"conn 1 waits for pages"},
		{"new buckets", func(h *hubsModel) { h.d.BucketsActive() }, "conn 1 waits for pages"},
		{"no leadership", func(h *hubsModel) { h.d.LeadershipLost() },
			"conn 1 < " + untold + "\n" + cut(1, led, 4, 5, 6) + untold2},
		{"a stale node", func(h *hubsModel) { h.d.Stale(func(node uint64) bool { return node == 2 }) },
			untold2 + "\n" + cut(2, "unavailable: "+TextStale, 1, 3)},
		{"a closed shard", func(h *hubsModel) { h.d.Close() },
			"conn 1 < " + untold + "\n" + cut(1, "wrong shard: "+textClosed, 1, 2, 3, 4, 5, 6) +
				untold2 + "\n" + cut(2, "wrong shard: "+textClosed, 1, 3)},
		{"a session's end", func(h *hubsModel) {
			h.d.SessionEnded(70)
			h.d.LeadershipLost()
		}, cut(1, led, 4, 5, 6) + untold2},
		{"a session that is bound elsewhere", func(h *hubsModel) { h.d.SessionUnbound(1, 70, true) }, "conn 1 < " + untold},
		{"a session that another connection has lost", func(h *hubsModel) { h.d.SessionUnbound(2, 70, true) }, ""},
		{"a closed connection", func(h *hubsModel) {
			h.d.ConnClosed(1)
			h.d.Close()
		}, untold2 + "\n" + cut(2, "wrong shard: "+textClosed, 1, 3)},
		{"closed streams", func(h *hubsModel) {
			for id := uint64(1); id < 6; id++ {
				h.d.CloseStream(1, id)
			}
			h.d.Close()
		}, "conn 1 < " + untold + "\n" + cut(1, "wrong shard: "+textClosed, 6) + untold2 + "\n" +
			cut(2, "wrong shard: "+textClosed, 1, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHubsModel(t)
			if got, want := h.did(func() { c.do(h) }), strings.TrimSuffix(c.want, "\n"); got != want {
				t.Errorf("of%swhat happens is\n%s\nwant\n%s", watched, got, want)
			}
			h.d.Close()
			h.d.ConnClosed(1)
			h.d.ConnClosed(2)
			h.hub = h.d.Semaphores
			objects := len(h.d.Processes.byName) + len(h.d.Processes.byConn) + len(h.d.Tracks.byName) + len(h.d.Tracks.byConn)
			if left := h.left(); left != "" || objects+h.d.Processes.Len()+h.d.Tracks.Len() != 0 {
				t.Errorf("left over: %s, %d tables of objects", left, objects)
			}
		})
	}
}

// TestSnapshotInstalled: every stream gets its state again, and no change before it.
func TestSnapshotInstalled(t *testing.T) {
	t.Parallel()
	h := newHubsModel(t)
	want := strings.Join([]string{
		"conn 1 < fired 7 of session 70: data=false owners=false",
		"conn 1 waits for pages", "conn 1 waits for pages", "conn 1 waits for pages",
		"conn 2 < fired 7 of session 80: data=false owners=false",
		"conn 2 waits for pages", "conn 2 waits for pages",
	}, "\n")
	if got := h.did(h.d.SnapshotInstalled); got != want {
		t.Errorf("at once\n%s\nwant\n%s", got, want)
	}
	if n := h.d.Processes.Waiting() + h.d.Tracks.Waiting(); n != 5 {
		t.Errorf("%d streams over objects wait for their state, want 5", n)
	}
	if got := h.did(func() { h.change() }); got != "" {
		t.Errorf("before the state\n%s", got)
	}
	want = strings.Join([]string{
		"conn 1 < page of stream 1 at 5 first last",
		"conn 1 < page of stream 2 at 5 first last",
		"conn 1 < process of stream 3: p exists=false at 5",
		"conn 1 < track of stream 4: t",
		"conn 1 < track of stream 5: t",
		"conn 1 < track of stream 6: u",
		"conn 2 < page of stream 1 at 5 first last",
		"conn 2 < process of stream 3: p exists=false at 5",
	}, "\n")
	got := h.did(h.pages)
	if h.d.Processes.Waiting()+h.d.Tracks.Waiting() != 0 {
		t.Error("streams still wait")
	}
	if got != want {
		t.Errorf("pages\n%s\nwant\n%s", got, want)
	}
}

// change delivers an entry that changes each kind of watched object in node 1.
func (h *hubsModel) change() {
	member := func(node uint64, name, text string) shard.ProcessChange {
		return shard.ProcessChange{Node: node, Name: []byte(name),
			ProcessChange: protocol.ProcessChange{Kind: protocol.ProcessJoined, Text: text}}
	}
	track := func(name string, e protocol.TrackEvent) shard.TrackChange {
		return shard.TrackChange{Node: 1, Name: []byte(name), TrackEvent: e}
	}
	h.d.Changed(h, 51, &shard.Events{
		SemaphoreChanges: []shard.SemaphoreChange{parseChange(nil, 1, "create s 3"), parseChange(nil, 2, "create other 4")},
		ProcessChanges: []shard.ProcessChange{
			member(1, "other", "x"), member(1, "p", "a"), member(1, "p", "b"), member(2, "other", "x")},
		TrackChanges: []shard.TrackChange{
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventPublished}),
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventTarget, Location: "SAS"}),
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventTarget, Location: "MAN"}),
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventWiden, Location: "SAS"}),
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventState, Location: "SAS", State: protocol.StateReady}),
			track("t", protocol.TrackEvent{Kind: protocol.TrackEventState, Location: "SAS", State: protocol.StateConverging}),
			track("u", protocol.TrackEvent{Kind: protocol.TrackEventTarget, Location: "MAN"}),
			{Node: 2, Name: []byte("t"), TrackEvent: protocol.TrackEvent{Kind: protocol.TrackEventTarget}},
		},
	})
}

// TestObjectChanges: each stream gets the changes of its own object that its filter selects, and
// none of another node's.
func TestObjectChanges(t *testing.T) {
	t.Parallel()
	h := newHubsModel(t)
	want := strings.Join([]string{
		`conn 1 < delta of node 1, "s", at 51: created limit=3 v1 ""`,
		"conn 1 < fired 7 of session 70: data=true owners=true",
		`conn 1 < process changes of stream 3 at 51, wall 1000: 1 "a", 1 "b"`,
		"conn 1 < track events of stream 4 at 51: 12 , 1 SAS, 1 MAN, 2 SAS, 3 SAS, 3 SAS",
		"conn 1 < track events of stream 5 at 51: 1 SAS, 2 SAS, 3 SAS",
		"conn 1 < track events of stream 6 at 51: 1 MAN",
	}, "\n")
	if got := h.did(h.change); got != want {
		t.Errorf("changes\n%s\nwant\n%s", got, want)
	}
}

// TestTrackFilter: what a stream over a track gets.
func TestTrackFilter(t *testing.T) {
	t.Parallel()
	events := []protocol.TrackEvent{
		{Kind: protocol.TrackEventPublished},
		{Kind: protocol.TrackEventTarget, Location: "SAS"},
		{Kind: protocol.TrackEventTarget, Location: "MAN"},
		{Kind: protocol.TrackEventWiden, Location: "SAS"},
		{Kind: protocol.TrackEventState, Location: "SAS", State: protocol.StateReady},
		{Kind: protocol.TrackEventState, Location: "SAS", State: protocol.StateConverging},
		{Kind: protocol.TrackEventJoined, Location: "SAS", State: protocol.StateReady},
	}
	for filter, want := range map[TrackFilter][]int{
		{}:                               {0, 1, 2, 3, 4, 5, 6},
		{Location: "SAS"}:                {0, 1, 3, 4, 5, 6},
		{Targets: true}:                  {1, 2, 3, 4},
		{Location: "SAS", Targets: true}: {1, 3, 4},
		{Location: "VLA"}:                {0},
	} {
		var got []int
		for i := range events {
			if filter.selects(&events[i]) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v selects %v, want %v", filter, got, want)
		}
	}
}

// TestObjectStreamFallsBehind: a stream whose connection refuses a change, or one frame of many,
// gets no more until it has had the state again.
func TestObjectStreamFallsBehind(t *testing.T) {
	t.Parallel()
	for taken := range 4 {
		h := newHubsModel(t)
		big := &shard.Events{}
		for i := range 4 {
			text := strings.Repeat(string(rune('a'+i)), maxDelta)
			big.ProcessChanges = append(big.ProcessChanges, shard.ProcessChange{Node: 1, Name: []byte("p"),
				ProcessChange: protocol.ProcessChange{Kind: protocol.ProcessJoined, Text: text}})
			big.TrackChanges = append(big.TrackChanges, shard.TrackChange{Node: 1, Name: []byte("u"),
				TrackEvent: protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Text: text}})
		}
		want := func(stream int) string {
			what := "process changes of stream 3 at 60, wall 1000: 1"
			if stream == 6 {
				what = "track events of stream 6 at 60: 11"
			}
			return "conn 1 < " + what
		}
		for _, stream := range []int{3, 6} {
			part := &shard.Events{ProcessChanges: big.ProcessChanges}
			if stream == 6 {
				part = &shard.Events{TrackChanges: big.TrackChanges}
			}
			c := h.conns[1]
			c.soft = len(c.queue) + taken
			got := h.did(func() { h.d.Changed(h, 60, part) })
			if strings.Count(got, want(stream)) != taken || strings.Count(got, "conn 1 takes no more") != 1 ||
				strings.Count(got, "conn 1 waits for pages") != 1 {
				t.Errorf("stream %d, of which %d frames are taken:\n%s", stream, taken, got)
			}
			c.soft = 0
			if got := h.did(func() { h.d.Changed(h, 61, part) }); got != "" {
				t.Errorf("stream %d, before its state:\n%s", stream, got)
			}
			h.pages()
			if got := h.did(func() { h.d.Changed(h, 60, part) }); strings.Count(got, want(stream)) != 4 {
				t.Errorf("stream %d, after its state:\n%s", stream, got)
			}
		}
	}
}

// TestObjectStreamBounds: what refuses a stream over an object.
func TestObjectStreamBounds(t *testing.T) {
	t.Parallel()
	h := newHubsModel(t)
	h.d = NewHubs(testShard, h, h, WatchOptions{Limits: WatchLimits{Streams: 3, Watchers: 4}})
	open := func(conn, id uint64, name string, maxWatchers uint64) error {
		return h.d.Tracks.Open(conn, id, 1, []byte(name), TrackFilter{Targets: id%2 == 0}, maxWatchers)
	}
	expect := func(what string, err error, status protocol.Status) {
		t.Helper()
		if protocol.StatusOf(err) != status {
			t.Errorf("%s: %v, want %v", what, err, status)
		}
	}
	expect("over the quota", open(1, 1, "t", 0), protocol.StatusOverloaded)
	expect("within the quota", open(1, 1, "t", 1), protocol.StatusOK)
	expect("over the quota again", open(1, 2, "t", 1), protocol.StatusOverloaded)
	expect("an id in use", open(1, 1, "u", noQuota), protocol.StatusBadRequest)
	expect("the second", open(1, 2, "t", noQuota), protocol.StatusOK)
	expect("the third", open(1, 3, "u", noQuota), protocol.StatusOK)
	expect("too many of the connection", open(1, 4, "u", noQuota), protocol.StatusOverloaded)
	expect("the third of the track", open(2, 1, "t", noQuota), protocol.StatusOK)
	expect("the fourth of the track", open(2, 2, "t", noQuota), protocol.StatusOK)
	expect("too many of the track", open(3, 1, "t", noQuota), protocol.StatusOverloaded)
	h.leading = false
	expect("on a follower", open(3, 1, "u", noQuota), protocol.StatusUnavailable)
	expect("a process on a follower", h.d.Processes.Open(3, 1, 1, []byte("p"), struct{}{}, noQuota), protocol.StatusOK)
	h.leading = true
	h.d.Tracks.closeStream(1, 9)
	h.d.Tracks.closeStream(1, 1)
	if n := h.d.Quota.Open(1); n != 5 || h.d.Tracks.Len() != 4 {
		t.Errorf("after one of six was closed %d are counted, %d of tracks", n, h.d.Tracks.Len())
	}
	expect("the place of a closed one", open(1, 1, "t", noQuota), protocol.StatusOK)
	for range 3 {
		h.d.Close()
	}
	expect("a closed shard", open(4, 1, "t", noQuota), protocol.StatusWrongShard)
	expect("a process of a closed shard", h.d.Processes.Open(4, 1, 1, []byte("p"), struct{}{}, noQuota), protocol.StatusWrongShard)
	expect("semaphores of a closed shard", h.d.Semaphores.Open(4, 1, &protocol.Watch{Shard: testShard, Node: 1, Prefix: true}, noQuota),
		protocol.StatusWrongShard)
	expect("a one-shot watch of a closed shard",
		h.d.Semaphores.OneShot(4, 70, 1, []byte("s"), protocol.WatchData, 1, noQuota), protocol.StatusWrongShard)
}

// TestStreamOfNothing: a stream over a process that no one has joined yet waits for it; one over
// what never can be is cut.
func TestStreamOfNothing(t *testing.T) {
	t.Parallel()
	h := newHubsModel(t)
	for _, err := range []error{
		h.d.Tracks.Open(2, 11, 1, []byte("none"), TrackFilter{}, noQuota),
		h.d.Processes.Open(2, 12, 99, []byte("p"), struct{}{}, noQuota),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := h.did(h.pages)
	for _, want := range []string{"conn 2 < stream 11 cut: not found", "conn 2 < stream 12 cut: "} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing of\n%s", want, got)
		}
	}
	if h.d.Tracks.Len() != 3 || h.d.Processes.Len() != 2 {
		t.Errorf("%d streams over tracks and %d over processes are left", h.d.Tracks.Len(), h.d.Processes.Len())
	}
}

// TestProcessPages: a stream over a process with more members than a page has gets all pages, in
// order, and then the changes.
func TestProcessPages(t *testing.T) {
	t.Parallel()
	h := newHubsModel(t)
	const members = 520
	data := []byte(strings.Repeat("x", protocol.MaxProcessData))
	for range members {
		a := h.startSession()
		h.begin()
		h.request(shard.CmdProcessJoin, &protocol.ProcessJoin{
			Head: protocol.Head{Session: a.id, Seq: 1, Low: 1}, Name: []byte("big"), Data: data})
		h.apply()
	}
	if err := h.d.Processes.Open(2, 9, 1, []byte("big"), struct{}{}, noQuota); err != nil {
		t.Fatal(err)
	}
	h.conns[2].queue = nil
	h.pages()
	seen, pages := make(map[uint64]bool), h.conns[2].queue
	for i, frame := range pages {
		head, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		var p protocol.ProcessState
		if err := protocol.DecodeBody(&p, head.Body); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Status.Members {
			seen[m.Member.Session] = true
		}
		if p.First != (i == 0) || p.Last != (i == len(pages)-1) || !p.Exists {
			t.Errorf("page %d of %d: first %v, last %v, exists %v", i, len(pages), p.First, p.Last, p.Exists)
		}
	}
	if len(pages) < 2 || len(seen) != members {
		t.Errorf("%d members in %d pages, want %d in several", len(seen), len(pages), members)
	}
}

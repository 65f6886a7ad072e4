package integration

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestPages: lists and descriptions come in pages that a frame holds, whatever is in them, and a
// walk over them gives everything once.
func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	const workload = 12
	var sessions []protocol.SessionReply
	for i := range uint64(workload) {
		sessions = append(sessions, c.session(node, i+1))
	}
	most := bytes.Repeat([]byte("x"), protocol.MaxDataLen)
	bucket := c.bucket(node, "q")
	acquire := func(r protocol.SessionReply, seq, count uint64, data []byte) {
		t.Helper()
		m := &protocol.Acquire{
			Head: protocol.Head{Session: r.Session, Seq: seq, Low: seq}, Name: []byte("q"), Count: count,
			Timeout: protocol.Forever, Data: data, Ephemeral: true,
		}
		c.must(protocol.KindAcquire, bucket, m, &protocol.AcquireReply{})
	}
	// Two owners and ten waiters: large and small ones, and data of the semaphore's own.
	acquire(sessions[0], 1, 1, most)
	acquire(sessions[1], 1, 1, []byte("small"))
	for i, r := range sessions[2:] {
		acquire(r, 1, protocol.Forever, most[:i%3*400<<10])
	}
	c.must(protocol.KindUpdate, bucket, &protocol.Update{Head: protocol.Head{Session: sessions[0].Session, Seq: 2,
		Low: 2}, Name: []byte("q"), Data: most}, nil)

	for _, limit := range []uint32{0, 1, 5} {
		m := &protocol.Describe{Node: node, Name: []byte("q"), Flags: protocol.WithOwners | protocol.WithWaiters, Limit: limit}
		var order []uint64
		owners, data, pages := 0, 0, 0
		for more := true; more; more = len(m.Cursor) > 0 {
			var d protocol.DescribeReply
			c.must(protocol.KindDescribe, bucket, m, &d)
			if d.NumOwners != 2 || d.NumWaiters != workload-2 || d.Version != 2 || d.Used != 2 {
				t.Fatalf("page %d: %d owners, %d waiters, version %d, used %d", pages, d.NumOwners, d.NumWaiters, d.Version, d.Used)
			}
			if limit != 0 && len(d.Owners)+len(d.Waiters) > int(limit) {
				t.Errorf("%d entries in a page of %d", len(d.Owners)+len(d.Waiters), limit)
			}
			for _, o := range d.Owners {
				order = append(order, o.OrderID)
				owners++
			}
			for _, w := range d.Waiters {
				order = append(order, w.OrderID)
			}
			data += len(d.Data)
			m.Cursor = d.Cursor
			if pages++; pages > 100 {
				t.Fatal("a walk without an end")
			}
		}
		if owners != 2 || len(order) != workload || !slices.IsSorted(order) ||
			len(slices.Compact(order)) != workload || data != len(most) || pages < 4 {
			t.Errorf("limit %d: %d owners, order %v, %d bytes of data, %d pages", limit, owners, order, data, pages)
		}
	}
	for _, cursor := range []string{"x", "\x09\x00\x00\x00\x00\x00\x00\x00\x00"} {
		c.fails(protocol.StatusBadRequest, protocol.KindDescribe, bucket,
			&protocol.Describe{Node: node, Name: []byte("q"), Cursor: []byte(cursor)})
	}

	// Lists, a page of one at a time.
	seq := uint64(10)
	for i := range 10 {
		seq++
		name := fmt.Sprintf("list/%d", i)
		c.must(protocol.KindCreate, c.bucket(node,
			name), &protocol.Create{Head: protocol.Head{Session: sessions[0].Session, Seq: seq, Low: seq},
			Name: []byte(name), Limit: 1}, nil)
	}
	names, ids := 0, make(map[uint64]bool)
	for _, id := range s.shardIDs() {
		at := c.bucket(node, c.nameIn(node, id, ""))
		list := &protocol.List{Shard: id, Node: node, Prefix: []byte("list/"), Limit: 1}
		last := ""
		for more := true; more; more = len(list.Cursor) > 0 {
			var page protocol.ListReply
			c.must(protocol.KindList, at, list, &page)
			for _, x := range page.Semaphores {
				if string(x.Name) <= last || len(page.Semaphores) > 1 {
					t.Errorf("%q after %q, in a page of %d", x.Name, last, len(page.Semaphores))
				}
				last = string(x.Name)
				names++
			}
			list.Cursor = page.Cursor
		}
		all := &protocol.SessionList{Shard: id, Node: node, Limit: 1}
		for more := true; more; more = len(all.Cursor) > 0 {
			var page protocol.SessionListReply
			c.must(protocol.KindSessionList, at, all, &page)
			for _, x := range page.Sessions {
				ids[x.Session] = true
			}
			all.Cursor = page.Cursor
		}
	}
	if names != 10 || len(ids) != workload {
		t.Errorf("%d names, %d sessions", names, len(ids))
	}
}

// TestTimeoutZero: such a session ends with its connection, in all shards, and needs no time for
// it.
func TestTimeoutZero(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c, other := connect(t, s), connect(t, s)
	node := c.node()
	m := &protocol.SessionStart{Node: node, CreateID: id16(1), Key: id16(1), Nonce: 1}
	var r protocol.SessionReply
	c.must(protocol.KindSessionStart, c.homeBucket(m.CreateID), m, &r)
	waiter := other.session(node, 2)
	var names []string
	for _, id := range s.shardIDs() {
		name := c.nameIn(node, id, "")
		names = append(names, name)
		if a, err := c.lock(node, r.Session, name, 0); err != nil || a.State != protocol.Acquired {
			t.Fatalf("%+v, %v", a, err)
		}
		if a, err := other.lock(node, waiter.Session, name, protocol.Forever); err != nil ||
			a.State != protocol.Queued {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	_ = c.nc.Close()
	for range names {
		var result protocol.AcquireResult
		other.event(protocol.KindAcquireResult, &result)
		if result.Status != protocol.StatusOK || result.State != protocol.Acquired {
			t.Fatalf("%+v", result)
		}
	}
	err := other.call(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionDescribe{Session: r.Session, Node: node}, nil)
	if !errors.Is(err, protocol.StatusSessionExpired) {
		t.Fatal(err)
	}
}

package shard

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Nodes reads coordination nodes.
type Nodes struct{ reader }

// IDs are the ids of the nodes that are known here and not dropped, in order of id.
func (r Nodes) IDs() []uint64 { return slices.Sorted(maps.Keys(r.m.nodes)) }

// Config is that of a node which is known here and was not dropped.
func (r Nodes) Config(id uint64) (protocol.NodeConfig, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return protocol.NodeConfig{}, false
	}
	return n.config, true
}

// Usage is a node's use of its quotas in this shard, by Quota.
type Usage struct {
	Used  [quotas]uint64
	Limit [quotas]uint64 // what of the quota this shard admits
}

// Usage of a node that is known here and was not dropped.
func (r Nodes) Usage(id uint64) (Usage, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return Usage{}, false
	}
	c := &n.config
	return Usage{
		Used: [quotas]uint64{QuotaSessions: uint64(n.homeSessions.Len()), QuotaSemaphores: n.objectCount(),
			QuotaBytes: n.bytes, QuotaWaiters: n.waiters},
		Limit: [quotas]uint64{
			QuotaSessions: r.m.quotaShare(c.MaxSessions), QuotaSemaphores: r.m.quotaShare(c.MaxSemaphores),
			QuotaBytes:   r.m.quotaShareOf(c.MaxBytes, quotaValueBytes),
			QuotaWaiters: r.m.quotaShare(c.MaxWaiters),
		},
	}, true
}

// Contents counts a node's objects in this shard. Copies that come and go with buckets count too;
// deleted rate limits that are still remembered do not.
type Contents struct {
	Sessions, Semaphores, Owners, Waiters, Processes, Tracks, Limits uint64
}

// Contents of a node that is known here and was not dropped.
func (r Nodes) Contents(id uint64) (Contents, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return Contents{}, false
	}
	limits := uint64(0)
	n.objects[kindLimit].All(func(x *hostedObject) bool {
		if !limitOf(x).Deleted() {
			limits++
		}
		return true
	})
	return Contents{
		Sessions: uint64(n.homeSessions.Len()), Semaphores: uint64(n.semaphoreCount),
		Owners: n.entries - n.waiters, Waiters: n.waiters,
		Processes: uint64(n.objects[kindProcess].Len()), Tracks: uint64(n.objects[kindTrack].Len()),
		Limits: limits,
	}, true
}

// MaxWatchers is what this shard admits of the node's quota of watchers; 0 for a node that is not
// known here. The holder of the watches counts them.
func (r Nodes) MaxWatchers(node uint64) uint64 {
	n := r.m.nodes[node]
	if n == nil {
		return 0
	}
	return r.m.quotaShare(n.config.MaxWatchers)
}

// Bounds of a page. A page may be larger by one semaphore's data or one entry, so that a walk
// always gets on; it fits in a frame.
const (
	PageBytes  = 256 << 10
	MaxEntries = 10_000 // even if the request asks for more
)

// PageEntries is the bound where the request leaves it to the server. A server never changes it;
// tests of lists do, before they start one.
var PageEntries = 1_000

// page counts what went into a page.
type page struct {
	entries, bytes       int
	maxEntries, maxBytes int
}

func newPage(limit uint32, maxBytes int) page {
	p := page{maxEntries: int(min(limit, MaxEntries)), maxBytes: maxBytes}
	if limit == 0 {
		p.maxEntries = PageEntries
	}
	if maxBytes <= 0 {
		p.maxBytes = PageBytes
	}
	return p
}

// takes reports whether another entry of this size goes into the page, and counts it.
func (p *page) takes(size int) bool {
	if p.entries >= p.maxEntries || p.bytes > 0 && p.bytes+size > p.maxBytes {
		return false
	}
	p.entries++
	p.bytes += size
	return true
}

func badCursor() error {
	return &protocol.Error{Status: protocol.StatusBadRequest,
		Message: "cursor was not made by this server; start again without one"}
}

// listing is a page of names in their order, under a prefix.
type listing struct {
	prefix, from, last []byte
	page               page
}

// newListing begins behind the cursor, which is the last name of the page before. Errors:
// BAD_REQUEST.
func newListing(prefix, cursor []byte, limit uint32) (listing, error) {
	if len(cursor) > protocol.MaxNameLen {
		return listing{}, badCursor()
	}
	from := prefix
	if len(cursor) > 0 && bytes.Compare(cursor, from) >= 0 {
		from = append(bytes.Clone(cursor), 0) // the first name behind it
	}
	return listing{prefix: prefix, from: from, page: newPage(limit, PageBytes)}, nil
}

// look reports whether the next name in order goes into the page, with so many bytes beside it, and
// whether to look further. Another shard lists the names in buckets that are not active here. When
// the page is full the cursor is set.
func (l *listing) look(name []byte, b *bucket, size int, cursor *[]byte) (take, more bool) {
	switch {
	case !bytes.HasPrefix(name, l.prefix):
		return false, false
	case b.state != bucketActive:
		return false, true
	case !l.page.takes(size + len(name)):
		*cursor = l.last
		return false, false
	}
	l.last = name
	return true, true
}

package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Bounds of a page. A page may be larger by one semaphore's data or one entry, so that a walk
// always gets on; it fits in a frame.
const (
	PageBytes  = 256 << 10
	MaxEntries = 10_000 // even if the request asks for more
)

// PageEntries is the bound where the request leaves it to the server. A server never changes it; tests of
// lists do, before they start one.
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

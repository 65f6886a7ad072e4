package session

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard"
)

// A shard that is not a session's home does not know what the session is called until it has asked
// the home, which takes it a moment, and watches show an entry as it was made. So the listener adds
// the description to a session's first acquire in a shard, and again when the shard may have
// forgotten it.

// describedShards are the shards that have been told what a session is called since a moment. A
// session of a busy client asks all shards in turn, so there is one for each session and a bit for
// each shard: the look-up reads little memory, and the collector nothing.
type describedShards struct {
	since time.Duration
	shard []uint64 // a bit for each shard id
}

// describeAgainAfter is well below the time after which a shard forgets a session that has nothing
// there.
const describeAgainAfter = shard.Retention / 2 * time.Millisecond

// maxDescribedShard bounds the bits. A shard of a higher number is told each time.
const maxDescribedShard = 1 << 14

// DescriptionFor is the description to add to an acquire at a shard, empty when the shard knows it.
func (b *Binding) DescriptionFor(d Home, now time.Duration) string {
	if d == b.home {
		return ""
	}
	if x := b.described; x != nil && now-x.since < describeAgainAfter {
		if id := d.ID(); id/64 < uint64(len(x.shard)) && x.shard[id/64]>>(id%64)&1 != 0 {
			return ""
		}
	}
	return b.description
}

// MarkDescribed notes that the shard has taken it. Should the log not take it after all, the
// shard's question to the home makes good for it.
func (b *Binding) MarkDescribed(d Home, now time.Duration) {
	id := d.ID()
	if id > maxDescribedShard {
		return
	}
	if b.described == nil {
		b.described = &describedShards{since: now}
	}
	x := b.described
	if now-x.since >= describeAgainAfter {
		clear(x.shard)
		x.since = now
	}
	if n := int(id/64) + 1; n > len(x.shard) {
		x.shard = append(x.shard, make([]uint64, n-len(x.shard))...)
	}
	x.shard[id/64] |= 1 << (id % 64)
}

package session

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard"
)

// A shard that is not a session's home does not know what the session is called until it has asked
// the home, which takes it a moment, and watches show an entry as it was made. So the listener adds
// the description to a session's first acquire in a shard, and again when the shard may have
// forgotten it.

// describedShard says when a shard was last told what a session is called.
type describedShard struct {
	home Home
	at   time.Duration
}

// describeAgainAfter is well below the time after which a shard forgets a session that has nothing
// there.
const describeAgainAfter = shard.Retention / 2 * time.Millisecond

// DescriptionFor is the description to add to an acquire at a shard, empty when the shard knows it.
func (b *Binding) DescriptionFor(d Home, now time.Duration) string {
	if d == b.home {
		return ""
	}
	if b.describedTo != nil {
		for _, x := range *b.describedTo {
			if x.home == d && now-x.at < describeAgainAfter {
				return ""
			}
		}
	}
	return b.description
}

// MarkDescribed notes that the shard has taken it. Should the log not take it after all, the
// shard's question to the home makes good for it.
func (b *Binding) MarkDescribed(d Home, now time.Duration) {
	if b.describedTo == nil {
		b.describedTo = new([]describedShard)
	}
	list := *b.describedTo
	for i := range list {
		if list[i].home == d {
			list[i].at = now
			return
		}
	}
	*b.describedTo = append(list, describedShard{d, now})
}

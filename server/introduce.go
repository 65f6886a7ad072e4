package server

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard"
)

// A shard that is not a session's home does not know what the session is called until it has asked the home, which takes it a moment, and watches show an entry as
// it was made. So the door adds the description to a session's first acquire in a shard, and again when the shard may have forgotten it.

// introduction says when a shard was last told what a session is called.
type introduction struct {
	desk *desk
	at   time.Duration
}

// introduceAgain is well below the time after which a shard forgets a session that has nothing there.
const introduceAgain = shard.Retention / 2 * time.Millisecond

// introduction is the description to add to an acquire at a shard, empty when the shard knows it.
func (b *binding) introduction(d *desk, now time.Duration) string {
	if d == b.home {
		return ""
	}
	if b.introduced != nil {
		for _, x := range *b.introduced {
			if x.desk == d && now-x.at < introduceAgain {
				return ""
			}
		}
	}
	return b.description
}

// introduce notes that the shard has taken it. Should the log not take it after all, the shard's question to the home makes good for it.
func (b *binding) introduce(d *desk, now time.Duration) {
	if b.introduced == nil {
		b.introduced = new([]introduction)
	}
	list := *b.introduced
	for i := range list {
		if list[i].desk == d {
			list[i].at = now
			return
		}
	}
	*b.introduced = append(list, introduction{d, now})
}

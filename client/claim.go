package client

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// claim is which buckets a shard served, by the last snapshot it told to a watch of a prefix. Of the names in other buckets the shard knows nothing: they may be in
// another shard, whose stream tells of them, or on their way to it. It is never changed once made.
type claim struct {
	ends   []uint32 // of each run: the first bucket behind it
	epochs []uint64 // 0: not served
}

// newClaim is nil where a server says nothing of buckets: the shard then speaks for all that it has told.
func newClaim(runs []protocol.SnapshotRun) *claim {
	c, end := new(claim), uint32(0)
	for _, r := range runs {
		if r.Count == 0 || r.Count > 1<<16-end {
			return nil
		}
		end += r.Count
		c.add(end, r.Epoch)
	}
	if end == 0 {
		return nil
	}
	return c
}

// add puts a run behind the others; neighbours with one epoch are one run.
func (c *claim) add(end uint32, epoch uint64) {
	if n := len(c.ends); n > 0 && c.epochs[n-1] == epoch {
		c.ends[n-1] = end
		return
	}
	c.ends, c.epochs = append(c.ends, end), append(c.epochs, epoch)
}

// buckets is how many the tier has.
func (c *claim) buckets() uint32 { return c.ends[len(c.ends)-1] }

// epoch is the epoch under which a bucket was served; 0: it was not.
func (c *claim) epoch(bucket uint32) uint64 {
	i, exact := slices.BinarySearch(c.ends, bucket)
	if exact {
		i++
	}
	if i >= len(c.epochs) {
		return 0
	}
	return c.epochs[i]
}

// newer is, of each bucket, the higher one of two epochs. Either may be nil; of two that do not agree on how many buckets there are it is the first.
func (c *claim) newer(o *claim) *claim {
	switch {
	case c == nil:
		return o
	case o == nil || c.buckets() != o.buckets():
		return c
	}
	sum := new(claim)
	for i, k := 0, 0; i < len(c.ends) && k < len(o.ends); {
		end, epoch := min(c.ends[i], o.ends[k]), max(c.epochs[i], o.epochs[k])
		sum.add(end, epoch)
		if c.ends[i] == end {
			i++
		}
		if o.ends[k] == end {
			k++
		}
	}
	return sum
}

// take makes a claim the part's. mu is held.
func (p *part) take(c *claim) {
	p.claim = c
	p.w.newest = p.w.newest.newer(c)
}

// speaks says whether what a part tells of a name is the newest there is: its shard serves the name's bucket, and no shard has told that it served it under a newer
// epoch. Streams of shards come over different connections, so what a bucket's former owner says may arrive behind what the new one says. mu is held.
func (w *watch) speaks(p *part, name string) bool {
	if p.claim == nil {
		return true
	}
	b := protocol.Bucket(w.n.id, []byte(name), p.claim.buckets())
	own := p.claim.epoch(b)
	return own > 0 && own >= w.newest.epoch(b)
}

// complete says that of every bucket the newest owner's snapshot was told. While some move it is not. mu is held.
func (w *watch) complete() bool {
	var served *claim
	for _, p := range w.parts {
		if p.claim == nil {
			return true // nothing is said of buckets
		}
		served = served.newer(p.claim)
	}
	return served == nil || slices.Equal(served.epochs, w.newest.epochs) && slices.Equal(served.ends, w.newest.ends) && !slices.Contains(served.epochs, 0)
}

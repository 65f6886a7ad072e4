package client

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// bucketEpochs says which buckets a shard served, and under which epochs, by the last snapshot that
// it sent to a watch of a prefix, or by a page of a list. The shard knows nothing of names in other
// buckets: they may be in another shard, or moving there. It is never changed once made.
type bucketEpochs struct {
	ends   []uint32 // of each run: the first bucket behind it
	epochs []uint64 // 0: not served
}

// newBucketEpochs is nil where a server says nothing of buckets: the shard then speaks for all that
// it has told.
func newBucketEpochs(runs []protocol.BucketRun) *bucketEpochs {
	c, end := new(bucketEpochs), uint32(0)
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
func (c *bucketEpochs) add(end uint32, epoch uint64) {
	if n := len(c.ends); n > 0 && c.epochs[n-1] == epoch {
		c.ends[n-1] = end
		return
	}
	c.ends, c.epochs = append(c.ends, end), append(c.epochs, epoch)
}

// equal says that both say the same. Either may be nil.
func (c *bucketEpochs) equal(o *bucketEpochs) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(c.epochs, o.epochs) && slices.Equal(c.ends, o.ends)
}

func (c *bucketEpochs) buckets() uint32 { return c.ends[len(c.ends)-1] }

// epoch is the epoch under which a bucket was served; 0: it was not.
func (c *bucketEpochs) epoch(bucket uint32) uint64 {
	i, exact := slices.BinarySearch(c.ends, bucket)
	if exact {
		i++
	}
	if i >= len(c.epochs) {
		return 0
	}
	return c.epochs[i]
}

// newer is, of each bucket, the higher one of two epochs. Either may be nil; of two that do not
// agree on how many buckets there are it is the first.
func (c *bucketEpochs) newer(o *bucketEpochs) *bucketEpochs {
	switch {
	case c == nil:
		return o
	case o == nil || c.buckets() != o.buckets():
		return c
	}
	sum := new(bucketEpochs)
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

// setEpochs sets what the shard serves. mu is held.
func (p *shardWatch) setEpochs(c *bucketEpochs) {
	p.epochs = c
	p.w.newestEpochs = p.w.newestEpochs.newer(c)
}

// isNewest says whether what a shard sends about a name is the newest: the shard serves the name's
// bucket, and no shard has served it under a newer epoch. Streams of shards come over different
// connections, so updates of a former owner may arrive late. mu is held.
func (w *watch) isNewest(p *shardWatch, name string) bool {
	if p.epochs == nil {
		return true
	}
	b := protocol.Bucket(w.n.id, []byte(name), p.epochs.buckets())
	own := p.epochs.epoch(b)
	return own > 0 && own >= w.newestEpochs.epoch(b)
}

// isComplete says that the newest owner of every bucket has sent its snapshot. It has not while
// some move. mu is held.
func (w *watch) isComplete() bool {
	var served *bucketEpochs
	for _, p := range w.shardWatches {
		if p.epochs == nil {
			return true // nothing is said of buckets
		}
		served = served.newer(p.epochs)
	}
	return served == nil || served.equal(w.newestEpochs) && !slices.Contains(served.epochs, 0)
}

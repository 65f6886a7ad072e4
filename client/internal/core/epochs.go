package core

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// BucketEpochs says which buckets a shard served, and under which epochs, by the last snapshot that
// it sent to a watch of a prefix, or by a page of a list. The shard knows nothing of names in other
// buckets: they may be in another shard, or moving there. It is never changed once made.
type BucketEpochs struct {
	ends   []uint32 // of each run: the first bucket behind it
	epochs []uint64 // 0: not served
}

// NewBucketEpochs is nil where a server says nothing of buckets: the shard then speaks for all that
// it has told.
func NewBucketEpochs(runs []protocol.BucketRun) *BucketEpochs {
	b, end := new(BucketEpochs), uint32(0)
	for _, r := range runs {
		if r.Count == 0 || r.Count > 1<<16-end {
			return nil
		}
		end += r.Count
		b.add(end, r.Epoch)
	}
	if end == 0 {
		return nil
	}
	return b
}

// add puts a run behind the others; neighbours with one epoch are one run.
func (b *BucketEpochs) add(end uint32, epoch uint64) {
	if n := len(b.ends); n > 0 && b.epochs[n-1] == epoch {
		b.ends[n-1] = end
		return
	}
	b.ends, b.epochs = append(b.ends, end), append(b.epochs, epoch)
}

// Equal reports whether both say the same. Either may be nil.
func (b *BucketEpochs) Equal(o *BucketEpochs) bool {
	if b == nil || o == nil {
		return b == o
	}
	return slices.Equal(b.epochs, o.epochs) && slices.Equal(b.ends, o.ends)
}

func (b *BucketEpochs) buckets() uint32 { return b.ends[len(b.ends)-1] }

// epoch is the epoch under which a bucket was served; 0: it was not.
func (b *BucketEpochs) epoch(bucket uint32) uint64 {
	i, exact := slices.BinarySearch(b.ends, bucket)
	if exact {
		i++
	}
	if i >= len(b.epochs) {
		return 0
	}
	return b.epochs[i]
}

// Newer is, of each bucket, the higher one of two epochs. Either may be nil; of two that do not
// agree on how many buckets there are it is the first.
func (b *BucketEpochs) Newer(o *BucketEpochs) *BucketEpochs {
	switch {
	case b == nil:
		return o
	case o == nil || b.buckets() != o.buckets():
		return b
	}
	sum := new(BucketEpochs)
	for i, k := 0, 0; i < len(b.ends) && k < len(o.ends); {
		end, epoch := min(b.ends[i], o.ends[k]), max(b.epochs[i], o.epochs[k])
		sum.add(end, epoch)
		if b.ends[i] == end {
			i++
		}
		if o.ends[k] == end {
			k++
		}
	}
	return sum
}

// Complete reports whether every bucket is served.
func (b *BucketEpochs) Complete() bool { return !slices.Contains(b.epochs, 0) }

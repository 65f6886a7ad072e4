package handle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ListPage is a page of a shard's list.
type ListPage[T any] struct {
	Items []T
	Next  []byte               // cursor of the next page; empty: there is none
	Runs  []protocol.BucketRun // which buckets it is about
}

// shardList reads the list of a shard page by page.
type shardList[T any] struct {
	shard  uint64
	cursor []byte             // of the next page
	over   bool               // there is none
	served *core.BucketEpochs // what the pages are about
	items  []T                // that were read and not taken
}

// fill reads until there is an item, or the list is over.
func (l *shardList[T]) fill(read func(shard uint64, cursor []byte) (ListPage[T], error)) error {
	for len(l.items) == 0 && !l.over {
		p, err := read(l.shard, l.cursor)
		if err != nil {
			return err
		}
		served := core.NewBucketEpochs(p.Runs)
		if l.served != nil && !l.served.Equal(served) {
			return errBucketsMoved
		}
		l.served, l.items, l.cursor, l.over = served, p.Items, p.Next, len(p.Next) == 0
	}
	return nil
}

var (
	// errBucketsMoved: pages of a shard are about different buckets, so that a name whose bucket
	// moved may be in none, or a bucket is in no page at all.
	errBucketsMoved = errors.New("buckets move between shards")
)

// ListLimits bound a list.
type ListLimits struct {
	First []byte // the cursor behind which it begins
	Most  int    // items; 0: all
	Err   error  // what is wrong with them; nil: nothing
}

// ListShards yields what every shard of the node lists, in order of key, which is also the cursor
// behind the item. page reads a page of a shard's list from a cursor on. Every shard begins behind
// the cursor first. When shards have come or gone, or buckets have moved, the shards are listed
// again behind what was yielded. So what is there all the time is yielded once. The sequence ends
// after its first error, which names what is listed.
func ListShards[T any](
	ctx context.Context, n Node, op, name string, limits ListLimits, key func(*T) string,
	page func(shard uint64, cursor []byte) (ListPage[T], error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if limits.Err != nil {
			var none T
			yield(none, driver.WithOp(op, name, limits.Err))
			return
		}
		failures := 0
		m := listMerge[T]{key: key, page: page, shards: func() ([]uint64, error) { return n.Shards(ctx) },
			first: limits.First, most: limits.Most}
		for {
			yielded := m.yielded
			err := m.run(func(item T) bool { return yield(item, nil) })
			if m.yielded > yielded {
				failures = 0
			}
			switch {
			case errors.Is(err, core.ErrShardsChanged):
			case errors.Is(err, errBucketsMoved):
				if err = n.awaitMove(ctx, failures); err == nil {
					failures++
					continue
				}
				fallthrough
			case err != nil:
				var none T
				yield(none, driver.WithOp(op, name, err))
				return
			default:
				return
			}
		}
	}
}

// awaitMove waits a moment for a bucket that no listed shard serves: the map may be old, or the
// bucket is on its way. See R24.
func (n Node) awaitMove(ctx context.Context, failures int) error {
	err := driver.Err(n.Driver.AwaitMap(ctx, &core.MapWait{Any: true, Refresh: true, Tries: failures}))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (last: %w)", err, errBucketsMoved)
	}
	return err
}

type listMerge[T any] struct {
	key     func(*T) string
	page    func(shard uint64, cursor []byte) (ListPage[T], error)
	shards  func() ([]uint64, error)
	first   []byte // the cursor where all begin
	most    int    // how many items; 0: all
	yielded int
}

// run lists once, until it is done, or yield is false, or an error. After core.ErrShardsChanged and
// errBucketsMoved it can run again.
func (m *listMerge[T]) run(yield func(T) bool) error {
	shards, err := m.shards()
	if err != nil {
		return err
	}
	read := func(shard uint64, cursor []byte) (ListPage[T], error) {
		if now, err := m.shards(); err != nil || !slices.Equal(now, shards) {
			return ListPage[T]{}, cmp.Or(err, core.ErrShardsChanged)
		}
		return m.page(shard, cursor)
	}
	lists := make([]shardList[T], len(shards))
	for i, shard := range shards {
		lists[i] = shardList[T]{shard: shard, cursor: m.first}
	}
	last := string(m.first)
	for whole := false; m.most == 0 || m.yielded < m.most; whole = true {
		var least *shardList[T]
		for i := range lists {
			l := &lists[i]
			for err = l.fill(read); err == nil && whole && len(l.items) > 0; err = l.fill(read) {
				if m.key(&l.items[0]) > last {
					break
				}
				l.items = l.items[1:] // two shards had it, one after the other
			}
			if err != nil {
				return err
			}
			if len(l.items) > 0 && (least == nil || m.key(&l.items[0]) < m.key(&least.items[0])) {
				least = l
			}
		}
		if !whole && !serveAll(lists) {
			return errBucketsMoved
		}
		if least == nil {
			return nil
		}
		item := least.items[0]
		last = m.key(&item)
		least.items, m.first, m.yielded = least.items[1:], []byte(last), m.yielded+1
		if !yield(item) {
			return nil
		}
	}
	return nil
}

// serveAll reports whether the lists together are about every bucket. Servers that do not know of
// buckets in lists are believed.
func serveAll[T any](lists []shardList[T]) bool {
	var all *core.BucketEpochs
	for i := range lists {
		if lists[i].served == nil {
			return true
		}
		all = all.Newer(lists[i].served)
	}
	return all == nil || all.Complete()
}

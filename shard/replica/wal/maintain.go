package wal

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	quiet      = 100 * time.Millisecond // after a write, until the maintenance runs
	moveList   = 1 << 20                // looked for at once, of live records
	moveChunk  = 64 << 10               // moved at once
	movePause  = 10 * time.Millisecond  // between two of them
	minFree    = 4                      // segments beside twice the live ones, before live ones are moved
	sparseRate = 4                      // a segment is sparse if less than one in sparseRate bytes is live
)

// maintain does the work that no caller should wait for. It sleeps while nothing is written.
func (l *Log) maintain() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-l.stopC:
			return
		case <-l.wakeC:
		}
		t.Reset(quiet)
		select {
		case <-l.stopC:
			return
		case <-t.C:
		}
		l.woken.Store(false)
		if err := l.work(); err != nil {
			l.log.Warn("log maintenance stopped", "err", err)
			if l.cfg.Failed != nil {
				l.cfg.Failed(fmt.Errorf("maintain the log: %w", err))
			}
			return
		}
	}
}

func (l *Log) work() error {
	// The newest frame cannot say that it was synced itself. One more frame says so: then damage to
	// it differs from a write that was never acknowledged.
	claim := op{check: func() bool { return l.unclaimed }, sync: true}
	if err := l.commit(&claim); err != nil {
		return err
	}
	if !l.changed.Swap(false) {
		return nil
	}
	if err := l.clean(); err != nil {
		return err
	}
	l.prepareSpare()
	return l.closeOld()
}

// clean drops the oldest segments that are not needed any more. Live records in a sparse one are
// moved to the newest, and those in any if the log is much longer than its live records.
func (l *Log) clean() error {
	for {
		l.ix.RLock()
		var oldest *segment
		sealed := len(l.segments) - 1
		if sealed > 0 {
			oldest = l.segments[0]
		}
		live := l.live
		l.ix.RUnlock()
		if oldest == nil {
			return nil
		}
		inOldest, _ := l.liveIn(oldest.number, 0)
		if inOldest > l.cfg.Segment/sparseRate && int64(sealed)*l.cfg.Segment <= 2*live+minFree*l.cfg.Segment {
			return nil
		}
		for {
			_, list := l.liveIn(oldest.number, moveList)
			if len(list) == 0 {
				break
			}
			for len(list) > 0 {
				var some []item
				some, list = cutList(list, moveChunk)
				o, err := l.move(oldest, some)
				if err == nil {
					err = l.commit(o)
				}
				if err != nil {
					return err
				}
				if !l.pause(l.movePause) {
					return nil
				}
			}
		}
		// Everything that was moved is synced, and so is that the segment is not needed.
		drop := op{first: oldest.number + 1, sync: true}
		if err := l.commit(&drop); err != nil {
			return err
		}
		l.ix.Lock()
		l.segments = l.segments[1:]
		l.ix.Unlock()
		if err := l.dispose(oldest); err != nil {
			return err
		}
	}
}

// pause waits; false: the log is being closed.
func (l *Log) pause(d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.stopC:
		return false
	case <-t.C:
		return true
	}
}

// item is a live record in a segment, or a live entry.
type item struct {
	key   key
	kind  kind
	index uint64 // of an entry
	at    position
	size  uint32
}

// cutList splits a list behind the item with which it reaches a length.
func cutList(list []item, length int64) (head, rest []item) {
	n := 0
	for ; n < len(list) && length > 0; n++ {
		length -= list[n].length()
	}
	return list[:n], list[n:]
}

func (i item) length() int64 { return int64(i.size) + entryHead }

// liveIn returns the length of the live records in a segment, and a list of some of them, up to
// limit bytes; 0: only the length of all. Nothing becomes live in a segment that is not the newest.
func (l *Log) liveIn(number uint32, limit int64) (length int64, list []item) {
	l.ix.RLock()
	keys := slices.Collect(maps.Keys(l.replicas))
	l.ix.RUnlock()
	for _, k := range keys { // one at a time: the writer waits meanwhile
		l.ix.RLock()
		l.replicaOf(k).inSegment(k, number, func(i item) bool {
			length += i.length()
			if limit > 0 {
				list = append(list, i)
			}
			return limit == 0 || length < limit
		})
		l.ix.RUnlock()
		if limit > 0 && length >= limit {
			break
		}
	}
	return length, list
}

// inSegment calls f with the live records in a segment, until f returns false.
func (p *replica) inSegment(k key, number uint32, f func(item) bool) {
	for _, i := range [...]item{
		{k, stateRecord, 0, p.stateAt, 0},
		{k, snapshotRecord, 0, p.snapshotAt, uint32(len(p.snapshot))},
		{k, bootstrapRecord, 0, p.bootstrapAt, uint32(len(p.bootstrap))},
	} {
		if i.at.segment() == number && !f(i) {
			return
		}
	}
	p.entries.inSegment(number, func(i uint64, at position, size uint32) bool {
		return f(item{k, movedRecord, i, at, size})
	})
}

// move returns an op that writes live records of a segment again. If one of them changes until it
// is written, nothing is.
func (l *Log) move(from *segment, list []item) (*op, error) {
	l.ix.RLock()
	list = slices.DeleteFunc(list, func(i item) bool { return l.replicaOf(i.key).where(i) != i.at })
	l.ix.RUnlock()
	o := op{sync: true}
	for n := 0; n < len(list); n++ {
		i := list[n]
		if i.kind != movedRecord {
			o.records = l.appendRecord(o.records, i)
			continue
		}
		run := list[n:]
		for m := range run {
			if run[m].kind != movedRecord || run[m].key != i.key || run[m].index != i.index+uint64(m) {
				run = run[:m]
				break
			}
		}
		o.records = appendEntriesHead(o.records, movedRecord, i.key, i.index, len(run))
		for _, e := range run {
			head := len(o.records)
			o.records = append(o.records, make([]byte, entryHead+int(e.size))...)
			// Only this goroutine closes the file.
			if _, err := l.readAt(from, o.records[head:], e.at.offset()); err != nil {
				return nil, fmt.Errorf("read the log: %w", err)
			}
			if _, ok := entryBody(o.records, int64(head), e.size); !ok {
				return nil, l.damaged(e.at, fmt.Sprintf("entry %d is not what was written", e.index))
			}
		}
		n += len(run) - 1
	}
	o.check = func() bool {
		l.ix.RLock()
		defer l.ix.RUnlock()
		for _, i := range list {
			if l.replicaOf(i.key).where(i) != i.at {
				return false
			}
		}
		return len(list) > 0
	}
	return &o, nil
}

// appendRecord encodes a live record again.
func (l *Log) appendRecord(b []byte, i item) []byte {
	l.ix.RLock()
	defer l.ix.RUnlock()
	p := l.replicaOf(i.key)
	switch i.kind {
	case stateRecord:
		return appendState(b, i.key, p.state)
	case snapshotRecord:
		return appendDocument(b, snapshotRecord, i.key, p.snapshotIndex, p.snapshotTerm, p.snapshot)
	}
	return appendDocument(b, bootstrapRecord, i.key, 0, 0, p.bootstrap)
}

// where is the present position of an item.
func (p *replica) where(i item) position {
	switch i.kind {
	case stateRecord:
		return p.stateAt
	case snapshotRecord:
		return p.snapshotAt
	case bootstrapRecord:
		return p.bootstrapAt
	}
	at, _ := p.entries.get(i.index)
	return at
}

package client

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// streamKey is what a stream watches: a name, or a prefix.
type streamKey struct {
	shard, node uint64
	name        string
}

// streamSet finds the streams of a connection that an event concerns. It is guarded by the
// connection's mutex.
type streamSet struct {
	only     *watchStream // the one of a name, if there are no others: a client often watches one
	byID     map[uint64]*watchStream
	exact    map[streamKey][]*watchStream
	prefixes map[*watchStream]struct{}
}

func (ss *streamSet) add(st *watchStream, prefix bool) {
	if ss.byID == nil {
		ss.byID, ss.exact, ss.prefixes = make(map[uint64]*watchStream), make(map[streamKey][]*watchStream), make(map[*watchStream]struct{})
	}
	ss.byID[st.id] = st
	ss.only = nil
	if prefix {
		ss.prefixes[st] = struct{}{}
		return
	}
	ss.exact[st.key] = append(ss.exact[st.key], st)
	if len(ss.byID) == 1 {
		ss.only = st
	}
}

func (ss *streamSet) remove(st *watchStream) bool {
	if ss.byID[st.id] != st {
		return false
	}
	if ss.only == st {
		ss.only = nil
	}
	delete(ss.byID, st.id)
	delete(ss.prefixes, st)
	same := slices.DeleteFunc(ss.exact[st.key], func(o *watchStream) bool { return o == st })
	if len(same) == 0 {
		delete(ss.exact, st.key)
	} else {
		ss.exact[st.key] = same
	}
	return true
}

func (ss *streamSet) matching(list []*watchStream, shard, node uint64, name []byte) []*watchStream {
	if st := ss.only; st != nil {
		if k := &st.key; k.shard == shard && k.node == node && k.name == string(name) {
			list = append(list, st)
		}
		return list
	}
	list = append(list, ss.exact[streamKey{shard, node, string(name)}]...)
	for st := range ss.prefixes {
		k := &st.key
		if k.shard == shard && k.node == node && len(name) >= len(k.name) && string(name[:len(k.name)]) == k.name {
			list = append(list, st)
		}
	}
	return list
}

// delta is a protocol.Delta that refers to nothing of the reader's memory; all streams it concerns
// share it.
type delta struct {
	name    string
	index   uint64
	changes []change
}

type change struct {
	kind protocol.SemaphoreChangeKind
	attributes
	owner Owner
}

// deltaEvent is a delta as it comes in. Its memory is used again, by all connections: a change that
// is delivered to each of thousands of clients would otherwise make garbage of half a kilobyte each
// time.
type deltaEvent struct {
	message protocol.Delta
	streams []*watchStream
	delta   delta
}

var deltaEvents = sync.Pool{New: func() any { return new(deltaEvent) }}

// maxKeptChanges is how many changes an event may have for its memory to be used again.
const maxKeptChanges = 64

// own makes the delta of the message.
func (e *deltaEvent) own() *delta {
	m, d := &e.message, &e.delta
	if k := &e.streams[0].key; k.name == string(m.Name) {
		d.name = k.name
	} else {
		d.name = string(m.Name)
	}
	d.index, d.changes = m.Index, d.changes[:0]
	for i := range m.Changes {
		c := &m.Changes[i]
		d.changes = append(d.changes,
			change{c.Kind, attributes{c.Limit, c.Ephemeral, c.Version, bytes.Clone(c.Data)}, ownerOf(&c.Owner)})
	}
	return d
}

// release ends the use of an event. A stream that holds its delta keeps the memory.
func (e *deltaEvent) release(held bool) {
	if held || cap(e.message.Changes) > maxKeptChanges {
		e.message, e.streams = protocol.Delta{}, nil
		return
	}
	clear(e.message.Changes)
	clear(e.streams)
	clear(e.delta.changes)
	e.message.Name, e.streams, e.delta.name = nil, e.streams[:0], ""
	deltaEvents.Put(e)
}

// attributes of a semaphore.
type attributes struct {
	limit     uint64
	ephemeral bool
	version   uint64
	data      []byte
}

// page adds a page of a snapshot. The first page begins again: what came before it is dropped.
func (st *watchStream) page(m *protocol.Snapshot) {
	w := st.shardWatch.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.shardWatch.stream != st {
		return
	}
	if m.First {
		if p := st.shardWatch; m.Index < p.seenIndex && !shardRestarted(w.n.c.routes.Load(), p.shard, p.behindInstances) {
			st.rejectStale()
			return
		}
		st.shardWatch.behindInstances, st.shardWatch.seenIndex = nil, m.Index
		if st.shardWatch.live {
			w.markUnsynced()
		}
		st.shardWatch.live = false
		st.epochs, st.pages, st.building, st.held = newBucketEpochs(m.Runs), nil, make(map[string]*snapshot), nil
		st.newestPages = 0
	}
	if st.building == nil {
		return // pages without a first one
	}
	page := pageRange{last: m.Last, index: m.Index}
	for i := range m.Semaphores {
		item := &m.Semaphores[i]
		page.upTo = string(item.Name)
		s := st.building[page.upTo]
		if s == nil {
			s = &snapshot{attributes: attributes{item.Limit, item.Ephemeral, item.Version, bytes.Clone(item.Data)}}
			st.building[page.upTo] = s
		}
		for j := range item.Owners {
			s.owners = insertOwner(s.owners, ownerOf(&item.Owners[j]))
		}
	}
	st.pages, st.newestPages = append(st.pages, page), max(st.newestPages, m.Index)
	st.shardWatch.seenIndex = max(st.shardWatch.seenIndex, m.Index)
	if m.Last {
		// Before the consumer is told: no RELAXED read that follows goes back in time.
		raiseTo(st.shardWatch.readIndex, m.Index)
		st.shardWatch.setEpochs(st.epochs)
		w.replace(st.shardWatch, st.building)
		for _, d := range st.held {
			w.apply(st.shardWatch, d)
		}
		st.building, st.held = nil, nil
		st.shardWatch.live, st.shardWatch.err = true, nil
		w.notify()
	}
}

// delta applies changes of one semaphore if the pages have covered its name. A later page has the
// others. held says that the stream keeps d until the pages are complete.
func (st *watchStream) delta(d *delta) (held bool) {
	p := st.shardWatch
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.stream != st {
		return false
	}
	if st.building != nil || len(st.pages) == 0 || d.index <= st.newestPages {
		i := sort.Search(len(st.pages), func(i int) bool { return st.pages[i].last || d.name <= st.pages[i].upTo })
		if i == len(st.pages) || d.index <= st.pages[i].index {
			return false
		}
	}
	if st.building != nil {
		st.held = append(st.held, d)
		return true
	}
	p.seenIndex = max(p.seenIndex, d.index)
	raiseTo(p.readIndex, d.index)
	w.apply(p, d)
	w.notify()
	return false
}

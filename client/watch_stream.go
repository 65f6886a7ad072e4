package client

import (
	"bytes"
	"slices"
	"sort"
	"strings"

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
	byID     map[uint64]*watchStream
	exact    map[streamKey][]*watchStream
	prefixes map[*watchStream]struct{}
}

func (ss *streamSet) add(st *watchStream, prefix bool) {
	if ss.byID == nil {
		ss.byID, ss.exact, ss.prefixes = make(map[uint64]*watchStream), make(map[streamKey][]*watchStream), make(map[*watchStream]struct{})
	}
	ss.byID[st.id] = st
	if prefix {
		ss.prefixes[st] = struct{}{}
	} else {
		ss.exact[st.key] = append(ss.exact[st.key], st)
	}
}

func (ss *streamSet) remove(st *watchStream) bool {
	if ss.byID[st.id] != st {
		return false
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

func (ss *streamSet) matching(list []*watchStream, key streamKey) []*watchStream {
	list = append(list, ss.exact[key]...)
	for st := range ss.prefixes {
		if st.key.shard == key.shard && st.key.node == key.node && strings.HasPrefix(key.name, st.key.name) {
			list = append(list, st)
		}
	}
	return list
}

// delta is a protocol.Delta with memory of its own; all streams it concerns share it.
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
		if m.Index < st.shardWatch.seenIndex && !st.shardWatch.shardRestarted() {
			st.rejectStale()
			return
		}
		st.shardWatch.behindInstances, st.shardWatch.seenIndex = nil, m.Index
		if st.shardWatch.live {
			w.markUnsynced()
		}
		st.shardWatch.live = false
		st.epochs, st.pages, st.building, st.held = newBucketEpochs(m.Runs), nil, make(map[string]*snapshot), nil
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
	st.pages = append(st.pages, page)
	st.shardWatch.seenIndex = max(st.shardWatch.seenIndex, m.Index)
	if m.Last {
		st.shardWatch.setEpochs(st.epochs)
		w.replace(st.shardWatch, st.building)
		for _, d := range st.held {
			w.apply(st.shardWatch, d)
		}
		st.building, st.held = nil, nil
		st.shardWatch.live = true
		w.notify()
	}
}

// delta applies changes of one semaphore if the pages have covered its name. A later page has the
// others.
func (st *watchStream) delta(d *delta) {
	w := st.shardWatch.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.shardWatch.stream != st {
		return
	}
	i := sort.Search(len(st.pages), func(i int) bool { return st.pages[i].last || d.name <= st.pages[i].upTo })
	if i == len(st.pages) || d.index <= st.pages[i].index {
		return
	}
	if st.building != nil {
		st.held = append(st.held, d)
		return
	}
	st.shardWatch.seenIndex = max(st.shardWatch.seenIndex, d.index)
	w.apply(st.shardWatch, d)
	w.notify()
}

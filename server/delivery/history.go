package delivery

import (
	"container/list"
	"sort"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	maxHistoryBytes   = 256 << 10 // of the deltas of one history
	maxHistoryChanges = 1024      // in the deltas of one history
	historyCost       = 512       // bytes of a history without its deltas
	deltaCost         = 40        // bytes of a delta beside its frame

	// mostUnwatched is how many owners a semaphore without watchers here has at most to have no
	// history. Of one with more, watchers may come from another replica.
	mostUnwatched = 100
)

// MaxHistories is how many bytes the histories of an instance have at most.
const MaxHistories = 64 << 20

// history is the recent changes of a semaphore, as the deltas made of them. A stream that comes
// back, over another connection or from another replica, gets these and not the whole state. A
// semaphore has a history while it is watched by name, or has more than mostUnwatched owners.
//
// Invariant: every change above from is in deltas or in the name's pending delta. A delta that has
// older changes too may be applied, as any delta may.
type history struct {
	node      *watchedNode
	key       string
	large     bool // it has more than mostUnwatched owners
	from      uint64
	deltas    []pastDelta // by index
	changes   int         // in deltas
	buf       []byte      // frames of deltas, in order; only appended to, since connections refer to it
	charged   int64       // to the budget
	busyUntil time.Duration
	place     *list.Element // in WatchHub.histories
}

// pastDelta is a delta of a history. One with much data was sent in several parts with one index: a
// client that knows the index may have only some of them.
type pastDelta struct {
	index          uint64
	at             int // in buf
	parts, changes int
}

// HistoryBudget bounds the memory of the histories of all hubs that share it.
type HistoryBudget struct {
	most int64
	used atomic.Int64
}

// NewHistoryBudget returns a budget in bytes.
func NewHistoryBudget(bytes int64) *HistoryBudget { return &HistoryBudget{most: bytes} }

// Used returns the bytes of all histories.
func (b *HistoryBudget) Used() int64 { return b.used.Load() }

// startHistory keeps the changes above an index.
func (h *WatchHub) startHistory(n *watchedNode, name []byte, index uint64) *history {
	x := &history{node: n, key: string(name), from: index}
	n.histories[x.key] = x
	x.place = h.histories.PushBack(x)
	h.active.Add(1)
	h.charge(x)
	return x
}

// startHistoryAt has the changes of a stream's name kept from its first page on.
func (h *WatchHub) startHistoryAt(s *watchStream, p *protocol.Snapshot) {
	if s.node.histories[s.key] == nil {
		h.startHistory(s.node, []byte(s.key), p.Index).large = len(p.Semaphores) > 0 &&
			len(p.Semaphores[0].Owners) > mostUnwatched
	}
}

// dropHistory forgets the changes of a name.
func (h *WatchHub) dropHistory(x *history) {
	delete(x.node.histories, x.key)
	h.histories.Remove(x.place)
	h.opt.Histories.used.Add(-x.charged)
	h.active.Add(-1)
	h.removeNodeIfUnused(x.node)
}

// dropHistoryIfUnused forgets the changes of a name that is not watched by itself, and has few
// owners.
func (h *WatchHub) dropHistoryIfUnused(n *watchedNode, key string) (dropped bool) {
	x := n.histories[key]
	if w := n.names[key]; x == nil || x.large || w != nil && len(w.exact.streams) > 0 {
		return false
	}
	h.dropHistory(x)
	return true
}

// dropHistories forgets the changes of the names that match.
func (h *WatchHub) dropHistories(which func(*history) bool) {
	for e := h.histories.Front(); e != nil; {
		x := e.Value.(*history)
		e = e.Next()
		if which(x) {
			h.dropHistory(x)
		}
	}
}

func anyHistory(*history) bool { return true }

// charge counts the bytes of a history. Beyond the budget it drops the histories of this hub that
// have changed least lately.
func (h *WatchHub) charge(x *history) {
	size := int64(historyCost + len(x.key) + cap(x.buf) + cap(x.deltas)*deltaCost)
	b := h.opt.Histories
	b.used.Add(size - x.charged)
	x.charged = size
	for b.used.Load() > b.most && h.histories.Len() > 0 {
		h.dropHistory(h.histories.Front().Value.(*history))
	}
}

// addDelta begins a delta of a history.
func (x *history) addDelta(index uint64) {
	x.deltas = append(x.deltas, pastDelta{index: index, at: len(x.buf)})
}

// addPart adds a part of the newest delta.
func (x *history) addPart(frame []byte, changes int) {
	if len(x.buf)+len(frame) > cap(x.buf) {
		x.grow(len(frame))
	}
	x.buf = append(x.buf, frame...)
	d := &x.deltas[len(x.deltas)-1]
	d.parts++
	d.changes += changes
	x.changes += changes
}

// grow makes a buffer of the live part, with room. The old one stays as it is, for connections.
func (x *history) grow(n int) {
	start := x.deltas[0].at
	live := len(x.buf) - start + n
	buf := make([]byte, 0, live+min(live, 64<<10))
	x.buf = append(buf, x.buf[start:]...)
	for i := range x.deltas {
		x.deltas[i].at -= start
	}
}

// limit drops the oldest deltas beyond a history's bounds.
func (x *history) limit() {
	for len(x.deltas) > 0 && (x.changes > maxHistoryChanges || len(x.buf)-x.deltas[0].at > maxHistoryBytes) {
		d := &x.deltas[0]
		x.from = d.index
		if d.parts > 1 {
			x.from++
		}
		x.changes -= d.changes
		x.deltas = x.deltas[1:]
	}
	if len(x.deltas) == 0 {
		x.buf, x.deltas = nil, nil
	}
}

// keepDelta ends the newest delta of a history.
func (h *WatchHub) keepDelta(x *history) {
	x.limit()
	if h.opt.Window > 0 {
		x.busyUntil = windowEnd(h.opt.Now(), h.opt.Pace.LongestWindow())
	}
	h.histories.MoveToBack(x.place)
	h.charge(x)
}

// since is the frames of all deltas that a client lacks which knows the name up to an index. Not
// ok: they are not all there.
func (x *history) since(known uint64) (frames []byte, ok bool) {
	if x == nil || known < x.from {
		return nil, false
	}
	i := sort.Search(len(x.deltas), func(i int) bool { return x.deltas[i].index > known })
	if i > 0 && x.deltas[i-1].index == known && x.deltas[i-1].parts > 1 {
		i--
	}
	if i == len(x.deltas) {
		return nil, true
	}
	return x.buf[x.deltas[i].at:len(x.buf):len(x.buf)], true
}

// resume sends a stream the changes that the client lacks, or returns false if it needs the state.
func (h *WatchHub) resume(s *watchStream, m SnapshotReader) (done bool) {
	known := s.known
	s.known = 0
	index, epoch, err := m.StreamPosition(s.node.id, []byte(s.key))
	if err == nil && (known > index || s.epoch > epoch) {
		err = errReplicaBehind
	}
	if err != nil {
		h.cutStream(s, protocol.StatusOf(err), messageOf(err))
		return true
	}
	x := s.node.histories[s.key]
	frames, ok := x.since(known)
	if !ok || s.epoch != epoch {
		return false
	}
	h.histories.MoveToBack(x.place)
	h.head = protocol.AppendResumedHead(h.head[:0], s.id, h.shard, index, epoch, len(frames))
	h.send.SendPage(s.conn.id, h.head, frames)
	h.stats.Resumed++
	s.live, s.pageSent = true, true
	return true
}

var errReplicaBehind = protocol.Errorf(protocol.StatusUnavailable,
	"this replica has not applied yet what the client knows; watch at another one, or a moment later")

package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxDelta is the estimated size at which the changes of one delta are split over several frames. A
// single change may be larger.
const maxDelta = 256 << 10

// splitFrame parts changes into those of the next frame, one at least, and the rest.
func splitFrame[C any](changes []C, size func(*C) int) (frame, rest []C) {
	n, sum := 1, size(&changes[0])
	for n < len(changes) && sum+size(&changes[n]) <= maxDelta {
		sum += size(&changes[n])
		n++
	}
	return changes[:n], changes[n:]
}

// frameRun is a run of frames for a connection that several targets of this flush lead to.
type frameRun struct {
	conn        *watchConn
	first, last int
}

// flush sends the deltas that are due, or all. Each is encoded once. A connection watching through
// one target gets slices shared with all others of that target. A connection watching through
// several targets gets the union of their frames, each once.
func (h *WatchHub) flush(now time.Duration, all bool) {
	h.takeDue(now, all)
	if len(h.due) == 0 {
		return
	}
	slices.SortFunc(h.due, func(a, b *pendingDelta) int {
		return cmp.Or(cmp.Compare(a.node.id, b.node.id), cmp.Compare(a.key, b.key))
	})
	h.flushSeq++
	h.hit = h.hit[:0]
	for _, p := range h.due {
		h.encode(p)
	}
	h.frames.seal()
	for _, t := range h.hit {
		h.countHits(t)
		t.busyUntil = windowEnd(now, h.opt.Pace.Window(h.opt.Window, t.connCount))
	}
	for _, t := range h.hit {
		h.sendShared(t)
	}
	h.sendUnions()
	for _, c := range h.slow {
		h.stats.FellBehind++
		h.restart(c, anyStream)
	}
	clear(h.slow)
	h.slow = h.slow[:0]
	for _, p := range h.due {
		h.recycle(p)
	}
	clear(h.due)
	clear(h.hit)
	clear(h.matched[:cap(h.matched)])
	clear(h.keys)
	h.keys = h.keys[:0]
	h.frames.reset()
}

// takeDue moves the due deltas from pending to due, and finds when the next one is due.
func (h *WatchHub) takeDue(now time.Duration, all bool) {
	h.due = h.due[:0]
	keep := h.pending[:0]
	for _, p := range h.pending {
		if p.due <= now && p.many {
			p.due = now + h.opt.Pace.Wait()
		}
		switch {
		case all || p.due <= now:
			h.due = append(h.due, p)
			continue
		case len(keep) == 0 || p.due < h.nextFlush:
			h.nextFlush = p.due
		}
		keep = append(keep, p)
	}
	clear(h.pending[len(keep):])
	h.pending = keep
	if len(keep) > 0 {
		h.opt.Wake(h.nextFlush)
	}
}

// encode adds the frames of one delta and notes which targets see them.
func (h *WatchHub) encode(p *pendingDelta) {
	h.matched = p.node.match(p.node.names[p.key], []byte(p.key), h.matched[:0])
	x := p.node.histories[p.key]
	if len(h.matched) == 0 && x == nil {
		return
	}
	h.pages.drop(p.node.names[p.key])
	first := len(h.frames.refs)
	d := &h.delta
	d.Node, d.Name, d.Index = p.node.id, append(d.Name[:0], p.key...), p.index
	changes := p.changes(d.Changes[:0])
	if x != nil {
		x.addDelta(p.index)
	}
	for rest := changes; len(rest) > 0; {
		d.Changes, rest = splitFrame(rest, changeSize)
		if x != nil {
			h.past = protocol.AppendFrame(h.past[:0], protocol.KindDelta, 0, h.shard, d)
			x.addPart(h.past, len(d.Changes))
		}
		if len(h.matched) > 0 {
			h.frames.add(protocol.KindDelta, 0, h.shard, d)
			h.keys = append(h.keys, p.key)
			h.stats.Deltas++
		}
	}
	if x != nil {
		h.keepDelta(x)
	}
	clear(changes)
	d.Changes = changes[:0]
	for _, t := range h.matched {
		if t.flushSeq != h.flushSeq {
			t.flushSeq, t.first = h.flushSeq, first
			h.hit = append(h.hit, t)
		}
		t.last = len(h.frames.refs)
	}
}

// countHits counts the streams of this flush per connection. For the target it counts the
// connections that no earlier target led to.
func (h *WatchHub) countHits(t *target) {
	t.connCount = 0
	for _, s := range t.streams {
		c := s.conn
		if c.flushSeq != h.flushSeq {
			c.flushSeq, c.hits = h.flushSeq, 0
			t.connCount++
		}
		if s.live || s.lastPaged != nil {
			c.hits++
		}
	}
}

// sendShared sends a target's frames to the connections that nothing else leads to, and collects
// the runs of the others. Between two pages, a stream sees only the names that its pages have
// passed.
func (h *WatchHub) sendShared(t *target) {
	h.slices = h.frames.slices(t.first, t.last, h.slices[:0])
	for _, s := range t.streams {
		c := s.conn
		switch {
		case s.live && c.hits == 1:
			h.sendSlices(c, h.slices)
		case s.live:
			h.runs = append(h.runs, frameRun{c, t.first, t.last})
		case s.lastPaged != nil:
			if last := h.framesPaged(s, t.first, t.last); last > t.first {
				h.runs = append(h.runs, frameRun{c, t.first, last})
			}
		}
	}
	clear(h.slices)
}

// framesPaged is the end of the frames among first..last-1 whose names the stream's pages have
// passed.
func (h *WatchHub) framesPaged(s *watchStream, first, last int) int {
	for last > first && h.keys[last-1] > string(s.lastPaged) {
		last--
	}
	return last
}

// sendUnions sends the union of the runs of each connection.
func (h *WatchHub) sendUnions() {
	runs := h.runs
	slices.SortFunc(runs, func(a, b frameRun) int {
		return cmp.Or(cmp.Compare(a.conn.id, b.conn.id), cmp.Compare(a.first, b.first))
	})
	for i := 0; i < len(runs); {
		c, done := runs[i].conn, 0
		h.slices = h.slices[:0]
		for ; i < len(runs) && runs[i].conn == c; i++ {
			if first := max(runs[i].first, done); first < runs[i].last {
				h.slices = h.frames.slices(first, runs[i].last, h.slices)
				done = runs[i].last
			}
		}
		h.sendSlices(c, h.slices)
		clear(h.slices)
	}
	clear(runs)
	h.runs = runs[:0]
}

// sendSlices sends slices until the connection takes no more; then its streams have to restart.
func (h *WatchHub) sendSlices(c *watchConn, runs [][]byte) {
	for _, frames := range runs {
		h.stats.Sent++
		if !h.send.Send(c.id, frames, true) {
			h.slow = append(h.slow, c)
			return
		}
	}
}

// newPending creates the pending delta of a name. The caller sets when it is due.
func (h *WatchHub) newPending(n *watchedNode, key []byte) *pendingDelta {
	var p *pendingDelta
	if last := len(h.free) - 1; last >= 0 {
		p = h.free[last]
		h.free = h.free[:last]
	} else {
		p = new(pendingDelta)
	}
	p.node, p.key = n, string(key)
	n.pending[p.key] = p
	h.pending = append(h.pending, p)
	h.active.Add(1)
	return p
}

// recycle frees a delta that is no longer in h.pending.
func (h *WatchHub) recycle(p *pendingDelta) {
	h.pendingBytes -= p.size
	h.active.Add(-1)
	delete(p.node.pending, p.key)
	h.removeNodeIfUnused(p.node)
	owners := p.owners
	clear(owners)
	*p = pendingDelta{}
	if cap(owners) <= maxFreeOwners {
		p.owners = owners[:0]
	}
	if len(h.free) < maxFreePending {
		h.free = append(h.free, p)
	}
}

// windowEnd is the first multiple of window after now.
func windowEnd(now, window time.Duration) time.Duration {
	if window <= 0 {
		return now
	}
	return (now/window + 1) * window
}

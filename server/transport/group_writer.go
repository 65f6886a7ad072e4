package transport

import "golang.org/x/sys/unix"

// maxGroup is how many sockets are written to with one system call at most. With 16 or 128 it costs
// as much for each.
const maxGroup = 32

// groupWriter writes to the sockets that a goroutine gives it: with one system call for maxGroup of
// them where the kernel lets us have a ring, else with one for each. The zero value is ready; one
// goroutine at a time uses it.
type groupWriter struct {
	ring  *sendRing // or nil
	asked bool      // for a ring
	sends [maxGroup]socketSend
	n     int // of sends that are taken
	left  []*gnetSocket
}

// socketSend is a pending write to one socket.
type socketSend struct {
	socket *gnetSocket
	batch  writeBatch // has one segment
	sent   int        // bytes of it that the kernel took
}

// write writes the pending frames of the sockets, in their order. It calls left for those that need
// their event loop as well: the kernel did not take everything, somebody else is writing, or more
// than one segment is pending.
func (g *groupWriter) write(list []*gnetSocket, left func(*gnetSocket)) {
	for len(list) > 0 {
		part := list[:min(len(list), maxGroup)]
		list = list[len(part):]
		for _, k := range part {
			if !g.take(k) {
				g.left = append(g.left, k)
			}
		}
		g.send()
		for i := range g.sends[:g.n] {
			s := &g.sends[i]
			if !s.finish() {
				g.left = append(g.left, s.socket)
			}
			s.socket = nil
		}
		g.n = 0
		// Only now: left may wait for a socket that was taken, since one may be in the list twice.
		for i, k := range g.left {
			g.left[i] = nil
			left(k)
		}
		g.left = g.left[:0]
	}
}

// take takes a socket's pending frames. Until finish nobody else writes to it, and its descriptor
// is not closed. It returns false if the event loop must write them.
func (g *groupWriter) take(k *gnetSocket) bool {
	if !k.writing.TryLock() {
		return false
	}
	if k.gc == nil {
		k.writing.Unlock()
		return true // nobody is there to write to
	}
	k.inFanOut.Store(false)
	s := &g.sends[g.n]
	if k.out.unsent.Load() != 0 || !k.out.takeOne(&s.batch) {
		k.writing.Unlock()
		return false
	}
	if s.batch.size == 0 {
		k.writing.Unlock()
		return true // somebody else wrote it
	}
	s.socket, s.sent = k, 0
	g.n++
	return true
}

// send sends the sends taken so far. Bytes that the kernel does not take, because a socket is full
// or broken, are left to the event loop.
func (g *groupWriter) send() {
	sends := g.sends[:g.n]
	if g.n > 1 {
		var err error
		if !g.asked {
			g.asked = true
			g.ring, err = newSendRing()
		}
		if g.ring != nil {
			if err = g.ring.send(sends); err == nil {
				return
			}
			g.ring = nil
		}
		if err != nil {
			sends[0].socket.t.logNoRing(err)
		}
	}
	for i := range sends {
		s := &sends[i]
		if s.sent > 0 {
			continue // with the ring, before that failed
		}
		if n, err := unix.Write(s.socket.fd, s.batch.segs[0]); err == nil {
			s.sent = n
		}
	}
}

// finish records a send and unlocks the socket. It returns false if the event loop has work to do.
func (s *socketSend) finish() bool {
	k, b := s.socket, &s.batch
	defer k.writing.Unlock()
	all := s.sent == b.size
	if all {
		k.setUnsent(0)
	} else {
		k.putBack(b.segs[0][s.sent:])
	}
	m := k.t.Metrics
	m.Writes.Inc()
	m.BytesOut.Add(s.sent)
	b.release()
	return all && !k.awaitsRoom.Load()
}

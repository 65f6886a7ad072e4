package transport

import (
	"sync"
	"sync/atomic"
)

// A connection id is a number that rises with every connection, and the connection's place in the
// table: finding a connection costs two loads and no lock, and an id is never used again.
const (
	slotBits = 24
	// MaxConnections is the most connections that a transport can have.
	MaxConnections = 1 << slotBits

	chunkBits = 12
	chunkSize = 1 << chunkBits
)

type connChunk [chunkSize]atomic.Pointer[Conn]

// connTable is every open connection by id. Reading is free of locks; the events of a batch look up
// one connection each.
type connTable struct {
	chunks [MaxConnections / chunkSize]atomic.Pointer[connChunk]
	count  atomic.Int64
	secure atomic.Int64 // of them, those over TLS

	mu   sync.Mutex
	seq  uint64
	next uint64   // first slot never used
	free []uint32 // slots to use again
}

// add gives the connection its id. It answers false when limit connections are open already.
func (t *connTable) add(c *Conn, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count.Load() >= int64(limit) {
		return false
	}
	var slot uint64
	if n := len(t.free); n > 0 {
		slot = uint64(t.free[n-1])
		t.free = t.free[:n-1]
	} else {
		slot = t.next
		t.next++
		if i := slot >> chunkBits; t.chunks[i].Load() == nil {
			t.chunks[i].Store(new(connChunk))
		}
	}
	t.seq++
	c.id = t.seq<<slotBits | slot
	t.count.Add(1)
	if c.secure {
		t.secure.Add(1)
	}
	t.chunks[slot>>chunkBits].Load()[slot&(chunkSize-1)].Store(c)
	return true
}

// get finds an open connection; nil when it is gone.
func (t *connTable) get(id uint64) *Conn {
	slot := id & (MaxConnections - 1)
	ch := t.chunks[slot>>chunkBits].Load()
	if ch == nil {
		return nil
	}
	c := ch[slot&(chunkSize-1)].Load()
	if c == nil || c.id != id {
		return nil
	}
	return c
}

func (t *connTable) remove(c *Conn) {
	slot := c.id & (MaxConnections - 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.chunks[slot>>chunkBits].Load()[slot&(chunkSize-1)]
	if p.Load() != c {
		return
	}
	p.Store(nil)
	t.free = append(t.free, uint32(slot))
	t.count.Add(-1)
	if c.secure {
		t.secure.Add(-1)
	}
}

// each visits every open connection. Connections that come or go meanwhile may be missed.
func (t *connTable) each(visit func(c *Conn)) {
	t.mu.Lock()
	used := t.next
	t.mu.Unlock()
	for i := uint64(0); i<<chunkBits < used; i++ {
		ch := t.chunks[i].Load()
		for j := range ch {
			if c := ch[j].Load(); c != nil {
				visit(c)
			}
		}
	}
}

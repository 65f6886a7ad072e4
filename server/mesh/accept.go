package mesh

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// acceptLoop takes connections until the mesh closes. Whatever Accept fails with, running out of descriptors above all, passes: it waits and tries again.
func (m *Mesh) acceptLoop(l net.Listener) {
	defer m.wg.Done()
	wait := time.Duration(0)
	for {
		nc, err := l.Accept()
		if m.ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return
		}
		if err != nil {
			m.count.acceptErrors.Add(1)
			m.line("connections of instances are not accepted for a moment", "error", err)
			wait = min(max(5*time.Millisecond, 2*wait), time.Second)
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-m.ctx.Done():
				t.Stop()
				return
			}
			continue
		}
		wait = 0
		w := m.admit(nc)
		if w == nil {
			m.count.accepted.Add(1)
			m.count.refusedBusy.Add(1)
			_ = nc.Close()
			continue
		}
		m.count.handshaking.Add(1)
		m.count.accepted.Add(1)
		m.wg.Go(func() { m.meet(w) })
	}
}

// admit bounds connections in total.
func (m *Mesh) admit(nc net.Conn) *waiter {
	if m.count.inbound.Load() >= int64(m.cfg.Limits.Connections) {
		return nil
	}
	return m.waiting.add(nc)
}

// meet does the acceptor's handshake and serves the connection.
func (m *Mesh) meet(w *waiter) {
	peer, p, accept, cluster, err := m.greet(w.nc)
	if err != nil {
		m.turnAway(w, err)
		m.count.handshaking.Add(-1)
		return
	}
	if !m.waiting.remove(w) { // pushed out in this very moment
		m.count.handshaking.Add(-1)
		return
	}
	m.count.handshaking.Add(-1)
	c := newConn(m, w.nc, peer, p, false, cluster)
	if m.count.inbound.Add(1) > int64(m.cfg.Limits.Connections) {
		m.count.refusedBusy.Add(1)
		refuse(w.nc, ErrBusy)
	} else if m.track(c) {
		if _, err := w.nc.Write(accept); err == nil {
			_ = w.nc.SetDeadline(time.Time{})
			m.serve(c)
		}
		m.untrack(c)
	}
	c.close()
	m.count.inbound.Add(-1)
}

func (m *Mesh) greet(nc net.Conn) (peer string, p purpose, accept []byte, cluster string, err error) {
	_ = nc.SetDeadline(time.Now().Add(m.cfg.Limits.HandshakeTimeout))
	me := m.identity()
	peer, p, accept, err = acceptHandshake(nc, me)
	return clean(peer), p, accept, me.cluster, err
}

// turnAway counts a failed handshake, and ends its connection after a wait that grows with the failures of its host: who tries again and again is slowed,
// and nobody else. The wait takes one of the places of connections that are not authenticated, so that newer ones push it out.
func (m *Mesh) turnAway(w *waiter, err error) {
	defer func() {
		m.waiting.remove(w)
		_ = w.nc.Close()
	}()
	if m.ctx.Err() != nil {
		return
	}
	select {
	case <-w.pushed:
		m.count.refusedBusy.Add(1)
		return
	default:
	}
	switch {
	case errors.Is(err, ErrToken):
		m.count.refusedToken.Add(1)
	case errors.Is(err, ErrCluster):
		m.count.refusedCluster.Add(1)
	case errors.Is(err, ErrAddress):
		m.count.refusedAddress.Add(1)
	case errors.Is(err, ErrVersion):
		m.count.refusedVersion.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		m.count.refusedSlow.Add(1)
	case errors.Is(err, errGarbage):
		m.count.refusedGarbage.Add(1)
	case errors.Is(err, io.EOF):
		return // nothing was said: a port scan, or a health check
	default:
		m.count.refusedGarbage.Add(1)
	}
	m.line("connection of an instance is refused", "from", w.host, "error", err)
	t := time.NewTimer(m.waiting.penalty(w.host))
	defer t.Stop()
	select {
	case <-t.C:
		_ = w.nc.SetWriteDeadline(time.Now().Add(m.cfg.Limits.HandshakeTimeout))
		refuse(w.nc, err)
	case <-w.pushed:
	case <-m.ctx.Done():
	}
}

// waiter is a connection that is not authenticated.
type waiter struct {
	nc     net.Conn
	host   string
	pushed chan struct{} // closed when newer ones took its place
	all    *list.Element
	own    *list.Element // in its host's list
}

// waiting holds the connections that are not authenticated, oldest first. There is always room for one more, because the oldest goes: an honest handshake
// is over in a round trip or two, and so a flood pushes out itself.
type waiting struct {
	mu     sync.Mutex
	max    int
	perMax int
	closed bool
	all    list.List
	hosts  map[string]*list.List
	fails  map[string]*failures
}

type failures struct {
	count int
	last  time.Time
}

const (
	penaltyMin   = 50 * time.Millisecond
	penaltyMax   = 2 * time.Second
	failuresLast = 30 * time.Second // then a host's failures are forgotten
	failuresMax  = 1024             // hosts that failures are kept of
)

func (w *waiting) init(all, perHost int) {
	w.max, w.perMax = all, perHost
	w.hosts, w.fails = make(map[string]*list.List), make(map[string]*failures)
}

func (w *waiting) add(nc net.Conn) *waiter {
	host := "?"
	if a := nc.RemoteAddr(); a != nil {
		host = a.String()
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	own := w.hosts[host]
	if own != nil && own.Len() >= w.perMax {
		w.push(own.Front().Value.(*waiter))
	} else if w.all.Len() >= w.max {
		w.push(w.all.Front().Value.(*waiter))
	}
	if own = w.hosts[host]; own == nil {
		own = list.New()
		w.hosts[host] = own
	}
	x := &waiter{nc: nc, host: host, pushed: make(chan struct{})}
	x.all, x.own = w.all.PushBack(x), own.PushBack(x)
	return x
}

func (w *waiting) push(x *waiter) {
	w.drop(x)
	close(x.pushed)
	_ = x.nc.Close()
}

func (w *waiting) drop(x *waiter) {
	w.all.Remove(x.all)
	own := w.hosts[x.host]
	own.Remove(x.own)
	if own.Len() == 0 {
		delete(w.hosts, x.host)
	}
	x.all = nil
}

// remove takes a connection out, and reports whether it was still in.
func (w *waiting) remove(x *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.all == nil {
		return false
	}
	w.drop(x)
	return true
}

func (w *waiting) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.all.Len() > 0 {
		w.push(w.all.Front().Value.(*waiter))
	}
}

// penalty counts a failure of a host, and says how long its connection is kept from trying again.
func (w *waiting) penalty(host string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	f := w.fails[host]
	if f == nil {
		if len(w.fails) >= failuresMax {
			for h, old := range w.fails {
				if now.Sub(old.last) > failuresLast || len(w.fails) >= failuresMax {
					delete(w.fails, h)
				}
			}
		}
		f = &failures{}
		w.fails[host] = f
	}
	if now.Sub(f.last) > failuresLast {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(penaltyMin<<min(f.count-1, 10), penaltyMax)
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

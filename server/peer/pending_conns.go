package peer

import (
	"container/list"
	"errors"
	"io"
	"math/bits"
	"net"
	"os"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// acceptLoop accepts connections until the transport closes. Every error of Accept is temporary,
// above all running out of descriptors: it waits and retries.
func (m *Transport) acceptLoop(l net.Listener) {
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
			m.stats.AcceptErrors.Add(1)
			m.warn("accept failed, will be retried", "error", err)
			wait = min(max(5*time.Millisecond, 2*wait), time.Second)
			if !beat.Sleep(m.ctx, wait) {
				return
			}
			continue
		}
		wait = 0
		w := m.admitConn(nc)
		if w == nil {
			m.stats.Accepted.Add(1)
			m.stats.RefusedBusy.Add(1)
			_ = nc.Close()
			continue
		}
		m.stats.Handshaking.Add(1)
		m.stats.Accepted.Add(1)
		m.wg.Go(func() { m.authenticate(w) })
	}
}

// admitConn bounds the number of connections.
func (m *Transport) admitConn(nc net.Conn) *pendingConn {
	if m.stats.Inbound.Load() >= int64(m.cfg.Limits.Connections) {
		return nil
	}
	return m.pending.add(nc)
}

// authenticate does the acceptor's handshake and serves the connection.
func (m *Transport) authenticate(w *pendingConn) {
	peer, p, accept, cluster, err := m.handshake(w.nc)
	if err != nil {
		m.reject(w, err)
		m.stats.Handshaking.Add(-1)
		return
	}
	if !m.pending.remove(w) { // evicted at this moment
		m.stats.Handshaking.Add(-1)
		return
	}
	m.stats.Handshaking.Add(-1)
	c := newConn(m, w.nc, peer, p, false, cluster)
	if m.stats.Inbound.Add(1) > int64(m.cfg.Limits.Connections) {
		m.stats.RefusedBusy.Add(1)
		writeRejection(w.nc, ErrBusy)
	} else if m.track(c) {
		if _, err := w.nc.Write(accept); err == nil {
			_ = w.nc.SetDeadline(time.Time{})
			m.serve(c)
		}
		m.untrack(c)
	}
	c.close()
	m.stats.Inbound.Add(-1)
}

func (m *Transport) handshake(nc net.Conn) (peer string, p purpose, accept []byte, cluster string, err error) {
	_ = nc.SetDeadline(time.Now().Add(m.cfg.Limits.HandshakeTimeout))
	me := m.identity()
	peer, p, accept, err = acceptHandshake(nc, me)
	return normalize(peer), p, accept, me.cluster, err
}

// reject counts a failed handshake, and closes its connection after a delay that grows with the
// failures of its host. So a host that retries again and again is slowed, and no other. The delayed
// connection still counts as pending, so that newer ones evict it.
func (m *Transport) reject(w *pendingConn, err error) {
	defer func() {
		m.pending.remove(w)
		_ = w.nc.Close()
	}()
	if m.ctx.Err() != nil {
		return
	}
	select {
	case <-w.evicted:
		m.stats.RefusedBusy.Add(1)
		return
	default:
	}
	switch {
	case errors.Is(err, ErrToken):
		m.stats.RefusedToken.Add(1)
	case errors.Is(err, ErrCluster):
		m.stats.RefusedCluster.Add(1)
	case errors.Is(err, ErrAddress):
		m.stats.RefusedAddress.Add(1)
	case errors.Is(err, ErrVersion):
		m.stats.RefusedVersion.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		m.stats.RefusedSlow.Add(1)
	case errors.Is(err, errGarbage):
		m.stats.RefusedGarbage.Add(1)
	case errors.Is(err, io.EOF):
		return // a port scan or a health check
	default:
		m.stats.RefusedGarbage.Add(1)
	}
	delay, failures := m.pending.penalty(w.host)
	if bits.OnesCount(uint(failures)) == 1 { // a host that goes on and on, such as one of another cluster, is logged ever less often
		m.warn("connection from an instance rejected", "from", w.host, "error", err, "failures", failures)
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		_ = w.nc.SetWriteDeadline(time.Now().Add(m.cfg.Limits.HandshakeTimeout))
		writeRejection(w.nc, err)
	case <-w.evicted:
	case <-m.ctx.Done():
	}
}

// pendingConn is an unauthenticated connection.
type pendingConn struct {
	nc        net.Conn
	host      string
	evicted   chan struct{} // closed when a newer one took its place
	listEntry *list.Element
	hostEntry *list.Element // in its host's list
}

// pendingConns holds the unauthenticated connections, oldest first. There is always room for one
// more, because it evicts the oldest: an honest handshake takes a round trip or two, so a flood
// evicts itself.
type pendingConns struct {
	mu         sync.Mutex
	max        int
	maxPerHost int
	closed     bool
	all        list.List
	hosts      map[string]*list.List
	failures   map[string]*hostFailures
}

type hostFailures struct {
	count int
	last  time.Time
}

const (
	penaltyMin     = 50 * time.Millisecond
	penaltyMax     = 2 * time.Second
	failureMemory  = 30 * time.Second // after which a host's failures are forgotten
	maxFailedHosts = 1024             // hosts whose failures are remembered
)

func (w *pendingConns) init(all, perHost int) {
	w.max, w.maxPerHost = all, perHost
	w.hosts, w.failures = make(map[string]*list.List), make(map[string]*hostFailures)
}

func (w *pendingConns) add(nc net.Conn) *pendingConn {
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
	if own != nil && own.Len() >= w.maxPerHost {
		w.evict(own.Front().Value.(*pendingConn))
	} else if w.all.Len() >= w.max {
		w.evict(w.all.Front().Value.(*pendingConn))
	}
	if own = w.hosts[host]; own == nil {
		own = list.New()
		w.hosts[host] = own
	}
	x := &pendingConn{nc: nc, host: host, evicted: make(chan struct{})}
	x.listEntry, x.hostEntry = w.all.PushBack(x), own.PushBack(x)
	return x
}

func (w *pendingConns) evict(x *pendingConn) {
	w.removeLocked(x)
	close(x.evicted)
	_ = x.nc.Close()
}

func (w *pendingConns) removeLocked(x *pendingConn) {
	w.all.Remove(x.listEntry)
	own := w.hosts[x.host]
	own.Remove(x.hostEntry)
	if own.Len() == 0 {
		delete(w.hosts, x.host)
	}
	x.listEntry = nil
}

// remove removes a connection, and reports whether it was still there.
func (w *pendingConns) remove(x *pendingConn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.listEntry == nil {
		return false
	}
	w.removeLocked(x)
	return true
}

func (w *pendingConns) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.all.Len() > 0 {
		w.evict(w.all.Front().Value.(*pendingConn))
	}
}

// penalty counts a failure of a host. It returns the delay of its connection's end, and the number
// of failures without a pause of failureMemory between them.
func (w *pendingConns) penalty(host string) (delay time.Duration, failures int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	f := w.failures[host]
	if f == nil {
		if len(w.failures) >= maxFailedHosts {
			for h, old := range w.failures {
				if now.Sub(old.last) > failureMemory || len(w.failures) >= maxFailedHosts {
					delete(w.failures, h)
				}
			}
		}
		f = &hostFailures{}
		w.failures[host] = f
	}
	if now.Sub(f.last) > failureMemory {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(penaltyMin<<min(f.count-1, 10), penaltyMax), f.count
}

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
func (t *Transport) acceptLoop(l net.Listener) {
	defer t.wg.Done()
	wait := time.Duration(0)
	for {
		nc, err := l.Accept()
		if t.ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return
		}
		if err != nil {
			t.stats.AcceptErrors.Add(1)
			t.warn("accept failed, will be retried", "error", err)
			wait = min(max(5*time.Millisecond, 2*wait), time.Second)
			if !beat.Sleep(t.ctx, wait) {
				return
			}
			continue
		}
		wait = 0
		w := t.admitConn(nc)
		if w == nil {
			t.stats.Accepted.Add(1)
			t.stats.RefusedBusy.Add(1)
			_ = nc.Close()
			continue
		}
		t.stats.Handshaking.Add(1)
		t.stats.Accepted.Add(1)
		t.wg.Go(func() { t.authenticate(w) })
	}
}

// admitConn bounds the number of connections.
func (t *Transport) admitConn(nc net.Conn) *pendingConn {
	if t.stats.Inbound.Load() >= int64(t.cfg.Limits.Connections) {
		return nil
	}
	return t.pending.add(nc)
}

// authenticate does the acceptor's handshake and serves the connection.
func (t *Transport) authenticate(w *pendingConn) {
	peer, p, accept, cluster, err := t.handshake(w.nc)
	if err != nil {
		t.reject(w, err)
		t.stats.Handshaking.Add(-1)
		return
	}
	if !t.pending.remove(w) { // evicted at this moment
		t.stats.Handshaking.Add(-1)
		return
	}
	t.stats.Handshaking.Add(-1)
	c := newConn(t, w.nc, peer, p, false, cluster)
	if t.stats.Inbound.Add(1) > int64(t.cfg.Limits.Connections) {
		t.stats.RefusedBusy.Add(1)
		writeRejection(w.nc, ErrBusy)
	} else if t.track(c) {
		if _, err := w.nc.Write(accept); err == nil {
			_ = w.nc.SetDeadline(time.Time{})
			t.serve(c)
		}
		t.untrack(c)
	}
	c.close()
	t.stats.Inbound.Add(-1)
}

func (t *Transport) handshake(nc net.Conn) (peer string, p purpose, accept []byte, cluster string, err error) {
	_ = nc.SetDeadline(time.Now().Add(t.cfg.Limits.HandshakeTimeout))
	me := t.identity()
	peer, p, accept, err = acceptHandshake(nc, me)
	return normalize(peer), p, accept, me.cluster, err
}

// reject counts a failed handshake, and closes its connection after a delay that grows with the
// failures of its host. So a host that retries again and again is slowed, and no other. The delayed
// connection still counts as pending, so that newer ones evict it.
func (t *Transport) reject(w *pendingConn, err error) {
	defer func() {
		t.pending.remove(w)
		_ = w.nc.Close()
	}()
	if t.ctx.Err() != nil {
		return
	}
	select {
	case <-w.evicted:
		t.stats.RefusedBusy.Add(1)
		return
	default:
	}
	switch {
	case errors.Is(err, ErrToken):
		t.stats.RefusedToken.Add(1)
	case errors.Is(err, ErrCluster):
		t.stats.RefusedCluster.Add(1)
	case errors.Is(err, ErrAddress):
		t.stats.RefusedAddress.Add(1)
	case errors.Is(err, ErrVersion):
		t.stats.RefusedVersion.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.stats.RefusedSlow.Add(1)
	case errors.Is(err, errGarbage):
		t.stats.RefusedGarbage.Add(1)
	case errors.Is(err, io.EOF):
		return // a port scan or a health check
	default:
		t.stats.RefusedGarbage.Add(1)
	}
	delay, failures := t.pending.penalty(w.host)
	if bits.OnesCount(uint(failures)) == 1 {
		// a host that goes on and on, such as one of another cluster, is logged ever less often
		t.warn("connection from an instance rejected", "from", w.host, "error", err, "failures", failures)
	}
	method := time.NewTimer(delay)
	defer method.Stop()
	select {
	case <-method.C:
		_ = w.nc.SetWriteDeadline(time.Now().Add(t.cfg.Limits.HandshakeTimeout))
		writeRejection(w.nc, err)
	case <-w.evicted:
	case <-t.ctx.Done():
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

func (p *pendingConns) init(all, perHost int) {
	p.max, p.maxPerHost = all, perHost
	p.hosts, p.failures = make(map[string]*list.List), make(map[string]*hostFailures)
}

func (p *pendingConns) add(nc net.Conn) *pendingConn {
	host := "?"
	if a := nc.RemoteAddr(); a != nil {
		host = a.String()
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	own := p.hosts[host]
	if own != nil && own.Len() >= p.maxPerHost {
		p.evict(own.Front().Value.(*pendingConn))
	} else if p.all.Len() >= p.max {
		p.evict(p.all.Front().Value.(*pendingConn))
	}
	if own = p.hosts[host]; own == nil {
		own = list.New()
		p.hosts[host] = own
	}
	x := &pendingConn{nc: nc, host: host, evicted: make(chan struct{})}
	x.listEntry, x.hostEntry = p.all.PushBack(x), own.PushBack(x)
	return x
}

func (p *pendingConns) evict(x *pendingConn) {
	p.removeLocked(x)
	close(x.evicted)
	_ = x.nc.Close()
}

func (p *pendingConns) removeLocked(x *pendingConn) {
	p.all.Remove(x.listEntry)
	own := p.hosts[x.host]
	own.Remove(x.hostEntry)
	if own.Len() == 0 {
		delete(p.hosts, x.host)
	}
	x.listEntry = nil
}

// remove removes a connection, and reports whether it was still there.
func (p *pendingConns) remove(x *pendingConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.listEntry == nil {
		return false
	}
	p.removeLocked(x)
	return true
}

func (p *pendingConns) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.all.Len() > 0 {
		p.evict(p.all.Front().Value.(*pendingConn))
	}
}

// penalty counts a failure of a host. It returns the delay of its connection's end, and the number
// of failures without a pause of failureMemory between them.
func (p *pendingConns) penalty(host string) (delay time.Duration, failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	f := p.failures[host]
	if f == nil {
		if len(p.failures) >= maxFailedHosts {
			for h, old := range p.failures {
				if now.Sub(old.last) > failureMemory || len(p.failures) >= maxFailedHosts {
					delete(p.failures, h)
				}
			}
		}
		f = &hostFailures{}
		p.failures[host] = f
	}
	if now.Sub(f.last) > failureMemory {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(penaltyMin<<min(f.count-1, 10), penaltyMax), f.count
}

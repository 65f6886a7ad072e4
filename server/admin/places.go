package admin

import (
	"net"
	"net/http"
	"sync"

	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/server/web"
)

const (
	maxRequests = 128 // served at a time
	reserved    = 16  // connections beyond, for health and readiness
)

// LimitListener accepts at most 144 connections at a time, for a server that [Server] made. One more
// takes the place of a connection that waits for a request, or for the rest of a header; see
// [web.LimitListener]. So neither idle connections nor slow requests keep a probe out.
func LimitListener(l net.Listener) net.Listener {
	return web.PlainLimitListener(l, maxRequests+reserved, "too many connections; close some first")
}

// places are those of requests. Clients of one host have at most three quarters of them. Health and
// readiness need none.
type places struct {
	most int

	mu   sync.Mutex
	all  int
	host map[string]int
}

// take gives a request a place until leave is called. It returns nil if there is none.
func (p *places) take(r *http.Request) (leave func()) {
	host := clienthost.Of(r.RemoteAddr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most || p.host[host] >= max(1, p.most*3/4) {
		return nil
	}
	p.all++
	p.host[host]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.host[host]--; p.host[host] == 0 {
			delete(p.host, host)
		}
	}
}

package request

import (
	"context"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
)

// pager sends the pages of streams' snapshots, one connection after another, as long as each has
// room, and all together have. It has a goroutine of its own for each shard: reading a page holds
// the shard's log up for a moment, and an event loop must not wait for that.
type pager struct {
	host Shard
	wake chan struct{}

	mu     sync.Mutex
	queue  []*Client
	queued map[*Client]struct{} // all of the queue: a frozen bucket adds each connection that streams from it
}

// PageBytes is about the size of a snapshot's page.
const PageBytes = 128 << 10

func newPager(d Shard) *pager {
	return &pager{host: d, wake: make(chan struct{}, 1), queued: make(map[*Client]struct{})}
}

// add has the connection's due pages sent.
func (p *pager) add(c *Client) {
	p.mu.Lock()
	if _, ok := p.queued[c]; !ok {
		p.queued[c] = struct{}{}
		p.queue = append(p.queue, c)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pager) take() *Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	c := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	delete(p.queued, c)
	return c
}

func (p *pager) run(ctx context.Context) {
	for {
		var c *Client
		if p.host.Requests().server.transport.PageRoom(p.wake) {
			c = p.take()
		}
		if c == nil {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			}
			continue
		}
		for p.serve(c) {
			if !p.host.Requests().server.transport.PageRoom(p.wake) {
				p.add(c)
				break
			}
		}
	}
}

// serve sends one page, and reports whether there are more. Without room the connection's transport
// calls again when there is.
func (p *pager) serve(c *Client) (more bool) {
	d := p.host
	s := d.Requests().server
	defer s.Guard("page", func() {
		c.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect; reconnect")
		s.transport.Flush()
	})
	if c.Ending() || !hasRoom(c, d) {
		return false
	}
	// An answer to the request that opened a stream goes out before its first page.
	c.pageMu.Lock()
	defer c.pageMu.Unlock()
	sent, more := d.Hubs().CachedPage(c.ID(), PageBytes)
	if sent {
		s.transport.Flush()
		return more
	}
	d.Replica().Exclusive(func(m *shard.Machine) {
		more = d.Hubs().Page(c.ID(), m, PageBytes)
	})
	s.transport.Flush()
	return more
}

// hasRoom reports whether a page may be sent. If not, the shard is noted, to be served when there
// is room.
func hasRoom(c *Client, d Shard) bool {
	if c.HasRoom() {
		return true
	}
	c.duePagesMu.Lock()
	if !slices.Contains(c.duePages, d) {
		c.duePages = append(c.duePages, d)
	}
	c.duePagesMu.Unlock()
	c.AwaitRoom()
	return false
}

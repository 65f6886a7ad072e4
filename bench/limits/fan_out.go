package limits

import (
	"bytes"
	"context"
	"slices"

	"github.com/panjf2000/gnet/v2"
)

// ServeFanOut writes every message of MessageSize bytes to all watchers on addr until ctx ends. A
// message of zeros makes its connection one more watcher, and is answered with itself. There is one
// event loop, which writes to one connection after the other.
func ServeFanOut(ctx context.Context, addr string) error {
	f := &fanOut{}
	return f.serve(ctx, f, addr, 1)
}

type fanOut struct {
	eventLoops
	watchers []*watcher
	closed   bool // one of them is
}

type watcher struct {
	conn   gnet.Conn
	closed bool
}

// OnOpen implements gnet.EventHandler.
func (f *fanOut) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&watcher{conn: c})
	return nil, gnet.None
}

// OnClose implements gnet.EventHandler.
func (f *fanOut) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*watcher).closed, f.closed = true, true
	return gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (f *fanOut) OnTraffic(c gnet.Conn) gnet.Action {
	for c.InboundBuffered() >= MessageSize {
		b, err := c.Next(MessageSize)
		if err != nil {
			return gnet.Close
		}
		if bytes.Equal(b, make([]byte, MessageSize)) {
			f.watchers = append(f.watchers, c.Context().(*watcher))
			if _, err := c.Write(b); err != nil {
				return gnet.Close
			}
			continue
		}
		if f.closed {
			f.watchers = slices.DeleteFunc(f.watchers, func(w *watcher) bool { return w.closed })
			f.closed = false
		}
		for _, w := range f.watchers {
			_, _ = w.conn.Write(b) // the loop closes those that are broken
		}
	}
	return gnet.None
}

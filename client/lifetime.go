package client

import (
	"context"
	"sync"
)

// lifetime is that of a client: its context, and the goroutines that end with it.
type lifetime struct {
	ctx  context.Context // ends when the client is closed
	stop context.CancelCauseFunc

	closeMu    sync.Mutex
	closed     bool // no goroutine is started any more
	goroutines sync.WaitGroup
}

func newLifetime() *lifetime {
	l := new(lifetime)
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	return l
}

// run starts a goroutine that close waits for, and that must end with ctx. It is false, and nothing
// is started, when the client is closed.
func (l *lifetime) run(f func()) bool {
	l.closeMu.Lock()
	defer l.closeMu.Unlock()
	if l.closed {
		return false
	}
	l.goroutines.Go(f)
	return true
}

func (l *lifetime) isClosed() bool {
	l.closeMu.Lock()
	defer l.closeMu.Unlock()
	return l.closed
}

// beginClose lets no goroutine start any more. It is false when that is so already.
func (l *lifetime) beginClose() bool {
	l.closeMu.Lock()
	defer l.closeMu.Unlock()
	was := l.closed
	l.closed = true
	return !was
}

// What do the event loop and the system calls take at least?

package limits

import (
	"context"
	"runtime"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// ServeEcho answers every byte with itself on addr until ctx ends. It has an event loop for each
// core, as the fastest of gnet's own benchmarks. Without the reuse of addresses, which gnet does
// not ask for by itself, a port is refused for a minute after the connections that a server there
// closed.
func ServeEcho(ctx context.Context, addr string) error {
	e := &echo{booted: make(chan struct{})}
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-e.booted:
			_ = e.engine.Stop(context.WithoutCancel(ctx))
		case <-ended:
		}
	})
	defer stop()
	return gnet.Run(e, "tcp://"+addr, gnet.WithNumEventLoop(runtime.GOMAXPROCS(0)),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithReuseAddr(true), gnet.WithLogLevel(logging.ErrorLevel))
}

type echo struct {
	gnet.BuiltinEventEngine
	engine gnet.Engine
	booted chan struct{}
}

// OnBoot implements gnet.EventHandler.
func (e *echo) OnBoot(engine gnet.Engine) gnet.Action {
	e.engine = engine
	close(e.booted)
	return gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

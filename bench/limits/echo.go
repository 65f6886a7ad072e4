package limits

import (
	"context"
	"runtime"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// ServeEcho answers every byte with itself on addr until ctx ends.
func ServeEcho(ctx context.Context, addr string) error {
	e := &echo{}
	return e.serve(ctx, e, addr, runtime.GOMAXPROCS(0))
}

type echo struct{ eventLoops }

// eventLoops are those of the server that embeds them.
type eventLoops struct {
	gnet.BuiltinEventEngine
	engine gnet.Engine
	booted chan struct{}
}

// OnBoot implements gnet.EventHandler.
func (l *eventLoops) OnBoot(engine gnet.Engine) gnet.Action {
	l.engine = engine
	close(l.booted)
	return gnet.None
}

// serve runs so many event loops, without a delay of small writes, until ctx ends. The fastest of
// gnet's own benchmarks have one for each core. Without the reuse of addresses, which gnet does not
// ask for by itself, a port is refused for a minute after the connections that a server there
// closed.
func (l *eventLoops) serve(ctx context.Context, h gnet.EventHandler, addr string, loops int) error {
	l.booted = make(chan struct{})
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-l.booted:
			_ = l.engine.Stop(context.WithoutCancel(ctx))
		case <-ended:
		}
	})
	defer stop()
	return gnet.Run(h, "tcp://"+addr, gnet.WithNumEventLoop(loops), gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithReuseAddr(true), gnet.WithLogLevel(logging.ErrorLevel))
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

package limits

import (
	"context"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// ServeEcho answers every byte with itself on addr until ctx ends. ready is called once it listens.
func ServeEcho(ctx context.Context, addr string, ready func()) error {
	e := &echo{ready: ready}
	stop := context.AfterFunc(ctx, func() { _ = e.engine.Stop(context.WithoutCancel(ctx)) })
	defer stop()
	// An event loop for each core and no delay of small writes: what the fastest of gnet's own
	// benchmarks use.
	return gnet.Run(e, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithTCPNoDelay(gnet.TCPNoDelay), gnet.WithLogLevel(logging.ErrorLevel))
}

type echo struct {
	gnet.BuiltinEventEngine
	engine gnet.Engine
	ready  func()
}

func (e *echo) OnBoot(engine gnet.Engine) gnet.Action {
	e.engine = engine
	if e.ready != nil {
		e.ready()
	}
	return gnet.None
}

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

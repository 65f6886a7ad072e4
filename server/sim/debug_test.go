package sim

import (
	"fmt"
	"os"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

func (w *simulation) debugf(f string, a ...any) {
	if os.Getenv("SIMDEBUG") != "" {
		fmt.Printf("%d "+f+"\n", append([]any{w.now - begin}, a...)...)
	}
}

func (w *simulation) dump() {
	for _, h := range w.living() {
		if h.s == nil {
			continue
		}
		w.debugf(" %+v", *h.s)
		w.debugf("holder %d session %s err %v believes %v close %v", h.n, sessionName(h.s.ID), h.s.Err(), h.believes(), h.close)
		if !h.start.done || h.close != nil && !h.close.done {
			w.debugf(" start %+v", *h.start.request)
			if h.close != nil {
				w.debugf(" close %+v", *h.close.request)
			}
		}
		for i := range h.slots {
			t := &h.slots[i]
			for _, x := range []*call{t.acquire, t.other} {
				if x != nil {
					w.debugf("  slot %d %s done %v held %v %s", i, semaphores[t.name].name, x.done, x.held(), summary(x.request))
				}
			}
		}
	}
}

func (c *client) dumpConns() {
	for _, k := range c.conns {
		c.w.debugf("  conn %d core %p lost %v open %v broken %v in %v address %s readable %d", k.id, k.core, k.lost, k.open, k.broken, k.in != nil, k.address, len(k.readable))
	}
}

func summary(r *core.Request) string {
	return fmt.Sprint(*r)[:200]
}

func (in *instance) debugReq(k *conn, h protocol.Header) {
	if os.Getenv("SIMDEBUG") == "" {
		return
	}
	switch h.Kind {
	case protocol.KindSessionAttach:
		var m protocol.SessionAttach
		m.DecodeBody(h.Body)
		in.w.debugf("conn %d id %d instance %d: session %s attach epoch %d", k.id, h.ID, in.id, sessionName(m.Session), m.Epoch)
	case protocol.KindAcquire:
		var m protocol.Acquire
		m.DecodeBody(h.Body)
		in.w.debugf("conn %d id %d instance %d: session %s acquire %s seq %d low %d timeout %d", k.id, h.ID, in.id, sessionName(m.Session), m.Name, m.Seq, m.Low, m.Timeout)
	case protocol.KindRelease:
		var m protocol.Release
		m.DecodeBody(h.Body)
		in.w.debugf("conn %d id %d instance %d: session %s release %s seq %d low %d order %d", k.id, h.ID, in.id, sessionName(m.Session), m.Name, m.Seq, m.Low, m.OrderID)
	}
}

func debugDone(x *call) {
	if os.Getenv("SIMDEBUG") != "" {
		fmt.Printf("   done %s %+v\n", x.acquire.Msg.Name, summary(x.request))
	}
}

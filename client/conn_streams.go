package client

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

func (cn *conn) streamEvent(h protocol.Header) error {
	if h.Kind == protocol.KindDelta {
		return cn.deltaEvent(h)
	}
	cn.mu.Lock()
	st := cn.streams.byID[h.ID]
	cn.mu.Unlock()
	if st == nil {
		return nil // it was closed a moment ago
	}
	if h.Kind == protocol.KindStreamCut {
		var m protocol.StreamCut
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		st.cut(&protocol.Error{Status: m.Status, Message: m.Message})
		return nil
	}
	var m protocol.Snapshot
	if err := m.DecodeBody(h.Body); err != nil {
		return err
	}
	st.page(&m)
	return nil
}

func (cn *conn) deltaEvent(h protocol.Header) error {
	e := deltaEvents.Get().(*deltaEvent)
	m := &e.message
	if err := m.DecodeBodyAgain(h.Body); err != nil {
		return err
	}
	cn.mu.Lock()
	e.streams = cn.streams.matching(e.streams, h.Arg, m.Node, m.Name)
	cn.mu.Unlock()
	held := false
	if len(e.streams) > 0 {
		d := e.own()
		for _, st := range e.streams {
			if st.delta(d) {
				held = true
			}
		}
	}
	e.release(held)
	return nil
}

// dropStream makes the connection forget a stream; false if it had already.
func (cn *conn) dropStream(st *watchStream) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	removed := cn.streams.remove(st)
	cn.updatePeriod()
	return removed
}

// objectStreamEvent hands on an event. It is false when there is no such stream. The reader calls
// it.
func (cn *conn) objectStreamEvent(h protocol.Header) (bool, error) {
	cn.mu.Lock()
	f := cn.objectStreams[h.ID]
	cn.mu.Unlock()
	if f == nil {
		return false, nil
	}
	if h.Kind == protocol.KindStreamCut {
		var m protocol.StreamCut
		if err := m.DecodeBody(h.Body); err != nil {
			return true, err
		}
		cn.dropObjectStream(h.ID, f)
		f.cut(&protocol.Error{Status: m.Status, Message: m.Message})
		return true, nil
	}
	return true, f.event(h)
}

// dropObjectStream makes the connection forget a stream; false if it had already.
func (cn *conn) dropObjectStream(id uint64, f *objectStream) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.objectStreams[id] != f {
		return false
	}
	delete(cn.objectStreams, id)
	cn.updatePeriod()
	return true
}

func (cn *conn) fired(m *protocol.WatchFired) {
	cn.mu.Lock()
	o := cn.oneShots[m.WatchID]
	delete(cn.oneShots, m.WatchID)
	cn.mu.Unlock()
	if o != nil {
		o.fire(WatchResult{DataChanged: m.DataChanged, OwnersChanged: m.OwnersChanged})
	}
}

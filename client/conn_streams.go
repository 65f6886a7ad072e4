package client

import (
	"bytes"

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
	var m protocol.Delta
	if err := m.DecodeBody(h.Body); err != nil {
		return err
	}
	cn.mu.Lock()
	list := cn.streams.matching(nil, streamKey{h.Arg, m.Node, string(m.Name)})
	cn.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	d := &delta{name: string(m.Name), index: m.Index, changes: make([]change, len(m.Changes))}
	for i := range m.Changes {
		c := &m.Changes[i]
		d.changes[i] = change{c.Kind, attributes{c.Limit, c.Ephemeral, c.Version, bytes.Clone(c.Data)}, ownerOf(&c.Owner)}
	}
	for _, st := range list {
		st.delta(d)
	}
	return nil
}

// dropStream makes the connection forget a stream; false if it had already.
func (cn *conn) dropStream(st *watchStream) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.streams.remove(st)
}

// objectStreamEvent hands on an event. It is false when there is no such stream. It runs on the
// reader goroutine.
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

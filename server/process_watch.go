package server

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// processStreams are the streams over processes of one shard, on this instance. They are fed by the instance's own log, whoever leads.
//
// A stream starts with the state of its process, read and sent inside Exclusive, so that the changes which follow it are those of later entries. A connection that takes no
// more gets the state again when it has room. Lock order: that of a hub.
type processStreams struct {
	desk  *desk
	count atomic.Int64 // of streams, so that changes that nobody watches cost one load

	mu     sync.Mutex
	byName map[string][]*processStream // by node and name
	byConn map[uint64][]*processStream

	// Scratch of one call.
	describe protocol.ProcessDescribe
	state    protocol.ProcessState
	changes  protocol.ProcessChanges
}

// processStream is one opened ProcessWatch.
type processStream struct {
	conn, id uint64
	node     uint64
	name     string
	live     bool // the state was sent, and every change since
}

func newProcessStreams(d *desk) *processStreams {
	return &processStreams{desk: d, byName: make(map[string][]*processStream), byConn: make(map[uint64][]*processStream)}
}

// processKey names a process among those of a shard.
func processKey(node uint64, name []byte) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), node), name...))
}

// open opens a stream on a connection; id is the request's. Its state is due: the caller has the pager come. Errors: BAD_REQUEST, OVERLOADED.
func (t *processStreams) open(conn, id, node uint64, name []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	limits := &t.desk.srv.cfg.Limits
	key := processKey(node, name)
	switch {
	case slices.ContainsFunc(t.byConn[conn], func(s *processStream) bool { return s.id == id }):
		return protocol.Errorf(protocol.StatusBadRequest, "watch id %d is in use on this connection; each request needs its own", id)
	case len(t.byConn[conn]) >= limits.MaxStreams:
		return protocol.Errorf(protocol.StatusOverloaded, "streams per connection are limited to %d; close one", limits.MaxStreams)
	case len(t.byName[key]) >= limits.MaxWatchers:
		return protocol.Errorf(protocol.StatusOverloaded, "watchers per process are limited to %d; share a connection", limits.MaxWatchers)
	}
	s := &processStream{conn: conn, id: id, node: node, name: string(name)}
	t.byName[key] = append(t.byName[key], s)
	t.byConn[conn] = append(t.byConn[conn], s)
	t.count.Add(1)
	return nil
}

// close closes a stream, if there is one.
func (t *processStreams) close(conn, id uint64) {
	t.remove(func(s *processStream) bool { return s.id == id }, conn)
}

// connGone closes the streams of a connection.
func (t *processStreams) connGone(conn uint64) {
	t.remove(func(*processStream) bool { return true }, conn)
}

func (t *processStreams) remove(which func(*processStream) bool, conn uint64) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range slices.Clone(t.byConn[conn]) {
		if which(s) {
			t.drop(s)
		}
	}
}

// drop takes a stream out of the tables. mu is held.
func (t *processStreams) drop(s *processStream) {
	same := func(x *processStream) bool { return x == s }
	key := processKey(s.node, []byte(s.name))
	if t.byName[key] = slices.DeleteFunc(t.byName[key], same); len(t.byName[key]) == 0 {
		delete(t.byName, key)
	}
	if t.byConn[s.conn] = slices.DeleteFunc(t.byConn[s.conn], same); len(t.byConn[s.conn]) == 0 {
		delete(t.byConn, s.conn)
	}
	t.count.Add(-1)
}

// cut ends the streams of some processes, with the reason.
func (t *processStreams) cut(which func(node uint64, name []byte) bool, status protocol.Status, text string) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.byName {
		for _, s := range slices.Clone(list) {
			if which(s.node, []byte(s.name)) {
				t.cutStream(s, status, text)
			}
		}
	}
}

// cutStream ends a stream with the reason. mu is held.
func (t *processStreams) cutStream(s *processStream, status protocol.Status, text string) {
	t.drop(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, t.desk.id, &protocol.StreamCut{Status: status, Message: text})
	t.desk.Send(s.conn, frame, false)
}

// restart has all streams begin with the state again: changes were missed.
func (t *processStreams) restart() {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, list := range t.byConn {
		for _, s := range list {
			s.live = false
		}
		t.desk.PagesDue(t.desk.id, conn)
	}
}

// page sends the state of one stream of the connection that waits for it, and says whether others do. Called inside Exclusive.
func (t *processStreams) page(conn uint64, m *shard.Machine) (more bool) {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := func(s *processStream) bool { return !s.live }
	i := slices.IndexFunc(t.byConn[conn], waits)
	if i < 0 {
		return false
	}
	t.tellState(t.byConn[conn][i], m)
	return slices.ContainsFunc(t.byConn[conn], waits)
}

// tellState sends the state of a stream's process, in as many pages as it takes: together they are below a mebibyte. mu is held.
func (t *processStreams) tellState(s *processStream, m *shard.Machine) {
	q, out := &t.describe, &t.state
	*q = protocol.ProcessDescribe{Node: s.node, Name: []byte(s.name), Flags: protocol.WithProcessMembers | protocol.WithProcessHistory}
	for first := true; ; first = false {
		out.Status = protocol.ProcessStatus{Members: out.Status.Members[:0], History: out.Status.History[:0]}
		err := m.DescribeProcess(q, &out.Status)
		out.First, out.Exists = first, err == nil
		if err != nil {
			_, known := m.Node(s.node)
			if status := protocol.StatusOf(err); status != protocol.StatusNotFound || !known {
				t.cutStream(s, status, err.Error())
				return
			}
			out.Status = protocol.ProcessStatus{Index: m.AppliedIndex(), Name: q.Name, Clock: m.LogTime()}
		}
		q.Cursor = bytes.Clone(out.Status.Cursor)
		out.Last = len(q.Cursor) == 0
		t.desk.Send(s.conn, protocol.AppendFrame(nil, protocol.KindProcessState, s.id, t.desk.id, out), false)
		if out.Last {
			s.live = true
			return
		}
	}
}

// changed tells what an entry changed. Called in log order, by the goroutine that applies.
func (t *processStreams) changed(rep *replica.Shard, index uint64, list []shard.ProcessChange) {
	if len(list) == 0 || t.count.Load() == 0 {
		return
	}
	wall := uint64(0)
	rep.View(func(m *shard.Machine) { wall = m.Wall() })
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(list); {
		x := &list[i]
		t.changes = protocol.ProcessChanges{Revision: index, Wall: wall, Changes: t.changes.Changes[:0]}
		for ; i < len(list) && list[i].Node == x.Node && bytes.Equal(list[i].Name, x.Name); i++ {
			t.changes.Changes = append(t.changes.Changes, shard.ProcessChangeMessage(&list[i].Change))
		}
		for _, s := range t.byName[processKey(x.Node, x.Name)] {
			if s.live && !t.desk.Send(s.conn, protocol.AppendFrame(nil, protocol.KindProcessChanges, s.id, t.desk.id, &t.changes), true) {
				s.live = false
				t.desk.PagesDue(t.desk.id, s.conn)
			}
		}
	}
}

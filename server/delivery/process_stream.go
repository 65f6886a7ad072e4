package delivery

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// ProcessStreams are the streams over processes of one shard, on this instance. The instance's own
// log feeds them, whichever instance leads.
type ProcessStreams struct {
	ObjectStreams[struct{}]

	// Buffers of one call.
	describe protocol.ProcessDescribe
	state    protocol.ProcessState
	changes  []protocol.ProcessChange
}

func newProcessStreams(h *Hubs) *ProcessStreams {
	t := &ProcessStreams{ObjectStreams: newObjectStreams[struct{}](h,
		objectKind{what: "process", use: "watch", bucket: protocol.ProcessBucket})}
	t.sendState = t.sendProcess
	return t
}

// sendProcess sends the state of a stream's process, in as many pages as it takes: together they
// are below a mebibyte. mu is held.
func (p *ProcessStreams) sendProcess(s *objectStream[struct{}], m *shard.Machine) {
	q, out := &p.describe, &p.state
	*q = protocol.ProcessDescribe{Node: s.node, Name: []byte(s.name),
		Flags: protocol.WithProcessMembers | protocol.WithProcessHistory}
	for first := true; ; first = false {
		out.Status = protocol.ProcessStatus{Members: out.Status.Members[:0], History: out.Status.History[:0]}
		err := m.Processes().Describe(q, &out.Status)
		out.First, out.Exists = first, err == nil
		if err != nil {
			_, known := m.Nodes().Config(s.node)
			if status := protocol.StatusOf(err); status != protocol.StatusNotFound || !known {
				p.cutStream(s, status, err.Error())
				return
			}
			out.Status = protocol.ProcessStatus{Index: m.AppliedIndex(), Name: q.Name, Clock: m.LogTime()}
		}
		q.Cursor = bytes.Clone(out.Status.Cursor)
		out.Last = len(q.Cursor) == 0
		p.send.Send(s.conn, protocol.AppendFrame(nil, protocol.KindProcessState, s.id, p.shard, out), false)
		if out.Last {
			s.live = true
			return
		}
	}
}

func (p *ProcessStreams) changed(machine Viewer, index uint64, ev *shard.Events) {
	list := ev.ProcessChanges
	if len(list) == 0 || p.count.Load() == 0 {
		return
	}
	wall := uint64(0)
	machine.View(func(m *shard.Machine) { wall = m.Wall() })
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(list); {
		x := &list[i]
		p.changes = p.changes[:0]
		for ; i < len(list) && list[i].Node == x.Node && bytes.Equal(list[i].Name, x.Name); i++ {
			p.changes = append(p.changes, list[i].ProcessChange)
		}
		watching := p.byName[NameKey(x.Node, x.Name)][struct{}{}]
		if len(watching) == 0 {
			continue
		}
		for rest := p.changes; len(rest) > 0; {
			change := protocol.ProcessChanges{Revision: index, Wall: wall}
			change.Changes, rest = splitFrame(rest, processChangeSize)
			body := protocol.AppendBody(nil, &change)
			for _, s := range watching {
				p.sendChange(s, protocol.KindProcessChanges, body)
			}
		}
	}
}

// processChangeSize is about the bytes of a change in a frame.
func processChangeSize(c *protocol.ProcessChange) int { return changeCost + len(c.Text) }

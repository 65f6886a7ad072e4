package shard

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/process"
)

func appendProcess(b []byte, x *processRecord, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, x.node.id)
	b = varint.AppendBytes(b, x.name)
	b = varint.Append(b, x.revision)
	b = x.state.Append(b)
	return closeRecord(b, start, 0, recordProcess, 0, sum)
}

func (m *Machine) touchProcess(x *processRecord) {
	if m.snapshot != nil && x.snapMark != m.snapMark {
		m.snapshot.saveProcess(x)
	}
}

func (s *Snapshot) saveProcess(x *processRecord) {
	if x.snapMark != s.snapMark {
		x.snapMark = s.snapMark
		s.records++
		s.buf = appendProcess(s.buf, x, &s.sum)
	}
}

// walkProcesses goes on over the node's processes. A record is below a mebibyte, so a step is at
// most that much longer.
func (s *Snapshot) walkProcesses(n *node, left *int) (more bool) {
	n.processes.ascend(func(o *processRecord) bool { return bytes.Compare(o.name, s.name) < 0 }, func(o *processRecord) bool {
		if more = *left <= 0 || len(s.buf) >= stepBytes; more {
			return false
		}
		*left--
		s.name = append(append(s.name[:0], o.name...), 0)
		s.saveProcess(o)
		return true
	})
	return more
}

type processLink struct {
	x    *processRecord
	node uint64
}

func (x *restorer) process(r *varint.Reader) bool {
	l := processLink{x: new(processRecord), node: r.Uint()}
	l.x.name, l.x.revision = bytes.Clone(r.Bytes(varint.NoLimit)), r.Uint()
	if r.Failed || protocol.ValidateProcessName(l.x.name) != nil {
		return false
	}
	state, err := process.Decode(r.Rest)
	r.Rest = nil
	l.x.state = state
	x.processes = append(x.processes, l)
	return err == nil
}

func (x *restorer) linkProcesses() bool {
	m := x.m
	slices.SortFunc(x.processes, func(a, b processLink) int {
		if c := compare(a.node, b.node); c != 0 {
			return c
		}
		return bytes.Compare(a.x.name, b.x.name)
	})
	var ids []uint64
	for _, l := range x.processes {
		p := l.x
		if p.node = x.nodes[l.node]; p.node == nil || len(m.buckets) == 0 {
			return false
		}
		p.bucket = &m.buckets[protocol.ProcessBucket(l.node, p.name, uint32(len(m.buckets)))]
		if m.process(p.bucket, l.node, p.name) != nil {
			return false
		}
		m.linkProcess(p)
		ids = p.state.LiveSessions(ids[:0])
		for _, id := range ids {
			o := m.sessions[id]
			if o == nil || o.node != p.node || !o.addMembership(p) {
				return false
			}
		}
		m.armProcess(p)
	}
	return true
}

// process puts a process into a chunk, behind what is known of its members.
func (w *chunkWriter) process(m *Machine, x *processRecord) {
	for _, id := range x.state.LiveSessions(nil) {
		if p := m.sessions[id]; !w.writtenSessions[id] {
			w.sessionRecord(p, nil)
		}
	}
	f := varint.Append(w.fields, x.node.id)
	f = varint.AppendBytes(f, x.name)
	w.put(chunkProcess, x.state.Append(f))
}

func (c *chunkRecord) readProcess(r *varint.Reader, x *BucketsBody) bool {
	c.node, c.name = r.Uint(), r.Bytes(varint.NoLimit)
	c.data = r.Rest
	r.Rest = nil
	return !r.Failed && protocol.ValidateProcessName(c.name) == nil && x.contains(uint64(protocol.ProcessBucket(c.node, c.name, x.Total)))
}

// processes gives the run's processes, bucket by bucket, in order of key.
func (x *export) processes() bool {
	for i := max(uint64(x.bucketRange.First), x.cursor.bucket); i < uint64(x.bucketRange.First)+uint64(x.bucketRange.Count); i++ {
		if i != x.cursor.bucket {
			x.cursor = exportCursor{section: sectionProcesses, bucket: i}
		}
		b := &x.m.buckets[i]
		for more := true; more; {
			var keys []string
			keys, more = keysFrom(b.processes, x.cursor.key)
			for _, key := range keys {
				if x.w.full() {
					return false
				}
				x.w.scanBudget--
				if o := b.processes[key]; !o.node.dropped {
					x.w.scanBudget -= o.state.Len()
					x.w.process(x.m, o)
				}
				x.cursor.key = append([]byte(key), 0) // the first key behind it
			}
		}
	}
	return true
}

// importProcess adds a process with its members' places. One that does not fit to what is here is
// left out whole.
func (m *Machine) importProcess(r *chunkRecord) {
	n := m.nodes[r.node]
	if n == nil {
		return
	}
	b := &m.buckets[protocol.ProcessBucket(r.node, r.name, uint32(len(m.buckets)))]
	state, err := process.Decode(r.data)
	if err != nil || m.process(b, r.node, r.name) != nil {
		return
	}
	ids := state.LiveSessions(nil)
	for _, id := range ids {
		if p := m.sessions[id]; p == nil || p.node != n {
			return
		}
	}
	x := &processRecord{bucket: b, node: n, name: bytes.Clone(r.name), state: state, revision: m.applied, snapMark: m.snapMark}
	m.linkProcess(x)
	for _, id := range ids {
		m.addMembership(m.sessions[id], x)
	}
	m.armProcess(x)
}

// checkProcess says which invariant of a process does not hold, if any.
func (m *Machine) checkProcess(x *processRecord) error {
	if err := x.state.Check(); err != nil {
		return err
	}
	for _, id := range x.state.LiveSessions(nil) {
		p := m.sessions[id]
		if p == nil || p.node != x.node {
			return fmt.Errorf("member %d is no session here", id)
		}
		if i, found := p.memberships().find(x.name); !found || p.memberships()[i] != x {
			return fmt.Errorf("member %d does not know of its place", id)
		}
	}
	at, ok := x.state.Next()
	switch {
	case ok != (x.timer.pos != 0) || ok && x.timer.at != max(at, 1)-1:
		return fmt.Errorf("it is due at %d (%v), and its timer is at %d", at, ok, x.timer.at)
	case x.called || x.deleted:
		return fmt.Errorf("it is called or deleted, and still there")
	}
	return nil
}

// checkMemberships says that each of the session's processes has it as a member.
func (m *Machine) checkMemberships(p *sessionRecord) error {
	var last *processRecord
	for _, x := range p.memberships() {
		if last != nil && !processLess(last, x) || m.process(x.bucket, p.node.id, x.name) != x || x.state.JoinOrder(p.id) == 0 {
			return fmt.Errorf("place in %q is wrong", x.name)
		}
		last = x
	}
	if p.holdings != nil && !p.hasReferences() {
		return fmt.Errorf("it keeps an empty set of holdings")
	}
	return nil
}

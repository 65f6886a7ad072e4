package shard

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
)

// restart replaces the machine by what its snapshot restores to.
func (h *history) restart() error {
	h.note("restart")
	m, err := restored(h.machine)
	if err != nil {
		return err
	}
	if a, b := h.machine.Digest(), m.Digest(); a != b {
		return fmt.Errorf("digest %x, restored it is %x", a, b)
	}
	h.machine = m
	// Counters are no part of the state.
	for _, s := range h.m.sems {
		s.counts, s.detail = [3]uint64{}, nil
	}
	return nil
}

func restored(m *Machine) (*Machine, error) {
	var buf bytes.Buffer
	if err := m.BeginSnapshot().WriteTo(&buf, new(sync.Mutex)); err != nil {
		return nil, err
	}
	return Restore(&buf)
}

// snapshotWhileApplying writes a snapshot record by record, with batches in between, and applies
// the rest of the log to what it restores to.
func (h *history) snapshotWhileApplying(between func() error) error {
	h.note("snapshot begins")
	at, m := h.index, h.machine
	digest := m.Digest()
	s := m.BeginSnapshot()
	var buf bytes.Buffer
	size := 1 + h.n(8)
	for s.stage != stageDone {
		if h.n(4) == 3 {
			if err := between(); err != nil {
				return err
			}
		}
		left := size
		s.walk(&left)
	}
	full := s.appendEnd(s.buf)
	s.Close()
	buf.Write(snapshotIntro(FormatVersion))
	if err := writeChunks(&buf, full); err != nil {
		return err
	}
	h.note("snapshot ends")
	copied, err := Restore(&buf)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if got := copied.Digest(); got != digest {
		return fmt.Errorf("digest %x, restored from a snapshot written while applying %x", digest, got)
	}
	var out Events
	for i := at; i < h.index; i++ {
		out.Reset()
		copied.Apply(i+1, h.log[i], &out)
	}
	if a, b := m.Digest(), copied.Digest(); a != b {
		return fmt.Errorf("digest %x, snapshot and the rest of the log give %x", a, b)
	}
	setRing(copied, 2)
	h.replica = copied
	return nil
}

// mutate applies entries with bytes changed at random to two copies of the machine, and restores a
// snapshot with bytes changed.
func (h *history) mutate() error {
	h.note("changed bytes")
	var buf bytes.Buffer
	if err := h.machine.BeginSnapshot().WriteTo(&buf, new(sync.Mutex)); err != nil {
		return err
	}
	saved := buf.Bytes()
	a, err := Restore(bytes.NewReader(saved))
	if err != nil {
		return err
	}
	b, err := Restore(bytes.NewReader(saved))
	if err != nil {
		return err
	}
	var x, y Events
	index := h.index
	for range 1 + h.n(8) {
		entry := bytes.Clone(h.log[h.n(len(h.log))])
		if h.chance(50) {
			var ops []op
			for range 1 + h.n(4) {
				ops = append(ops, h.op())
			}
			entry = encode(h.header(h.stamp()), ops)
		}
		for range 1 + h.n(3) {
			entry = h.damage(entry)
		}
		index++
		x.Reset()
		y.Reset()
		a.Apply(index, entry, &x)
		b.Apply(index, bytes.Clone(entry), &y)
		if err := sameText(x.List, y.List); err != nil {
			return err
		}
		if a.Digest() != b.Digest() {
			return fmt.Errorf("digests differ after %x", entry)
		}
		if a.AppliedIndex() != index {
			return fmt.Errorf("applied index %d after %d", a.AppliedIndex(), index)
		}
	}
	if _, err := restored(a); err != nil {
		return fmt.Errorf("restore after changed bytes: %w", err)
	}
	return h.damagedSnapshot(saved)
}

// damagedSnapshot restores bytes that are wrong under checksums that are right.
func (h *history) damagedSnapshot(saved []byte) error {
	var records []byte
	for b := saved[introLen:]; len(b) > 0; {
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		records = append(records, b[8:8+n]...)
		b = b[8+n:]
	}
	for range 1 + h.n(2) {
		records = h.damage(records)
	}
	buf := bytes.NewBuffer(snapshotIntro(FormatVersion))
	if err := writeChunks(buf, records); err != nil {
		return err
	}
	m, err := Restore(buf)
	if err != nil {
		return nil
	}
	var out Events
	for i, entry := range h.log[max(0, len(h.log)-5):] {
		m.Apply(m.AppliedIndex()+uint64(i)+1, entry, &out)
	}
	return nil
}

func (h *history) damage(b []byte) []byte {
	b = slices.Clone(b)
	if len(b) == 0 {
		return []byte{byte(h.n(256))}
	}
	at := h.n(len(b))
	switch h.n(5) {
	case 0:
		b[at] ^= 1 << h.n(8)
	case 1:
		b[at] = byte(h.n(256))
	case 2:
		b = b[:at]
	case 3:
		b = slices.Insert(b, at, pick[byte](h.gen, 0, 0xff, 0x80, 1))
	default:
		to := at + h.n(len(b)-at)
		b = slices.Insert(b, at, b[at:to]...)
	}
	return b
}

package replica

import (
	"io"
	"sync"

	"github.com/signalbox-dev/signalbox/shard"
)

// lockedMachine is the machine of a shard and the lock under which it changes.
type lockedMachine struct {
	// mu guards the machine. Apply and the steps of a snapshot hold it for writing, readers for
	// reading.
	mu      sync.RWMutex
	machine *shard.Machine
	backup  *shard.Snapshot // being written, while the engine writes no snapshot
}

func (m *lockedMachine) view(fn func(m *shard.Machine)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.machine)
}

func (m *lockedMachine) epoch() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.machine.Epoch()
}

func (m *lockedMachine) appliedIndex() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.machine.AppliedIndex()
}

// apply applies an entry, and returns the epoch before it, and the epoch and the log time after it.
func (m *lockedMachine) apply(index uint64, entry []byte, ev *shard.Events) (before, epoch, logTime uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.machine.Epoch()
	m.machine.Apply(index, entry, ev)
	return before, m.machine.Epoch(), m.machine.LogTime()
}

// replace puts a restored machine in place of this one.
func (m *lockedMachine) replace(restored *shard.Machine) (epoch, logTime uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine = restored
	return restored.Epoch(), restored.LogTime()
}

// prepareSnapshot begins the engine's snapshot. A backup that is being written is aborted.
func (m *lockedMachine) prepareSnapshot() *shard.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.backup != nil {
		m.backup.Close()
		m.backup = nil
	}
	return m.machine.BeginSnapshot()
}

func (m *lockedMachine) closeSnapshot(snap *shard.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	snap.Close()
}

// writeBackup writes a snapshot that is not the engine's, and returns the index of its last entry.
func (m *lockedMachine) writeBackup(w io.Writer) (index uint64, err error) {
	m.mu.Lock()
	snap := m.machine.BeginSnapshot()
	index = m.machine.AppliedIndex()
	if !snap.Busy() { // the backup before it may still write its copies
		m.backup = snap
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.backup == snap {
			m.backup = nil
		}
	}()
	return index, snap.WriteTo(w, &m.mu)
}

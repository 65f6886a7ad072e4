package replica

import (
	"io"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Backup writes a snapshot of the machine while the log goes on, and returns the index of its last
// entry. It returns StatusUnavailable, to be retried, while another backup or a snapshot of the
// engine is being written, and if one begins meanwhile.
func (s *Shard) Backup(w io.Writer) (index uint64, err error) {
	s.mu.Lock()
	snap := s.machine.BeginSnapshot()
	index = s.machine.AppliedIndex()
	if s.backup == nil {
		s.backup = snap
	}
	s.mu.Unlock()
	if err := snap.WriteTo(&stoppableWriter{w: w, stop: s.stopC}, &s.mu); err != nil {
		err = protocol.Errorf(protocol.StatusUnavailable, "backup of shard %d: %v", s.cfg.ID, err)
		s.endBackup(snap)
		return 0, err
	}
	s.endBackup(snap)
	return index, nil
}

func (s *Shard) endBackup(snap *shard.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backup == snap {
		s.backup = nil
	}
}

// yieldBackup aborts a backup for the engine's snapshot. The caller holds mu.
func (s *Shard) yieldBackup() {
	if s.backup != nil {
		s.backup.Close()
		s.backup = nil
	}
}

// Backup writes a snapshot of the map and returns the index of its last entry.
func (m *Meta) Backup(w io.Writer) (index uint64, err error) {
	m.mu.RLock()
	snap := m.machine.BeginSnapshot()
	index = m.machine.AppliedIndex()
	m.mu.RUnlock()
	_, err = snap.WriteTo(w)
	return index, err
}

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Files of the data folder that belong to the audit log.
const (
	generationFile = "audit-generation"
	positionFile   = "audit-position"
)

// auditLog is the audit log of this instance. The zero value writes nothing.
type auditLog struct {
	log      *audit.Log
	position *audit.Position // nil: nothing survives the process
	warn     func(msg string, args ...any)
	restart  bool // the folder had a log before this start

	applied atomic.Uint64 // index of the last entry that was written of, or passed over
}

// openAudit opens the audit log, once it is known which instance this is.
func (s *Server) openAudit(context.Context) error {
	if s.cfg.Audit == "" {
		return nil
	}
	cfg := audit.Config{Destination: s.cfg.Audit, Instance: s.instance, Generation: 1, Logger: s.log}
	if !s.inMemory() {
		var err error
		if cfg.Generation, err = audit.Generation(filepath.Join(s.cfg.DataDir, generationFile)); err != nil {
			return err
		}
		if s.audit.position, err = audit.OpenPosition(filepath.Join(s.cfg.DataDir, positionFile)); err != nil {
			return err
		}
		s.audit.applied.Store(s.audit.position.Index())
		_, err = os.Stat(filepath.Join(s.cfg.DataDir, "raft"))
		if s.audit.restart = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	l, err := audit.Open(cfg)
	if err != nil {
		return err
	}
	s.audit.log, s.audit.warn = l, s.log.Warn
	l.Write(audit.InitAudit)
	l.Write(audit.LocalStartup)
	if s.audit.restart {
		l.Write(audit.ConnectLocalDB)
	}
	s.running.Go(func() { s.audit.savePositions(s.ctx) })
	return nil
}

// ReopenAudit opens the file of the audit log again, after it was renamed. Without an audit log that goes to a file it does nothing.
func (s *Server) ReopenAudit() error { return s.audit.log.Reopen() }

func (a *auditLog) write(e audit.Event) { a.log.Write(e) }

// auditRecovery notes that what was in the folder is applied.
func (s *Server) auditRecovery(context.Context) error {
	if s.audit.restart {
		s.audit.write(audit.RecoverLocalDB)
	}
	return nil
}

// metaApplied is told of each entry of the meta shard that was applied here, in their order. After a restart the engine applies again what came after its last snapshot: that
// was written of before.
func (a *auditLog) metaApplied(index uint64, before, after *meta.State) {
	if index <= a.applied.Load() {
		return
	}
	a.applied.Store(index)
	for _, e := range audit.Topology(meta.Audit(before, after, index)) {
		a.log.Write(e)
	}
}

// savePositionPeriod is how often the place in the log is kept: what a crash may have written twice is what was applied within it.
const savePositionPeriod = time.Second

// savePositions notes how far the audit log is, until ctx ends.
func (a *auditLog) savePositions(ctx context.Context) {
	for sleep(ctx, savePositionPeriod) == nil {
		a.savePosition()
	}
}

func (a *auditLog) savePosition() {
	if a.position == nil {
		return
	}
	if err := a.position.Set(a.applied.Load()); err != nil {
		a.warn("place of the audit log is not kept, events will be there twice after a restart", "error", err)
	}
}

// close writes what waits. Nothing is applied any more.
func (a *auditLog) close() {
	if a.log == nil {
		return
	}
	if err := a.log.Close(); err != nil {
		a.warn("audit log is not complete", "error", err)
	}
	a.savePosition()
}

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
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
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

	applied atomic.Uint64 // index of the last entry that was handled
}

// open opens the audit log that the configuration asks for.
func (a *auditLog) open(c *Config, instance uint64) (err error) {
	cfg := audit.Config{Destination: c.Audit, Instance: instance, Generation: 1, Logger: c.Logger}
	if !c.inMemory() {
		if cfg.Generation, err = audit.Generation(filepath.Join(c.DataDir, generationFile)); err != nil {
			return err
		}
		if a.position, err = audit.OpenPosition(filepath.Join(c.DataDir, positionFile)); err != nil {
			return err
		}
		a.applied.Store(a.position.Index())
		_, err = os.Stat(filepath.Join(c.DataDir, datafolder.RaftDir))
		if a.restart = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	if a.log, err = audit.Open(cfg); err != nil {
		return err
	}
	a.warn = c.Logger.Warn
	a.write(audit.InitAudit)
	a.write(audit.LocalStartup)
	if a.restart {
		a.write(audit.ConnectLocalDB)
	}
	return nil
}

func (a *auditLog) write(e audit.Event) { a.log.Write(e) }

// metaApplied is called with each entry of the meta shard that is applied here, in log order. After
// a restart the engine repeats the entries after its last snapshot: those were written before.
func (a *auditLog) metaApplied(index uint64, before, after *meta.State) {
	if index <= a.applied.Load() {
		return
	}
	for _, e := range audit.Topology(meta.Audit(before, after, index)) {
		a.log.Write(e)
	}
	a.applied.Store(index) // after them: they are queued when a position is taken
}

// savePositionPeriod is how often the position in the log is saved. A crash may write the events of
// this period twice.
const savePositionPeriod = time.Second

// savePositions saves the position in the meta shard's log until ctx ends. A position is saved once
// all events before it are written: those after it come again when the process ends.
func (a *auditLog) savePositions(ctx context.Context) {
	var index, events uint64
	for beat.Sleep(ctx, beat.Next(savePositionPeriod)) {
		if index == 0 {
			index = a.applied.Load()
			events, _ = a.log.Position()
		}
		if _, written := a.log.Position(); written >= events {
			a.savePosition(index)
			index = 0
		}
	}
}

func (a *auditLog) savePosition(index uint64) {
	if a.position == nil {
		return
	}
	if err := a.position.Set(index); err != nil {
		a.warn("position of the audit log is not kept, events will be there twice after a restart", "error", err)
	}
}

// close writes the waiting lines. Events of entries applied beside it or later may be lost, and
// come again after a restart.
func (a *auditLog) close() {
	if a.log == nil {
		return
	}
	index := a.applied.Load()
	events, _ := a.log.Position()
	if err := a.log.Close(); err != nil {
		a.warn("audit log is not complete", "error", err)
	}
	if _, written := a.log.Position(); written >= events {
		a.savePosition(index)
	}
}

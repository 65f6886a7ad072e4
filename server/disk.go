package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

const (
	// slowDiskAfter is how long a write to the log may take until this instance says that it is not ready. After logstore's limit it ends.
	slowDiskAfter = 5 * time.Second
	// leaveInterval is the time between two instances of a cluster whose disks fill at the same time: the later one looks whether the earlier one has gone.
	leaveInterval = 10 * time.Second
)

// unservable is an error about a log that this instance must not go on with, and what an operator can do then.
type unservable struct {
	error
	recover string // the command that reads what is left
}

func (e *unservable) Unwrap() error { return e.error }

func (e *unservable) Error() string {
	return fmt.Sprintf("%v; if other instances of the cluster are left, expel this one and let it join on a new data folder; if none is, restore a backup, or make one of this folder with %q",
		e.error, e.recover)
}

// withRecovery adds to an error about the log what can be done.
func withRecovery(err error) error {
	switch e := (*unservable)(nil); {
	case errors.As(err, &e):
		return err
	case errors.Is(err, logstore.ErrRolledBack), errors.Is(err, logstore.ErrNoWatermark):
		return &unservable{err, "signalbox cluster recover --accept-loss"}
	case errors.Is(err, logstore.ErrDamaged):
		return &unservable{err, "signalbox cluster recover"}
	}
	return err
}

// leaveFullDisk is called when the disk's free space has fallen below the low mark. What this instance has goes to others as with Shutdown, if they can do without it; else it
// serves until the least mark, at which it has to end.
func (s *Server) leaveFullDisk(space logstore.Space) {
	s.log.Warn("the disk of the log is nearly full; make room", "free", space.Free, "total", space.Total, "ends_below", space.Least)
	for !s.ready.Load() {
		if sleep(s.ctx, time.Second) != nil {
			return
		}
	}
	state := s.meta.State()
	turn := 0
	for _, i := range state.Instances() {
		if i.Current.Variant == meta.Online && i.ID < s.instance {
			turn++
		}
	}
	if sleep(s.ctx, time.Duration(turn)*leaveInterval) != nil {
		return
	}
	if now, ok := s.host.Space(); ok && now.Free >= now.Low {
		return
	}
	if why := s.neededFor(s.meta.State()); why != "" {
		s.log.Warn("this instance goes on with a nearly full disk", "reason", why)
		return
	}
	s.stopOnce.Do(func() { // nobody stops it yet
		s.cause = fmt.Errorf("%w: %v; what was here went to other instances; make room, then start again", logstore.ErrNoSpace, space)
		s.leaving.Store(true)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.cfg.Limits.DrainTimeout)
		defer cancel()
		s.end(func() {
			s.handOver(ctx)
			s.draining.Store(true)
			s.drain(ctx)
		})
	})
}

// neededFor says which shard would have no majority without this instance; empty when there is none.
func (s *Server) neededFor(state *meta.State) string {
	health, now := s.member.Instances().Health(), s.clock.Now()
	for _, x := range append(state.Shards(), state.MetaShard()) {
		if own, ok := x.On(s.instance); !ok || own.Role != meta.RoleVoter {
			continue
		}
		voters, others := 0, 0
		for _, r := range x.Replicas {
			if r.Role != meta.RoleVoter {
				continue
			}
			voters++
			i, _ := state.Instance(r.Instance)
			h, heard := health[r.Instance]
			if r.Instance != s.instance && i.Current.Variant == meta.Online && (!heard || now-h.Heard <= missedAfter) {
				others++
			}
		}
		if others <= voters/2 {
			return fmt.Sprintf("shard %d has %d voters, and without this instance %d of them are up", x.ID, voters, others)
		}
	}
	return ""
}

// writeDisk tells of the disk of the log.
func (m *serverMetrics) writeDisk(w io.Writer) {
	h := m.server.host
	if h == nil {
		return
	}
	metrics.WriteGaugeFloat64(w, "signalbox_log_write_waiting_seconds", h.DiskWaiting().Seconds())
	if sp, ok := h.Space(); ok {
		metrics.WriteGaugeUint64(w, "signalbox_disk_free_bytes", sp.Free)
		metrics.WriteGaugeUint64(w, "signalbox_disk_bytes", sp.Total)
	}
}

func (m *serverMetrics) logWritten(d time.Duration) { m.logWrite.Update(d.Seconds()) }

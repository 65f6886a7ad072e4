package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Shutdown stops gracefully. Ready says no at once. What this instance leads, and its vote, go to others while it goes on serving; then the cluster has it Offline, requests
// are turned away with UNAVAILABLE, those in the log are answered, every client is told goodbye, and the shards are closed. An instance that is alone, expelled, or has no
// majority to talk to skips to the goodbyes. It takes Config.ShutdownTimeout at most; when ctx ends before, what is left is the closing of the log, which may take a sixth of that
// timeout. ErrClosing says that it takes longer. Sessions live on for their timeouts: clients attach them again elsewhere, or here when the server is back.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.Store(true)
	limit := s.cfg.Limits.DrainTimeout
	end := time.Now().Add(limit)
	closed := make(chan error, 1)
	draining := make(chan struct{})
	var drained sync.Once
	go func() {
		defer drained.Do(func() { close(draining) }) // stopped by somebody else
		closed <- s.stop(func() {
			handing, cancel := context.WithDeadline(ctx, end.Add(-limit/3))
			s.handOver(handing)
			s.stampHandOver(handing)
			cancel()
			s.draining.Store(true)
			goodbyes, cancel := context.WithDeadline(ctx, end.Add(-limit/6))
			s.drain(goodbyes)
			cancel()
			drained.Do(func() { close(draining) })
		})
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-draining:
		t.Reset(max(time.Until(end), limit/6))
	case <-t.C: // another call of Shutdown or Close is at it
		t.Reset(0)
	}
	select {
	case err := <-closed:
		return err
	case <-t.C:
		s.log.Warn("stopping takes too long, the log is still being closed", "limit", limit)
		return ErrClosing
	}
}

// ErrClosing says that a server has stopped serving, and is still closing its log at the end of the time for its stop. The process may end: everything that was answered is on disk. In
// a process that goes on, Done is closed when the log is.
var ErrClosing = errors.New("server has stopped, and is still closing its log; ending the process is safe")

// Close stops at once. What was answered is in the log; clients see their connections close.
func (s *Server) Close() error { return s.stop(nil) }

const (
	// offlineLinger is how long an instance that the cluster has Offline goes on serving, so that the other instances, and clients by them, have heard of it.
	offlineLinger = 100 * time.Millisecond
	// handOverPoll is how often the state of a hand-over is looked at when nothing changes.
	handOverPoll = 100 * time.Millisecond
	// stampTimeout is how long the logs of the shards that nobody took may need to hear of the stop.
	stampTimeout = 200 * time.Millisecond
)

// handOver has the cluster take over what this instance has, and returns when it has, when it cannot, or when most of the time that ctx leaves is over.
func (s *Server) handOver(ctx context.Context) {
	if !s.ready.Load() {
		return
	}
	if why := s.noSuccessor(s.meta.State(), 0); why != "" {
		s.log.Info("stopping, nothing is handed over", "reason", why)
		return
	}
	began := s.clock.Now()
	s.log.Info("stopping, handing over first")
	s.member.SendHeartbeat() // the governor goes by what it has heard of leaderships
	s.detector.leave()
	t := time.NewTicker(handOverPoll)
	defer t.Stop()
	for {
		changed := s.meta.Changed()
		state := s.meta.State()
		// The governor may have it Offline before it has heard what is led here. It goes on handing that over.
		if i, ok := state.Instance(s.instance); ok && i.Current.Variant == meta.Offline && i.Target.Variant == meta.Offline && s.transferable(state) == 0 {
			s.log.Info("handed over", "took", s.clock.Now()-began, "leads", s.leadingCount())
			_ = sleep(ctx, offlineLinger)
			return
		}
		if why := s.noSuccessor(state, s.clock.Now()-began); why != "" {
			s.log.Warn("handing over was given up", "reason", why, "after", s.clock.Now()-began)
			return
		}
		select {
		case <-changed:
		case <-t.C:
			s.member.SendHeartbeat()
		case <-s.done:
			s.log.Warn("handing over was given up", "reason", "the instance has failed")
			return
		case <-ctx.Done():
			s.log.Warn("handing over was given up", "reason", "it took too long", "after", s.clock.Now()-began)
			return
		}
	}
}

// stampHandOver tells the logs of the shards that are still led here that their leader goes, as a
// transfer does. So the next leader, which is this instance when it is back, as a rule, leaves
// sessions their remaining time, and adds no grace period.
func (s *Server) stampHandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	var sending sync.WaitGroup
	for _, d := range s.shards.all() {
		if d.leading.Load() {
			sending.Go(func() { _ = d.raft.HandOver(ctx) })
		}
	}
	sending.Wait()
}

// leadingCount is how many shards are led here.
func (s *Server) leadingCount() (n int) {
	for _, d := range s.shards.all() {
		if d.leading.Load() {
			n++
		}
	}
	return n
}

// transferable is how many shards are led here that another instance, which is Online, has a vote in.
func (s *Server) transferable(state *meta.State) (n int) {
	for _, d := range s.shards.all() {
		x, _ := state.Shard(d.id)
		if d.leading.Load() && slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool {
			i, _ := state.Instance(r.Instance)
			return r.Instance != s.instance && r.Role == meta.RoleVoter && i.Current.Variant == meta.Online && i.Target.Variant == meta.Online
		}) {
			n++
		}
	}
	return n
}

// noSuccessor says why there is nobody to hand over to; empty when there may be. Who votes and was never heard counts as up until it has been waited for.
func (s *Server) noSuccessor(state *meta.State, waited time.Duration) string {
	if i, ok := state.Instance(s.instance); !ok || i.Target.Variant == meta.Expelled || i.Expelled() {
		return "this instance was expelled"
	}
	if !s.othersOnline() {
		return "no other instance is Online"
	}
	health, now := s.member.Instances().Health(), s.clock.Now()
	voters, up := 0, 0
	group := state.MetaShard()
	for _, r := range group.Replicas {
		if r.Role != meta.RoleVoter {
			continue
		}
		voters++
		i, _ := state.Instance(r.Instance)
		h, heard := health[r.Instance]
		quiet := waited
		if heard {
			quiet = now - h.Heard
		}
		if r.Instance == s.instance || i.Current.Variant == meta.Online && quiet <= missedAfter {
			up++
		}
	}
	if up <= voters/2 {
		return fmt.Sprintf("there is no quorum: %d of %d instances that vote are up", up, voters)
	}
	return ""
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain lets what is under way end and says goodbye.
func (s *Server) drain(ctx context.Context) {
	if !s.listening {
		return
	}
	s.transport.StopAccepting()
	_ = poll(ctx, func() bool {
		open := false
		s.eachConn(func(c *conn) { open = open || c.unanswered.Load() > 0 })
		return !open
	})
	s.eachConn(func(c *conn) {
		c.Close(transport.Graceful, protocol.StatusUnavailable, "server is stopping; connect to another instance, or to this one when it is back")
	})
	s.transport.Flush()
	// Clients close when they have read the goodbye. Who does not is closed after the usual time.
	linger, cancel := context.WithTimeout(ctx, transport.LingerTimeout)
	defer cancel()
	_ = poll(linger, func() bool { return s.transport.Connections() == 0 })
}

func poll(ctx context.Context, cond func() bool) error {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for !cond() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stop ends everything, the outermost first.
func (s *Server) stop(drain func()) error {
	s.stopOnce.Do(func() { s.end(drain) })
	return s.stopErr
}

// end stops what runs. It is called once.
func (s *Server) end(drain func()) {
	s.leaving.Store(true)
	s.audit.write(audit.LocalShutdown)
	if drain != nil {
		drain()
	}
	s.draining.Store(true)
	if s.stopTicks != nil {
		s.stopTicks()
	}
	var errs []error
	if s.transport != nil {
		s.transport.Close()
	}
	s.cancel()
	if s.adminServer != nil {
		errs = append(errs, s.adminServer.Close())
	} else if s.adminListener != nil {
		errs = append(errs, s.adminListener.Close())
	}
	if s.flusher != nil {
		s.flusher.Close()
	}
	if s.host != nil {
		if err := s.host.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the log: %w", err))
		}
	}
	if s.peers != nil {
		errs = append(errs, s.peers.Close())
	}
	s.running.Wait()
	s.backups.close()
	s.audit.close()
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.stopErr = errors.Join(errs...)
	s.failOnce.Do(func() { s.err = s.cause; close(s.done) })
}

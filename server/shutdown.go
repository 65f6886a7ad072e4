package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// Shutdown stops gracefully. Ready returns an error at once. What this instance leads, and its
// vote, go to others while it goes on serving. Then the cluster has it Offline. Requests are
// rejected with UNAVAILABLE, those in the log are answered, every client gets a goodbye, and the
// shards are closed. An instance that is alone, expelled, or without a quorum skips to the
// goodbyes.
//
// It takes Config.ShutdownTimeout at most. If ctx ends first, only the log is left to be closed,
// which may take a sixth of that timeout; ErrClosing means that it takes longer. Sessions live on
// for their timeouts: clients attach them again elsewhere, or here when the server is back.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.Store(true)
	limit := s.cfg.ShutdownTimeout
	end := time.Now().Add(limit)
	closed := make(chan error, 1)
	draining := make(chan struct{})
	var drained sync.Once
	go func() {
		defer drained.Do(func() { close(draining) }) // stopped in another way
		closed <- s.stop(func() {
			leaving, cancel := context.WithDeadline(ctx, end.Add(-limit/3))
			s.drain(leaving)
			cancel()
			s.requests.Drain()
			goodbyes, cancel := context.WithDeadline(ctx, end.Add(-limit/6))
			s.sayGoodbye(goodbyes)
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

// AwaitNotNeeded serves on until the cluster survives the loss of this instance, by the rules of
// `cluster health`, and then has the cluster count it as going: call Shutdown next. It returns
// after Config.StopWait, or when ctx ends, at the latest, and at once if the instance has a vote in
// no group of three voters or more. Of instances that wait at the same time only those return that
// can go together.
func (s *Server) AwaitNotNeeded(ctx context.Context) {
	if s.cfg.StopWait == 0 || !s.ready.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopWait)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.membership.AwaitNotNeeded(ctx)
}

// ErrClosing: the server has stopped serving, and is still closing its log when the time for its
// stop is over. The process may end: everything that was answered is on disk. In a process that
// goes on, Done is closed when the log is.
var ErrClosing = errors.New("server has stopped, and is still closing its log; ending the process is safe")

// Close stops at once. What was answered is in the log; clients see their connections close.
func (s *Server) Close() error { return s.stop(nil) }

// stampTimeout bounds the logging of the stop in the shards that no other instance took.
const stampTimeout = 200 * time.Millisecond

// drain has the cluster take over this instance's work. The logs of the shards that are still led
// here then get a mark: the next leader is as a rule this instance when it is back.
func (s *Server) drain(ctx context.Context) {
	if s.ready.Load() {
		s.membership.Drain(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	s.hosting.LogTransfers(ctx)
}

// leaveFullDisk is called when the disk's free space has fallen below the low mark. As soon as the
// others can do without this instance, they take over its work, as with Shutdown. Until then it
// serves, down to the least mark, at which it must end.
func (s *Server) leaveFullDisk(space logstore.Space) {
	s.log.Warn("the disk of the log is nearly full; make room", "space", space.String())
	for !s.ready.Load() {
		if !beat.Sleep(s.ctx, time.Second) {
			return
		}
	}
	for logged := ""; ; {
		turn, online := 0, 0
		for _, i := range s.meta.State().Instances() {
			if i.Current.Variant == meta.Online {
				if online++; i.ID < s.instance {
					turn++
				}
			}
		}
		if !beat.Sleep(s.ctx, time.Duration(turn)*leaveInterval) {
			return
		}
		now, ok := s.host.Space()
		if ok && now.Ample() {
			return // a later fall is reported again
		}
		if !ok || now.Low() {
			space = now
			why := s.membership.NeededAmongUp()
			if why == "" {
				break
			}
			if why != logged {
				s.log.Warn("this instance goes on with a nearly full disk", "reason", why)
				logged = why
			}
		}
		// By the clock that all instances have, and rounds with room for all of them, so that their
		// turns are apart.
		round := max(time.Minute, time.Duration(online+1)*leaveInterval)
		if !beat.Sleep(s.ctx, time.Until(time.Now().Truncate(round).Add(round))) {
			return
		}
	}
	s.stopOnce.Do(func() { // it is not being stopped yet
		s.cause = fmt.Errorf("the disk is nearly full: %v; what was here went to other instances; make room, then start again", space)
		s.leaving.Store(true)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		s.end(func() {
			s.membership.Drain(ctx)
			s.requests.Drain()
			s.sayGoodbye(ctx)
		})
	})
}

// drainCheck is how often a stop looks whether clients are done.
const drainCheck = 2 * time.Millisecond

// sayGoodbye waits until all requests are answered, and sends the goodbyes.
func (s *Server) sayGoodbye(ctx context.Context) {
	if !s.listening {
		return
	}
	s.transport.StopAccepting()
	for open := true; open && beat.Sleep(ctx, drainCheck); {
		open = false
		s.requests.EachClient(func(c *request.Client) { open = open || c.Established() && c.Unanswered() > 0 })
	}
	s.requests.EachClient(func(c *request.Client) {
		c.Close(transport.Graceful, protocol.StatusUnavailable,
			"server is stopping; connect to another instance, or to this one when it is back")
	})
	s.transport.Flush()
	// Clients close when they have read the goodbye. Others are closed after the usual time.
	linger, cancel := context.WithTimeout(ctx, transport.LingerTimeout)
	defer cancel()
	for s.transport.Connections() > 0 && beat.Sleep(linger, drainCheck) {
	}
}

// stop ends everything once, the outermost part first.
func (s *Server) stop(drain func()) error {
	s.stopOnce.Do(func() { s.end(drain) })
	return s.stopErr
}

// awaitRunning waits for the server's goroutines. It is false if the server has failed and one of
// them still waits, for the disk.
func (s *Server) awaitRunning() bool {
	err := s.take(context.Background(), func(*Server, context.Context) error {
		s.running.Wait()
		return nil
	})
	return !errors.Is(err, errStuck)
}

// end stops the goroutines. It is called once.
func (s *Server) end(drain func()) {
	s.leaving.Store(true)
	s.audit.write(audit.LocalShutdown)
	if drain != nil {
		drain()
	}
	s.requests.Drain()
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
	s.serving.Close()
	if s.host != nil {
		if err := s.host.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the log: %w", err))
		}
	}
	if s.peers != nil {
		errs = append(errs, s.peers.Close())
	}
	if !s.awaitRunning() {
		s.stopErr = errors.Join(append(errs, errStuck)...)
		return
	}
	s.hosting.Backups.Close()
	s.audit.close()
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.stopErr = errors.Join(errs...)
	s.failOnce.Do(func() { s.err = s.cause; close(s.done) })
}

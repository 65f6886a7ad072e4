package rollout

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// closeTimeout bounds how long Run waits for its leave to be answered.
const closeTimeout = 2 * time.Second

// runSession runs one session. ok: it was registered.
func (f *Follower) runSession(ctx context.Context, takeover bool) (ok bool, err error) {
	s, err := f.openSession(ctx)
	if err != nil {
		return false, err
	}
	var i *Instance
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if i != nil {
			unregister(end, i)
		}
		_ = s.Close(end)
	}()
	t := NewTrack(s, f.o.Track)
	r := Registration{ID: f.o.ID, Location: f.o.Location, Meta: f.o.Meta, Takeover: takeover}
	i, err = await(f, func() (*Instance, error) {
		i, err := t.Register(ctx, r)
		if errors.Is(err, ErrAlreadyRegistered) && len(f.ownSessions) > 0 {
			owned, failed := f.isOwned(ctx, t)
			if failed != nil {
				return nil, failed // who has the id is not known
			}
			if owned {
				r.Takeover = true // from a session of its own, which the server has not given up yet
				i, err = t.Register(ctx, r)
			}
		}
		return i, err
	})
	if err != nil {
		if errors.Is(err, client.ErrOutcomeUnknown) {
			f.ownSessions = append(f.ownSessions, s.ID())
		}
		return false, err
	}
	f.ownSessions = []uint64{s.ID()}
	f.o.Logger.Info("rollout instance is registered",
		"track", f.o.Track, "instance", f.o.ID, "location", f.o.Location)
	f.fetched, f.unchecked = nil, f.job != nil || f.report.Current != 0
	if f.job != nil {
		f.job.checked = false
	}
	f.report.Attempts, f.retryAt = 0, time.Time{} // they count within a registration; the track may be another one
	if f.report.Code != CodeOK {
		f.report.Code, f.report.Message = CodeNone, ""
	}
	f.setState(func(s *FollowerState) { s.Registered, s.Role, s.Err, s.Attempts = true, FollowerRole, nil, 0 })

	watching, stop := context.WithCancel(ctx)
	signals := make(chan struct{}, 1)
	gone := make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		for err := range i.signals(watching) {
			if err != nil {
				gone <- err
				return
			}
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	})
	return true, f.serve(ctx, s, i, signals, gone)
}

// unregister gives the id back before the session is closed. The registration ends with the session
// too, but the track's shard may hear of that later than the next process registers under the id.
func unregister(ctx context.Context, i *Instance) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout/2) // the rest is for the session
	defer cancel()
	_ = i.Unregister(ctx)
}

// isOwned reports whether a session of the follower's own has the instance's id.
func (f *Follower) isOwned(ctx context.Context, t *Track) (bool, error) {
	status, err := t.Describe(ctx, IncludeInstances())
	if err != nil {
		return false, err
	}
	for i := range status.Instances {
		if p := &status.Instances[i]; p.ID == f.o.ID {
			return slices.Contains(f.ownSessions, p.Session), nil
		}
	}
	return false, nil
}

// await makes a call to the server, which waits for as long as no server can be reached; an update
// that ends meanwhile is taken in.
func await[T any](f *Follower, call func() (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	ch := make(chan outcome, 1)
	go func() {
		v, err := call()
		ch <- outcome{v, err}
	}()
	for {
		select {
		case err := <-f.jobDone():
			f.finishJob(err)
		case o := <-ch:
			return o.v, o.err
		}
	}
}

func (f *Follower) openSession(ctx context.Context) (*client.Session, error) {
	if f.c == nil {
		c, err := await(f, func() (*client.Client, error) { return client.Open(ctx, f.o.Connect) })
		if err != nil {
			return nil, err
		}
		f.c = c
	}
	return await(f, func() (*client.Session, error) { return f.c.Session(ctx, f.o.Node, f.o.Session...) })
}

// serve polls, and loads the targets, until something ends.
func (f *Follower) serve(
	ctx context.Context, s *client.Session, i *Instance, signals <-chan struct{}, gone <-chan error,
) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Context().Done():
			return s.Err()
		case err := <-gone:
			return err
		case <-signals:
		case <-timer.C:
		case <-f.wake:
		case err := <-f.jobDone():
			f.finishJob(err)
		}
		next, err := f.poll(ctx, i)
		if err != nil {
			return err
		}
		timer.Reset(next)
	}
}

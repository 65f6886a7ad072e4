package gateway

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
)

// Lease is one of a session that was attached, with the options of its acquire that are known.
type Lease struct {
	*client.Lease
	Ephemeral bool
	Data      []byte
}

// Leases gives what a session that was attached holds, but for configurations, as leases. wanted is
// asked of each name that is held or waited for, and whether it is wanted as a lease, once it is held.
// opts are of the acquires that make them. It ends with the first error.
func Leases(
	ctx context.Context, s *client.Session, wanted func(name string, waits bool) bool, opts ...client.AcquireOption,
) iter.Seq2[Lease, error] {
	return func(yield func(Lease, error) bool) {
		strict := client.ReadConsistency(client.Strict)
		for info, err := range s.Node().List(ctx, "", client.OfSession(s.ID()), strict) {
			var l Lease
			if err == nil && !strings.HasPrefix(info.Name, client.ConfigPrefix) && wanted(info.Name, info.Waiting) && !info.Waiting {
				l, err = leaseOf(ctx, s, info, opts)
			}
			if err != nil {
				yield(Lease{}, err)
				return
			}
			if l.Lease != nil && !yield(l, nil) {
				return
			}
		}
	}
}

// leaseOf makes a lease of what a session holds, by the acquire that it made before: the server
// answers it at once. There is no lease if it is not held any more.
func leaseOf(
	ctx context.Context, s *client.Session, info client.SemaphoreInfo, opts []client.AcquireOption,
) (Lease, error) {
	sem, o, err := grant(ctx, s, info.Name, info.Token)
	if err != nil || sem == nil {
		return Lease{}, err
	}
	opts = append([]client.AcquireOption{client.Count(o.Count), client.Data(o.Data)}, opts...)
	if info.Ephemeral {
		opts = append(opts, client.Ephemeral())
	}
	if o.Key != "" {
		opts = append(opts, client.Key(o.Key))
	}
	if sem.Config != nil && sem.Config.Policy == client.PolicyPriority {
		opts = append(opts, client.Priority(o.Priority))
	}
	// An acquire that is given up gives back what the session holds. So it goes on when ctx has ended, and then what
	// it is answered stays the session's.
	type answer struct {
		l   *client.Lease
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		ctx := context.WithoutCancel(ctx)
		l, err := s.TryAcquire(ctx, info.Name, opts...)
		switch {
		case l != nil && l.Token() != o.Token: // it was taken away meanwhile, and this is another grant
			l, err = nil, l.Release(ctx)
		case errors.Is(err, client.ErrNotAcquired):
			err = nil
		}
		answered <- answer{l, err}
	}()
	select {
	case a := <-answered:
		return Lease{a.l, info.Ephemeral, o.Data}, a.err
	case <-ctx.Done():
		return Lease{}, context.Cause(ctx)
	}
}

// Holds reports whether the cluster has the grant of a lease, by a read that begins with the call:
// what a lease itself knows may be older.
func Holds(ctx context.Context, l *client.Lease) (bool, error) {
	sem, _, err := grant(ctx, l.Session(), l.Name(), l.Token())
	return sem != nil, err
}

// grant reads what a session has with a token. There is no semaphore if it has nothing.
func grant(
	ctx context.Context, s *client.Session, name string, token uint64,
) (sem *client.Semaphore, o client.Owner, err error) {
	sem, err = s.Node().Describe(ctx, name, client.IncludeOwners(), client.AfterToken(token-1),
		client.MaxItems(1), client.ReadConsistency(client.Strict))
	switch {
	case errors.Is(err, client.ErrNotFound):
		return nil, o, nil
	case err != nil:
		return nil, o, err
	case len(sem.Owners) == 0 || sem.Owners[0].Session != s.ID() || sem.Owners[0].Token != token:
		return nil, o, nil
	}
	return sem, sem.Owners[0], nil
}

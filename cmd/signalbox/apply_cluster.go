package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
)

// liveCluster is the cluster as the objects of documents.
type liveCluster struct {
	inv    *invocation
	c      *client.Client
	reason string
	tier   string // that new nodes are in

	mu       sync.Mutex
	nodes    map[string]*once[*client.Node]
	sessions map[string]*once[*client.Session]
}

// once is a value that is made when it is first asked for.
type once[T any] struct {
	sync.Mutex
	made  bool
	value T
}

func (x *once[T]) get(make func() (T, error)) (v T, err error) {
	x.Lock()
	defer x.Unlock()
	if !x.made {
		if x.value, err = make(); err != nil {
			return v, err
		}
		x.made = true
	}
	return x.value, nil
}

// newLiveCluster connects.
func newLiveCluster(inv *invocation, reason string) (*liveCluster, error) {
	c, err := inv.client()
	if err != nil {
		return nil, err
	}
	m, err := admin.New(c).Map(inv.ctx)
	if err != nil {
		return nil, err
	}
	l := &liveCluster{inv: inv, c: c, reason: reason, nodes: map[string]*once[*client.Node]{},
		sessions: map[string]*once[*client.Session]{}}
	for _, t := range slices.Backward(m.Tiers) { // in order of their ids; the first with data is the default
		if t.Buckets > 0 {
			l.tier = t.Name
		}
	}
	return l, nil
}

// within bounds a request by --timeout: all of them together may take longer.
func (l *liveCluster) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.inv.timeout, &timeoutError{l.inv})
}

func entryOf[T any](mu *sync.Mutex, in map[string]*once[T], path string) *once[T] {
	mu.Lock()
	defer mu.Unlock()
	if in[path] == nil {
		in[path] = new(once[T])
	}
	return in[path]
}

func (l *liveCluster) node(ctx context.Context, path string) (*client.Node, error) {
	return entryOf(&l.mu, l.nodes, path).get(func() (*client.Node, error) { return l.c.Node(ctx, path) })
}

func (l *liveCluster) session(ctx context.Context, path string) (*client.Session, error) {
	return entryOf(&l.mu, l.sessions, path).get(func() (*client.Session, error) {
		return l.c.Session(ctx, path, l.inv.sessionOptions()...)
	})
}

// leave ends the session of a node.
func (l *liveCluster) leave(ctx context.Context, path string) error {
	l.mu.Lock()
	x := l.sessions[path]
	delete(l.sessions, path)
	delete(l.nodes, path) // a node that is made again is another one
	l.mu.Unlock()
	if x == nil || !x.made {
		return nil
	}
	return x.value.Close(ctx)
}

// close ends all sessions.
func (l *liveCluster) close() {
	paths := slices.Collect(func(yield func(string) bool) {
		for path := range l.sessions {
			if !yield(path) {
				return
			}
		}
	})
	ctx := l.inv.cleanup()
	_ = desired.Each(ctx, len(paths), func(ctx context.Context, i int) error {
		_ = l.leave(ctx, paths[i])
		return nil
	})
}

// orNil is an object that was read; nil if it is not there.
func orNil(o *desired.Object, err error) (*desired.Object, error) {
	if errors.Is(err, protocol.StatusNotFound) && !errors.Is(err, client.ErrOutcomeUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Get reads an object; nil if it is not there.
func (l *liveCluster) Get(ctx context.Context, k desired.Key) (*desired.Object, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	o := &desired.Object{Key: k}
	switch k.Kind {
	case desired.Node:
		info, err := admin.Nodes(l.c).Describe(ctx, k.Node)
		if err == nil {
			l.showNode(o, info)
		}
		return orNil(o, err)
	case desired.Trust:
		t, err := admin.New(l.c).Trust(ctx, k.Name)
		if err == nil {
			showTrust(o, t)
		}
		return orNil(o, err)
	case desired.Right:
		s, err := admin.New(l.c).Auth(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range s.Rights {
			if r.Identity == k.Name && r.Path == k.Node {
				return desired.RightObject(r.Identity, r.Path, r.Right, desired.Position{}), nil
			}
		}
		return nil, nil
	}
	n, err := l.node(ctx, k.Node)
	if err != nil {
		return orNil(nil, err)
	}
	switch k.Kind {
	case desired.Semaphore:
		s, err := n.Describe(ctx, k.Name, client.IncludeSlots(), client.ReadConsistency(client.Strict))
		if err != nil || s.Ephemeral {
			return orNil(nil, err)
		}
		x := &semaphoreObject{limit: s.Limit}
		if s.Config != nil {
			x.config, x.options = *s.Config, optionsOnWire(s.Config)
		}
		showSemaphore(o, x)
		o.Data, o.HasData, o.Uses = s.Data, true, usesOf(s.NumOwners, "owner", s.NumWaiters, "waiter")
	case desired.Config:
		v, err := n.Config(k.Name).Get(ctx)
		if err != nil {
			return orNil(nil, err)
		}
		o.Data, o.HasData, o.Revision = v.Data, true, v.Version
	case desired.Limit:
		s, err := ratelimit.Describe(ctx, n, k.Name, 0)
		if err != nil {
			return orNil(nil, err)
		}
		return o, showResource(o, &s.Resources[0])
	case desired.Rollout:
		s, err := rollout.NewReader(n, k.Name).Describe(ctx, rollout.IncludeConfig())
		if err != nil {
			return orNil(nil, err)
		}
		o.Revision, o.Uses = s.ConfigRevision, usesOf(s.NumInstances, "instance", 0, "")
		return o, showRollout(o, s.Config)
	}
	return o, nil
}

// Classify says what an error of a change means.
func (l *liveCluster) Classify(err error) desired.Verdict {
	if errors.Is(err, client.ErrSessionExpired) {
		return desired.Lost
	}
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return desired.Failed
	}
	switch protocol.StatusOf(err) {
	case protocol.StatusPreconditionFailed, protocol.StatusAlreadyExists, protocol.StatusNotFound, protocol.StatusBadRequest:
		return desired.Refused
	}
	return desired.Failed
}

// Do makes a change.
func (l *liveCluster) Do(ctx context.Context, c *desired.Change) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	switch c.Kind {
	case desired.Node:
		return l.changeNode(ctx, c)
	case desired.Trust:
		a := admin.New(l.c).WithReason(l.reason)
		if c.Op == desired.Delete {
			return a.DeleteTrust(ctx, c.Name)
		}
		_, err := a.PutTrust(ctx, *c.Want.Config.(*admin.Trust))
		return err
	case desired.Right:
		a := admin.New(l.c).WithReason(l.reason)
		if c.Op == desired.Delete {
			return a.Revoke(ctx, c.Name, c.Key.Node)
		}
		_, err := a.Grant(ctx, c.Name, c.Key.Node, c.Want.Settings[0].Value.String())
		return err
	}
	s, err := l.session(ctx, c.Key.Node)
	if err != nil {
		return err
	}
	switch c.Kind {
	case desired.Semaphore:
		err = changeSemaphore(ctx, s, c, l.reason)
	case desired.Config:
		err = l.changeConfig(ctx, s, c)
	case desired.Limit:
		err = changeLimit(ctx, s, c, l.reason)
	case desired.Rollout:
		err = changeRollout(ctx, s, c)
	}
	if errors.Is(err, client.ErrSessionExpired) { // the next try has another one
		_ = l.leave(ctx, c.Key.Node)
	}
	return err
}

func (l *liveCluster) changeConfig(ctx context.Context, s *client.Session, c *desired.Change) (err error) {
	had := client.IfVersion(0)
	if c.Have != nil {
		had = client.IfVersion(c.Have.Revision)
	}
	if c.Op == desired.Delete {
		return s.Config(c.Name).Delete(ctx, had, client.Reason(l.reason))
	}
	_, err = s.Config(c.Name).Set(ctx, c.Want.Data, had, client.Reason(l.reason))
	return err
}

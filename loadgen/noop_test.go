package loadgen

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Noop is a target that does nothing, at once. What a load costs on it is the cost of the load
// generator itself: see BenchmarkOwnCost.
type Noop struct {
	mu     sync.RWMutex
	values map[string]*noopValue
}

// Name of the target.
func (n *Noop) Name() string { return "nothing" }

// Code of an error: there are none but those of contexts.
func (n *Noop) Code(error) string { return "other" }

// Open makes a connection to nothing.
func (n *Noop) Open(context.Context) (Conn, error) { return &noopConn{n}, nil }

type noopConn struct{ t *Noop }

func (c *noopConn) Session(context.Context) (Session, error) { return &noopSession{t: c.t}, nil }
func (c *noopConn) Close() error                             { return nil }

// noopValue is a name that is watched: to drive watches there must be something to tell.
type noopValue struct {
	mu       sync.Mutex
	data     []byte
	members  [][]byte
	watchers map[*func(joined bool, data []byte)]struct{}
}

// watch calls begin and then notify with what follows, until ctx ends.
func (v *noopValue) watch(ctx context.Context, begin func(), notify func(joined bool, data []byte)) error {
	v.mu.Lock()
	begin()
	v.watchers[&notify] = struct{}{}
	v.mu.Unlock()
	<-ctx.Done()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.watchers, &notify)
	return ctx.Err()
}

// notify passes something to the watchers. mu is held.
func (v *noopValue) notify(joined bool, data []byte) {
	for notify := range v.watchers {
		(*notify)(joined, data)
	}
}

func (n *Noop) value(name string) *noopValue {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.values == nil {
		n.values = map[string]*noopValue{}
	}
	v := n.values[name]
	if v == nil {
		v = &noopValue{watchers: map[*func(bool, []byte)]struct{}{}}
		n.values[name] = v
	}
	return v
}

// noopSession does nothing; as a member of services it leaves them when it ends.
type noopSession struct {
	t       *Noop
	mu      sync.Mutex
	members []*noopMember
}

func (s *noopSession) Close(ctx context.Context) error {
	s.mu.Lock()
	list := s.members
	s.members = nil
	s.mu.Unlock()
	for _, m := range list {
		_ = m.Release(ctx)
	}
	return nil
}

func (s *noopSession) Acquirer(AcquireOptions) Acquirer { return s }

func (s *noopSession) Acquire(context.Context, string) (Lease, error) { return s, nil }

func (s *noopSession) Release(context.Context) error { return nil }

func (s *noopSession) Reader(bool) Reader { return s }

func (s *noopSession) Read(context.Context, string) error { return nil }

func (s *noopSession) Create(_ context.Context, name string, data []byte) error {
	v := s.t.value(name)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.data = slices.Clone(data)
	return nil
}

func (s *noopSession) Delete(context.Context, string) error { return nil }

func (s *noopSession) Write(_ context.Context, name string, data []byte) error {
	v := s.t.value(name)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.data = append(v.data[:0], data...)
	v.notify(true, v.data)
	return nil
}

func (s *noopSession) Watch(ctx context.Context, name string, notify func([]byte)) error {
	v := s.t.value(name)
	return v.watch(ctx, func() { notify(v.data) }, func(_ bool, data []byte) { notify(data) })
}

type noopMember struct {
	v    *noopValue
	data []byte
	gone atomic.Bool
}

func (m *noopMember) Release(context.Context) error {
	if m.gone.Swap(true) {
		return nil
	}
	m.v.mu.Lock()
	defer m.v.mu.Unlock()
	m.v.members = slices.DeleteFunc(m.v.members, func(d []byte) bool { return &d[0] == &m.data[0] })
	m.v.notify(false, m.data)
	return nil
}

func (s *noopSession) Register(_ context.Context, service string, data []byte) (Lease, error) {
	v := s.t.value(service)
	m := &noopMember{v: v, data: slices.Clone(data)}
	v.mu.Lock()
	v.members = append(v.members, m.data)
	v.notify(true, m.data)
	v.mu.Unlock()
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	return m, nil
}

func (s *noopSession) Members(ctx context.Context, service string, ready func(), notify func(bool, []byte)) error {
	v := s.t.value(service)
	return v.watch(ctx, func() {
		for _, d := range v.members {
			notify(true, d)
		}
		ready()
	}, notify)
}

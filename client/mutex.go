package client

import "context"

// Mutex is a lock with a name, over an ephemeral semaphore that is held whole: it needs no creation and leaves nothing behind. Its goroutines of one session queue
// behind each other like anybody else.
type Mutex struct {
	s    *Session
	name string
}

// Mutex is the lock with this name on the session's node.
func (s *Session) Mutex(name string) *Mutex { return &Mutex{s, name} }

// Lock waits for the lock. It is unlocked by the lease's Release; Data, Wait and OnAccepted are the options that make sense. Errors: as Acquire, but never
// ErrAlreadyHeld.
func (m *Mutex) Lock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.Acquire(ctx, m.name, with(opts, Exclusive(), waitForOwnLease())...)
}

// TryLock takes the lock if it is free at once; else the lease is nil, without an error. Errors: as TryAcquire.
func (m *Mutex) TryLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.TryAcquire(ctx, m.name, with(opts, Exclusive())...)
}

// RWMutex is a lock with a name that readers share, over an ephemeral semaphore: a reader holds one unit, a writer all of them. The queue is fair: a waiting
// writer holds back readers that come after it. Readers of one session exclude each other; give each a session of its own.
type RWMutex struct {
	s    *Session
	name string
}

// RWMutex is the read-write lock with this name on the session's node.
func (s *Session) RWMutex(name string) *RWMutex { return &RWMutex{s, name} }

// Lock waits until nobody else reads or writes.
func (m *RWMutex) Lock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.Acquire(ctx, m.name, with(opts, Exclusive(), waitForOwnLease())...)
}

// TryLock is Lock if that is possible at once; else the lease is nil, without an error.
func (m *RWMutex) TryLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.TryAcquire(ctx, m.name, with(opts, Exclusive())...)
}

// RLock waits until nobody writes, and no writer waits ahead.
func (m *RWMutex) RLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.Acquire(ctx, m.name, with(opts, Shared(), waitForOwnLease())...)
}

// TryRLock is RLock if that is possible at once; else the lease is nil, without an error.
func (m *RWMutex) TryRLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.TryAcquire(ctx, m.name, with(opts, Shared())...)
}

// with puts a recipe's own options behind the user's, where they win.
func with(opts []AcquireOption, own ...AcquireOption) []AcquireOption {
	return append(opts[:len(opts):len(opts)], own...)
}

package client

import "context"

// Mutex is a named lock. It is an ephemeral semaphore that is held whole, so it needs no creation
// and leaves nothing behind. Goroutines of one session queue like those of different sessions.
type Mutex struct {
	s    *Session
	name string
}

// Lock waits for the lock; the lease's Release unlocks it. Useful options are Data, Wait and
// OnQueued; those that say how much is acquired are ErrBadRequest. Other errors: as Acquire, except
// ErrAlreadyHeld.
func (m *Mutex) Lock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.Acquire(ctx, m.name, with(opts, whole, waitForOwnLease())...)
}

// Run calls work while the session holds the lock, which it waits for: Session.Run of the lock.
func (m *Mutex) Run(
	ctx context.Context, work func(ctx context.Context, l *Lease) error, opts ...AcquireOption,
) error {
	return m.s.Run(ctx, m.name, work, with(opts, whole, waitForOwnLease())...)
}

// TryLock takes the lock if it is free. Errors: as TryAcquire.
func (m *Mutex) TryLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.TryAcquire(ctx, m.name, with(opts, whole)...)
}

// RWMutex is a named lock that readers share. It is an ephemeral semaphore: a reader holds one
// unit, a writer all of them. The queue is FIFO, so a waiting writer holds back later readers.
// Readers of one session exclude each other; give each reader a session of its own.
//
// Lock and TryLock are those of Mutex, for a writer: they wait until there is no other reader or
// writer.
type RWMutex struct{ Mutex }

// RLock waits until there is no writer, and none ahead in the queue.
func (m *RWMutex) RLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.Acquire(ctx, m.name, with(opts, oneUnit, waitForOwnLease())...)
}

// TryRLock is RLock without a wait; if it would have to wait, it returns ErrNotAcquired.
func (m *RWMutex) TryRLock(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return m.s.TryAcquire(ctx, m.name, with(opts, oneUnit)...)
}

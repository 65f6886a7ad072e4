// What must a system do to be put under load?

package loadgen

import (
	"context"
	"fmt"
)

// Target is a system under load. Implementations are safe for concurrent use.
type Target interface {
	// Name for people: the system and its address.
	Name() string

	// Open makes a connection.
	Open(ctx context.Context) (Conn, error)

	// Code names the kind of an error, for counting: one of a few words.
	Code(err error) string
}

// Conn is a connection.
type Conn interface {
	// Session starts a session: an identity that holds its semaphores until it ends.
	Session(ctx context.Context) (Session, error)

	// Close ends the sessions too.
	Close() error
}

// CanObserve: connections that can watch without a session. Watchers of streams have none there.
type CanObserve interface {
	// Observer stands for the connection. It does work that needs no session.
	Observer(ctx context.Context) (Session, error)
}

// Session is a session. What can be done with one are the interfaces below; a target implements
// those it can.
type Session interface {
	// Close ends the session and waits until the server knows.
	Close(ctx context.Context) error
}

// AcquireOptions are the options of an acquire.
type AcquireOptions struct {
	// Limit of the semaphore, made with it when it is missing; 0 is a lock.
	Limit uint64

	// Data is shown beside the entry.
	Data []byte
}

// Lease is the result of an acquire: one unit, or the lock.
type Lease interface {
	Release(ctx context.Context) error
}

// CanAcquire: locks and counting semaphores.
type CanAcquire interface {
	// Acquirer prepares acquiring, so that the parts common to all operations of a caller are made
	// once.
	Acquirer(h AcquireOptions) Acquirer
}

// Acquirer acquires. A session holds a name once at a time.
type Acquirer interface {
	// Acquire waits in the name's queue.
	Acquire(ctx context.Context, name string) (Lease, error)
}

// CanStore: names with a value.
type CanStore interface {
	Create(ctx context.Context, name string, data []byte) error
	Delete(ctx context.Context, name string) error

	// Write replaces the value.
	Write(ctx context.Context, name string, data []byte) error
}

// CanRead: reading the state of a name.
type CanRead interface {
	// Reader prepares reading: strict sees every change that was acknowledged before it began,
	// relaxed may be a little old.
	Reader(strict bool) Reader
}

// Reader reads, and drops the result.
type Reader interface {
	Read(ctx context.Context, name string) error
}

// CanWatch: streams of changes.
type CanWatch interface {
	// Watch passes the value to notify now and after each change, until ctx ends or the watch
	// fails. Values in between may be left out, the last never is. notify must not keep data.
	Watch(ctx context.Context, name string, notify func(data []byte)) error
}

// CanSubscribe: streams of changes for which no goroutine waits; a scenario that needs thousands
// prefers them to those of CanWatch.
type CanSubscribe interface {
	// Subscribe is Watch without waiting for its end, which over is called for once, with the
	// error.
	Subscribe(ctx context.Context, name string, notify func(data []byte), over func(error))
}

// CanRegister: members of services.
type CanRegister interface {
	// Register makes the session a member until it is released or the session ends.
	Register(ctx context.Context, service string, data []byte) (Lease, error)
}

// CanDiscover: services and their members.
type CanDiscover interface {
	// Members passes the members to notify, calls ready once, and then passes those that come and
	// go, until ctx ends or it fails.
	Members(ctx context.Context, service string, ready func(), notify func(joined bool, data []byte)) error
}

// AcquirerFunc, LeaseFunc and ReaderFunc make functions the objects of a target: an Acquirer, a
// Lease by its release, a Reader.
type (
	AcquirerFunc func(ctx context.Context, name string) (Lease, error)
	LeaseFunc    func(ctx context.Context) error
	ReaderFunc   func(ctx context.Context, name string) error
)

// Acquire calls the function.
func (f AcquirerFunc) Acquire(ctx context.Context, name string) (Lease, error) { return f(ctx, name) }

// Release calls the function.
func (f LeaseFunc) Release(ctx context.Context) error { return f(ctx) }

// Read calls the function.
func (f ReaderFunc) Read(ctx context.Context, name string) error { return f(ctx, name) }

// CanReportLiveness: sessions that know whether they still are.
type CanReportLiveness interface{ Alive() bool }

// sessionsAs returns the sessions of a target as the type that a scenario needs.
func sessionsAs[T any](t Target, what string, sessions []Session) ([]T, error) {
	out := make([]T, len(sessions))
	for i, s := range sessions {
		x, ok := s.(T)
		if !ok {
			return nil, fmt.Errorf("%s cannot %s; choose another scenario", t.Name(), what)
		}
		out[i] = x
	}
	return out, nil
}

// Package gateway is for programs that speak another protocol with their own clients and keep a
// session for each of them, as cmd/signalbox-ydb does. A service that uses locks itself needs
// package client only.
//
// A gateway has what package client hides from programs: it chooses the key of a session, it takes
// a session over under an attach epoch of its choice, and its acquires are answered without a
// lease. The other protocol's client decides how long it believes in what it holds, so the gateway
// must see to it that this ends before the session does: [client.Session.Remaining] says when.
//
//	n, err := c.Node(ctx, "/billing")
//	s, err := gateway.Start(ctx, n, key, client.Timeout(10*time.Second))
//	acquired, err := gateway.Acquire(ctx, s, gateway.AcquireRequest{Name: "jobs", Count: 1}, queued)
//
// The other requests on a session are those of [client.Session]: Create, Update, Delete, Release.
//
// The package is exported because a gateway lives in a module of its own, which cannot import what
// is below client/internal. What a gateway must keep:
//
//   - A request on a name is sent when the one before it was answered or accepted. Two that are sent
//     at the same time may change their order when the connection is lost.
//   - Epochs and request numbers rise from holder to holder. The holder that is replaced may still
//     use the epochs right above its own.
//   - A client that is lost is not a gateway that is lost. The gateway closes the session when its
//     client's time is over; until then it stays attached.
package gateway

import (
	"context"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Key protects a session: only who has it can take the session over.
type Key [16]byte

// Start starts a session with a key, which must be hard to guess. A start whose answer is lost is
// repeated with the same ids, so there is one session. Errors: as of [client.Client.Session].
func Start(ctx context.Context, n *client.Node, key Key, opts ...client.SessionOption) (*client.Session, error) {
	return n.SessionWithKey(handle.Key{}, ctx, key[:], opts...)
}

// Takeover says which session is taken over, and with what.
type Takeover struct {
	Session uint64 // its id
	Key     Key    // that it was started with
	// Epoch is the attach epoch, above that of the present holder, which
	// [client.Node.DescribeSession] shows. The holder that is replaced uses the epochs that follow
	// its own when its connection is lost, so leave room for those.
	Epoch uint64
	// FirstNumber is the number of the first request. It is above all numbers that a holder with a
	// lower epoch can have used, and rises with Epoch.
	FirstNumber uint64
}

// Attach takes a session over, from this process or another, with what it holds and waits for. The
// holder so far gets ErrTakenOver; in the same [client.Client] at once. All tries have the same
// epoch, and a try whose answer is lost is repeated until ctx ends. If it ends first, the session
// may have been attached: attach again with a higher epoch, or it lives as long as the connection.
// Errors: ErrSessionExpired; BadSession for a wrong key or an epoch that is not higher.
func Attach(ctx context.Context, n *client.Node, t Takeover, opts ...client.SessionOption) (*client.Session, error) {
	return n.AttachSession(handle.Key{}, ctx, handle.Takeover{
		Session: t.Session, Key: t.Key[:], Epoch: t.Epoch, FirstNumber: t.FirstNumber,
	}, opts...)
}

// Forever is the timeout of an acquire that waits until it is ended, in milliseconds.
const Forever uint64 = 1<<64 - 1

// AcquireRequest is one acquire.
type AcquireRequest struct {
	Name      string
	Count     uint64 // 1 up to the semaphore's limit
	Timeout   uint64 // in the queue, in milliseconds: at most a day, or Forever; 0: do not wait
	Data      []byte // shown beside the entry; at most 1 MiB
	Ephemeral bool   // the semaphore exists while it is held or waited for
}

// Acquire sends one acquire until it is decided, over lost connections and changes of leaders.
// accepted, if not nil, is called at most once, on the calling goroutine, when the request waits in
// the queue.
//
// A session has one entry for each name, which an acquire sets: the acquire that waits there ends
// with Aborted, and so it does when the entry is released. Send the next request on a name when the
// one before was answered or accepted. If ctx ends, the entry stays as it is.
func Acquire(ctx context.Context, s *client.Session, r AcquireRequest, accepted func()) (acquired bool, err error) {
	return s.AcquireEntry(handle.Key{}, ctx, handle.Entry(r), accepted)
}

// DescribeRequest is one description of a semaphore.
type DescribeRequest struct {
	Name    string
	Owners  bool             // include them
	Waiters bool             // include them
	Watch   client.WatchMask // arm the session's one-shot watch of the semaphore; 0: leave it as it is
	// MaxBytes bounds the description, about, or it fails with PreconditionFailed; 0: any length.
	MaxBytes int
	// Progress, if not nil, is called with the length of the description so far, about, whenever a
	// part of it was read. It falls if the description is read again from the start.
	Progress func(bytes int)
}

// Describe reads a semaphore at its shard's leader, and arms a watch in the same step. The watch
// ends as one of [client.Session.WatchOnce] does; fired is nil without one.
func Describe(
	ctx context.Context, s *client.Session, r DescribeRequest,
) (sem *client.Semaphore, fired <-chan client.WatchResult, err error) {
	flags := uint8(r.Watch)
	if r.Owners {
		flags |= protocol.WithOwners
	}
	if r.Waiters {
		flags |= protocol.WithWaiters
	}
	return s.DescribeOnce(handle.Key{}, ctx, r.Name, flags, r.limit)
}

// limit is called with the length of the description so far.
func (r *DescribeRequest) limit(size int) error {
	if r.Progress != nil {
		r.Progress(size)
	}
	if r.MaxBytes > 0 && size > r.MaxBytes {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"the description is longer than %d bytes; describe the semaphore without its owners and waiters", r.MaxBytes)
	}
	return nil
}

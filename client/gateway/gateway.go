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
// Clients are the connections of a gateway whose callers show tokens of their own, with limiters
// that they share, and NativeTimeout is the session timeout behind a belief of theirs.
//
// The package promises nothing: its names change with any release. It is exported because gateways
// live outside this folder, or in a module of their own, and cannot import what is below
// client/internal. What a gateway must keep:
//
//   - A request on a name is sent when the one before it was answered or queued. Two that are sent
//     at the same time may change their order when the connection is lost.
//   - Epochs and request numbers rise from holder to holder. The holder that is replaced may still
//     use the epochs right above its own.
//   - A client that is lost is not a gateway that is lost. The gateway closes the session when its
//     client's time is over; until then it stays attached.
package gateway

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Key protects a session: only who has it can take the session over.
type Key [16]byte

// CreateID names a session from its start on, for its node. It says in which shard the session
// lives.
type CreateID [16]byte

// Start starts a session with a key, which must be hard to guess. A start whose answer is lost is
// repeated with the same ids, so there is one session. Errors: as of [client.Client.Session].
func Start(ctx context.Context, n *client.Node, key Key, opts ...client.SessionOption) (*client.Session, error) {
	return start(ctx, n, key, (*driver.Session).Start, opts)
}

// StartAs is Start with a create id that the gateway chooses. Errors beside those of Start:
// ErrBadSession if there is such a session, which Find finds then; SessionExpired if there was one
// in the last ten minutes. If ctx ends first, the session is stopped once it has started.
func StartAs(ctx context.Context, n *client.Node, create CreateID, key Key, opts ...client.SessionOption) (*client.Session, error) {
	return start(ctx, n, key, func(d *driver.Session, ctx context.Context) core.Result { return d.StartAs(ctx, create) }, opts)
}

func start(
	ctx context.Context, n *client.Node, key Key, begin func(*driver.Session, context.Context) core.Result, opts []client.SessionOption,
) (*client.Session, error) {
	s, err := access.NewSession(n, opts)
	if err != nil {
		return nil, err
	}
	d := access.Session(s).Session
	d.Key = key
	if r := begin(d, ctx); r.Err != nil {
		err := driver.WithOp("start session on", n.Path(), driver.Err(r))
		d.Drop(err)
		return nil, err
	}
	return s, nil
}

// Found is a session that Find has found.
type Found struct {
	Session uint64        // its id
	Epoch   uint64        // the attach epoch of its present holder
	Timeout time.Duration // in force
	// Description is the holder's text about the session.
	Description string
}

// Generation numbers the holders of a session by its attach epochs: each takeover by Next begins the
// next one, and the starter's is 0.
func Generation(epoch uint64) uint64 { return epoch >> 32 }

// Next takes a found session over from its present holder. Each takeover begins a generation, as of
// [client.Saved]: its epochs and numbers are far above those that the holder can have used.
func (f Found) Next(key Key) Takeover {
	generation := Generation(f.Epoch) + 1
	return Takeover{Session: f.Session, Key: key, Epoch: generation<<32 + 1, FirstNumber: generation<<40 + 1}
}

// Find reads a session by the create id of its start, at its home shard. Errors: ErrSessionExpired
// if there is none, or no longer.
func Find(ctx context.Context, n *client.Node, create CreateID) (Found, error) {
	h := access.Node(n)
	if _, err := h.Shards(ctx); err != nil { // the map
		return Found{}, driver.WithOp("find session on", n.Path(), err)
	}
	_, buckets := h.Driver.Tier(h.Tier)
	to := core.Target{Of: core.AtBucket, Tier: h.Tier, Bucket: protocol.HomeBucket(create, buckets)}
	var reply protocol.SessionInfo
	_, err := h.Call(ctx, to, protocol.KindSessionDescribe, &protocol.SessionDescribe{Node: h.ID, CreateID: create[:]}, &reply)
	if err != nil {
		return Found{}, driver.WithOp("find session on", n.Path(), handle.AboutEnd(err))
	}
	return Found{reply.Session, reply.Epoch, time.Duration(reply.Timeout) * time.Millisecond, reply.Description}, nil
}

// IgnorePreemption is an option of [client.Session.Acquire]: a preemption is reported by
// [client.Lease.Preempted], and ends nothing. The server counts such an owner as silent, and
// leaves it its units. It is for gateways that cannot take back what they have told their clients.
func IgnorePreemption() client.AcquireOption { return access.IgnorePreemption() }

// Takeover says which session is taken over, and with what.
type Takeover struct {
	Session uint64 // its id
	Key     Key    // that it was started with
	// Epoch is the attach epoch, above that of the present holder, which
	// admin.Node.DescribeSession shows. The holder that is replaced uses the epochs that follow
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
// Errors: ErrSessionExpired; ErrBadSession for a wrong key or an epoch that is not higher.
func Attach(ctx context.Context, n *client.Node, t Takeover, opts ...client.SessionOption) (*client.Session, error) {
	s, err := access.NewSession(n, opts)
	if err == nil {
		err = access.Node(n).CheckSession(ctx, t.Session)
	}
	if err != nil {
		return nil, handle.AboutSession("attach", t.Session, err)
	}
	d := access.Session(s).Session
	d.Key = t.Key
	// Its connection stays open if it is given up: the caller tries again until it is answered.
	r := d.Restore(ctx, t.Session, &core.Restore{Epoch: t.Epoch, First: t.FirstNumber, Keep: true})
	if r.Err != nil {
		err := handle.AboutSession("attach", t.Session, driver.Err(r))
		d.Drop(err)
		return nil, err
	}
	return s, nil
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
// queued, if not nil, is called at most once, on the calling goroutine, when the request waits in
// the queue.
//
// A session has one entry for each name, which an acquire sets: the acquire that waits there ends
// with ErrAborted, and so it does when the entry is released. Send the next request on a name when
// the one before was answered or queued. If ctx ends, the entry stays as it is.
func Acquire(ctx context.Context, s *client.Session, r AcquireRequest, queued func()) (acquired bool, err error) {
	if r.Name == "" {
		return false, driver.WithOp("acquire", r.Name, handle.ErrNoSemaphore)
	}
	o := driver.AcquireOptions{Count: r.Count, Timeout: r.Timeout, Data: r.Data, Ephemeral: r.Ephemeral, Turn: core.Next}
	if queued != nil {
		o.OnQueued = func(uint64) { queued() }
	}
	result := access.Session(s).Session.Acquire(ctx, r.Name, o, nil, nil)
	if result.Answered && result.Err == core.ErrNotAcquired {
		return false, nil
	}
	return result.Err == nil, driver.WithOp("acquire", r.Name, driver.Err(result))
}

// A client of the gateway believes in what it holds for its timeout after each message from the
// gateway. So the gateway sends nothing once less than that is left of the native session: see
// [client.Session.Remaining]. The native session's timeout is longer than the client's, so that
// this happens only if the cluster does not answer for longer than the slack: a quarter of the
// timeout, 0.5 s to 5 s. If the gateway dies, the cluster keeps the session for the longer time,
// and the client has stopped believing by then.
const (
	slackShare = 4
	minSlack   = 500 * time.Millisecond
	maxSlack   = 5 * time.Second
	// keepAlives are sent in the slack, so that two may be lost.
	keepAlives = 3
	// MaxTimeout is the longest timeout that a client can have. What the native session has beyond
	// it is the slack, and what a session may not be relied on for; see sessionstate.Window.
	MaxTimeout = 25 * time.Minute
	// maxGrace is the longest grace period of a node.
	maxGrace = 30 * time.Second
)

// slack is how long the cluster may not answer before a client with a timeout is affected.
func slack(timeout time.Duration) time.Duration {
	return min(max(timeout/slackShare, minSlack), maxSlack)
}

// NativeTimeout is the native session's timeout: the shortest one that may be relied on for the
// client's timeout and the slack.
func NativeTimeout(timeout time.Duration) time.Duration {
	window := timeout + slack(timeout)
	// Both limits of sessionstate.Window, solved for the timeout and rounded up to a millisecond.
	native := max(window*100/85, (window+maxGrace*2/100)*100/98)
	return (native + time.Millisecond).Truncate(time.Millisecond)
}

// Since is how long ago the native session behind a client's timeout was renewed.
func Since(s *client.Session, timeout time.Duration) time.Duration {
	return max(0, timeout+slack(timeout)-s.Remaining())
}

// Timeout is the longest timeout of a client, in whole seconds, whose native session has this one:
// no client may have been told more. It is at least a second.
func Timeout(native time.Duration) time.Duration {
	timeout := min(native.Truncate(time.Second), MaxTimeout)
	for timeout > time.Second && NativeTimeout(timeout) > native {
		timeout -= time.Second
	}
	return max(timeout, time.Second)
}

// KeepAlive is the time between two keep-alives of the native session for a client's timeout.
func KeepAlive(timeout time.Duration) time.Duration { return slack(timeout) / keepAlives }

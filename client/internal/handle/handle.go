// Package handle is how the packages below client reach the cluster through a client, a node or a
// session of package client: with requests of the protocol, which programs cannot send. They get the
// handles from package access.
//
// Package client sets Hooks, and package access calls them, with the types that this package cannot
// name.
package handle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Client is a client.
type Client struct {
	Driver *driver.Driver
	Logger *slog.Logger
	// Values are what packages keep for each client, by keys of types of their own.
	Values *sync.Map
}

// Node is a coordination node.
type Node struct {
	Driver *driver.Driver
	ID     uint64
	Tier   uint8
	Path   string

	Relaxed bool          // reads are RELAXED unless they say otherwise, as of when the node was resolved
	Grace   time.Duration // how old a RELAXED read may be
}

// Session is a session on its node.
type Session struct {
	Node
	Session *driver.Session
}

// Call sends a request that belongs to no session until it is answered. repeated reports whether an
// earlier sending, or this one, may have taken effect without an answer.
func (c Client) Call(
	ctx context.Context, to core.Target, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	return call(ctx, c.Driver, to, kind, m, reply)
}

// Call is Client.Call through the node's client.
func (n Node) Call(
	ctx context.Context, to core.Target, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	return call(ctx, n.Driver, to, kind, m, reply)
}

func call(
	ctx context.Context, d *driver.Driver, to core.Target, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	r := d.Call(ctx, &core.Call{Kind: kind, Msg: m, Reply: reply, To: to})
	return r.Repeated || r.Unknown, driver.Err(r)
}

// Map is the cluster map that the client routes by. It must not be changed.
func (c Client) Map(ctx context.Context) (*protocol.MapReply, error) {
	if err := driver.Err(c.Driver.AwaitMap(ctx, &core.MapWait{Any: true})); err != nil {
		return nil, err
	}
	return c.Driver.Map(), nil
}

// Node reads a coordination node by its path. Errors: ErrNotFound.
func (c Client) Node(ctx context.Context, path string) (*protocol.NodeInfo, error) {
	var reply protocol.NodeInfo
	if _, err := c.Call(ctx, core.Target{}, protocol.KindNodeDescribe, &protocol.NodeDescribe{Path: path},
		&reply); err != nil {
		return nil, err
	}
	return &reply, nil
}

// Read is how a read is to be done: its message and its reply have the rest.
func (n Node) Read(
	asked protocol.Consistency, consistency *protocol.Consistency, minIndex, index *uint64,
) *core.Read {
	return &core.Read{
		Asked: asked, NodeRelaxed: n.Relaxed, Grace: n.Grace, Want: consistency, MinIndex: minIndex, Index: index,
	}
}

// CheckSession rejects an id whose tier or bucket the cluster does not have: no session can have it.
func (n Node) CheckSession(ctx context.Context, id uint64) error {
	for _, refresh := range []bool{false, true} {
		if r := n.Driver.AwaitMap(ctx, &core.MapWait{Any: true, Refresh: refresh}); r.Err != nil {
			return driver.Err(r)
		}
		_, buckets := n.Driver.Tier(protocol.SessionTier(id))
		if protocol.SessionBucket(id) < buckets {
			return nil
		}
		if buckets > 0 {
			break // there are never more
		}
	}
	return protocol.Errorf(protocol.StatusSessionExpired, "session has ended or never was")
}

// ErrNoSemaphore: a semaphore has no name.
var ErrNoSemaphore = protocol.Errorf(protocol.StatusBadRequest,
	"semaphore name is empty; it must be 1 to %d bytes long", protocol.MaxNameLen)

// AboutSession names the session that an error is about, and makes it core.ErrSessionExpired when the
// server said so.
func AboutSession(op string, id uint64, err error) error {
	return fmt.Errorf("%s session %d: %w", op, id, AboutEnd(err))
}

// AboutEnd has the server's word that a session has ended be ErrSessionExpired too.
func AboutEnd(err error) error {
	if protocol.StatusOf(err) == protocol.StatusSessionExpired && !errors.Is(err, core.ErrSessionExpired) {
		err = fmt.Errorf("%w (%w)", core.ErrSessionExpired, err)
	}
	return err
}

// Shards are those of the node, in order. A cluster that was made a moment ago has none yet, and is
// waited for.
func (n Node) Shards(ctx context.Context) ([]uint64, error) {
	shards, _ := n.Driver.Tier(n.Tier)
	if len(shards) > 0 {
		return shards, nil
	}
	if err := driver.Err(n.Driver.AwaitMap(ctx, &core.MapWait{Tier: n.Tier})); err != nil {
		return nil, err
	}
	shards, _ = n.Driver.Tier(n.Tier)
	return shards, nil
}

// AtShard is the leader of one of the node's shards.
func (n Node) AtShard(shard uint64) core.Target {
	return core.Target{Of: core.AtShard, Tier: n.Tier, Shard: shard}
}

// At is the leader of the shard that owns the name of a semaphore or a rollout.
func (n Node) At(name string) core.Target {
	return core.Target{Of: core.AtName, Tier: n.Tier, Node: n.ID, Name: name}
}

// Description is a description of a semaphore, page by page.
type Description struct {
	Request *protocol.Describe                  // of the first page; the cursors of the others are put into it
	Read    func(*protocol.DescribeReply) error // reads the page at the request's cursor
}

// Hooks are functions and options of package client that programs cannot call. Package client fills
// them in when it is initialized, and nothing changes them then. Package access calls them, and
// gives them their types, which this package cannot name.
var Hooks struct {
	Client  func(client any) Client   // of a *client.Client
	Node    func(node any) Node       // of a *client.Node
	Session func(session any) Session // of a *client.Session

	NewSession    func(node, options any) (session any, err error) // options are a []client.SessionOption
	DescribePages func(Description) (semaphore any, err error)     // a *client.Semaphore

	// NameLimits and SessionLimits say what read options, a []client.ReadOption, mean for a list.
	NameLimits, SessionLimits func(options any) ListLimits

	// Options of type client.AcquireOption.
	IgnorePreemption, OnlyUnit any
	WaitAtMost                 func(time.Duration) (option any)
	// CheckAcquire is the error of options, a []client.AcquireOption, that an acquire would not send.
	CheckAcquire func(options any) error
}

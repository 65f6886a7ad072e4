// Package handle is how the packages below client reach the cluster through a client, a node or a
// session of package client: with requests of the protocol, which programs cannot send. Package
// client gives the handles to packages that have a Key.
package handle

import (
	"context"
	"log/slog"
	"sync"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Key keeps methods of package client for the packages below it: nobody else can name its type.
type Key struct{}

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
}

// Session is a session on its node.
type Session struct {
	Node
	Session *driver.Session
}

// Call sends a request that belongs to no session until it is answered. repeated reports whether an
// earlier sending, or this one, may have taken effect without an answer.
func (c Client) Call(ctx context.Context, to core.Target, kind protocol.Kind, m, reply protocol.Message) (repeated bool, err error) {
	return Call(ctx, c.Driver, to, kind, m, reply)
}

// Call is Client.Call through a driver.
func Call(
	ctx context.Context, d *driver.Driver, to core.Target, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	x := core.Call{Kind: kind, Msg: m, Reply: reply, To: to}
	r := d.Call(ctx, &x)
	return x.Repeated() || r.Unknown, driver.Err(r)
}

// Map is the cluster map that the client routes by. It must not be changed.
func (c Client) Map(ctx context.Context) (*protocol.MapReply, error) {
	if err := driver.Err(c.Driver.AwaitMap(ctx, &core.MapWait{Any: true})); err != nil {
		return nil, err
	}
	return c.Driver.Map(), nil
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

// Takeover says which session is taken over, and with what.
type Takeover struct {
	Session     uint64
	Key         []byte
	Epoch       uint64
	FirstNumber uint64
}

// Entry is an acquire without a lease.
type Entry struct {
	Name      string
	Count     uint64
	Timeout   uint64 // ms, or protocol.Forever
	Data      []byte
	Ephemeral bool
}

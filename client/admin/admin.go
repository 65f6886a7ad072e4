// Package admin operates a cluster: it shows what works and what is planned, drains and expels
// instances, moves leadership, manages identities and their rights, and takes backups.
//
//	a := admin.New(c)
//	status, err := a.Status(ctx)
//	instance, err := a.Drain(ctx, "db-3")
//	node, err := admin.Nodes(c).Ensure(ctx, "/billing", admin.NodeConfig{})
//	err = admin.OfNode(n).KillSession(ctx, id, "its host hangs")
//
// Any instance answers. A call waits out lost connections until its context ends, so a request may
// arrive twice; asking again for what is already so changes nothing. A call that changes something
// returns when the meta shard has decided it, which is before it is done: watch Status or Plan. Calls
// about coordination nodes return when it is done.
//
// Status, Plan, Health and Shards need the right read on the path "/", Top shows what the identity
// may read, WhoAmI and Map need no right, and all other calls need the right admin. Errors are
// those of package client: ErrForbidden, ErrNotFound for a name that the cluster does not have,
// ErrBadRequest, ErrPreconditionFailed with a sentence that says what would allow the change, and
// ErrUnavailable while the meta shard has no leader. ErrOutcomeUnknown marks a change that was sent
// and not answered before the context ended. While the meta shard has no majority, a change ends
// with both after a few seconds, and with a sentence that names the instances to start.
package admin

import (
	"context"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Client operates the cluster that a client is connected to. It may be used by any number of
// goroutines.
type Client struct {
	c      cluster
	reason string
}

// cluster is how requests are sent. Tests have one of their own.
type cluster interface {
	Cluster(ctx context.Context, method string, in, out any) error
	ClusterAt(ctx context.Context, instance uint64, method string, in, out any) error
	Map(ctx context.Context) (*protocol.MapReply, error)
}

// New returns a Client that sends its requests through c. The caller still closes c.
func New(c *client.Client) *Client { return &Client{c: access.Client(c)} }

// WithReason is the Client with a reason that the audit log has beside changes that take one.
func (a *Client) WithReason(text string) *Client { return &Client{a.c, text} }

// call sends a request and reads its answer. A nil request is empty.
func call[T any](ctx context.Context, a *Client, method string, in any) (*T, error) {
	out := new(T)
	if err := a.c.Cluster(ctx, method, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Status describes the cluster as the map of one instance has it, which may be old, and its health
// as that instance sees it now.
func (a *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, a, protocol.MethodStatus, nil)
}

// Plan lists the steps that the governor takes next, and every deviation from the configuration
// that it does not act on, with the reason.
func (a *Client) Plan(ctx context.Context) (*Plan, error) {
	return call[Plan](ctx, a, protocol.MethodPlan, nil)
}

// Health says what works and what may be lost, as one instance sees it.
func (a *Client) Health(ctx context.Context) (*Health, error) {
	return call[Health](ctx, a, protocol.MethodHealth, nil)
}

// Map returns the cluster map that the client routes requests by. The client fetches it again when
// it changes. The caller must not change it.
func (a *Client) Map(ctx context.Context) (*Map, error) { return a.c.Map(ctx) }

// Drain moves leadership and votes away from an instance, by name or UUID, and gives it neither
// again until its next start, or Undrain. Drain an instance before it is stopped for long, or
// expelled.
func (a *Client) Drain(ctx context.Context, instance string) (*Instance, error) {
	return call[Instance](ctx, a, protocol.MethodDrain, protocol.DrainRequest{Instance: instance, Reason: a.reason})
}

// Undrain lets a drained instance lead and vote again.
func (a *Client) Undrain(ctx context.Context, instance string) (*Instance, error) {
	return call[Instance](ctx, a, protocol.MethodDrain,
		protocol.DrainRequest{Instance: instance, Undo: true, Reason: a.reason})
}

// HoldUpgrade keeps the cluster's version as it is though all instances may run a newer one, so
// that each of them can go back; without hold the version follows the instances again.
func (a *Client) HoldUpgrade(ctx context.Context, hold bool) error {
	_, err := call[protocol.Upgrade](ctx, a, protocol.MethodUpgrade,
		protocol.UpgradeRequest{Hold: hold, Reason: a.reason})
	return err
}

// Expel removes an instance from the cluster for good. ErrPreconditionFailed: without force, if the
// instance is not Offline or leads a shard; in any case, if a shard with data or the cluster has no
// majority, or would have none, or if the buckets have nowhere to go. Data is never lost by it.
// force needs a Client that WithReason made: ErrBadRequest without.
func (a *Client) Expel(ctx context.Context, instance string, force bool) (*Instance, error) {
	return call[Instance](ctx, a, protocol.MethodExpel,
		protocol.ExpelRequest{Instance: instance, Force: force, Reason: a.reason})
}

// Transfer makes another instance that has a replica of the shard its leader.
func (a *Client) Transfer(ctx context.Context, shard uint64, instance string) (*Shard, error) {
	return call[Shard](ctx, a, protocol.MethodTransfer, protocol.TransferRequest{Shard: shard, Instance: instance})
}

// SetWeight sets a replicaset's share of its tier's buckets, relative to the other replicasets. The
// initial weight is 1; 0 moves all buckets away. Weights are kept to the thousandth.
func (a *Client) SetWeight(ctx context.Context, replicaset string, weight float64) (*Replicaset, error) {
	return call[Replicaset](ctx, a, protocol.MethodWeight,
		protocol.WeightRequest{Replicaset: replicaset, Weight: weight})
}

// SetReplicationFactor sets how many instances each replicaset of a tier is filled up to. A lower
// factor than before needs force, and a Client that WithReason made: ErrPreconditionFailed and
// ErrBadRequest without.
func (a *Client) SetReplicationFactor(ctx context.Context, tier string, factor uint32, force bool) (*Tier, error) {
	return call[Tier](ctx, a, protocol.MethodReplicationFactor,
		protocol.ReplicationFactorRequest{Tier: tier, Factor: factor, Force: force, Reason: a.reason})
}

// Shards describes the data shards of a tier, and what is left to do until each replicaset has as
// many as the tier says. A number of shards above 0 describes what a change to it would do. An
// empty tier is that of new coordination nodes.
func (a *Client) Shards(ctx context.Context, tier string, shards uint32) (*Shards, error) {
	return call[Shards](ctx, a, protocol.MethodShards, protocol.ShardsRequest{Tier: tier, Shards: shards})
}

// SetShards sets how many data shards each replicaset of a tier has, 1 to 64. Missing shards are
// made and get their part of the buckets. Surplus shards, the newest ones, are emptied and removed.
// Shards says what is left to do.
func (a *Client) SetShards(ctx context.Context, tier string, shards uint32) (*Shards, error) {
	return call[Shards](ctx, a, protocol.MethodSetShards, protocol.ShardsRequest{Tier: tier, Shards: shards})
}

// RotateTicketKey has session tickets signed with a new key, and returns the key's id. Tickets of
// the previous key stay valid until the next rotation, so two rotations invalidate every older
// ticket; clients then attach again by themselves.
func (a *Client) RotateTicketKey(ctx context.Context) (id uint64, err error) {
	key, err := call[protocol.TicketKey](ctx, a, protocol.MethodRotateKeys, protocol.TicketKeyRequest{})
	if err == nil { // naming the key makes a repeated request harmless
		key, err = call[protocol.TicketKey](ctx, a, protocol.MethodRotateKeys,
			protocol.TicketKeyRequest{Current: key.ID})
	}
	if err != nil {
		return 0, err
	}
	return key.ID, nil
}

package server

import (
	"time"

	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Raft implements request.Shard.
func (d *shardHost) Raft() *replica.Shard { return d.raft }

// Delivery implements request.Shard.
func (d *shardHost) Delivery() *delivery.Shard { return d.delivery }

// Requests implements request.Shard.
func (d *shardHost) Requests() *request.ShardRequests { return d.requests }

// ID implements session.Home.
func (d *shardHost) ID() uint64 { return d.id }

// RenewLeases implements session.Home.
func (d *shardHost) RenewLeases(conn, ping uint64) { d.raft.Ping(conn, ping) }

// ConnClosed implements session.Home.
func (d *shardHost) ConnClosed(conn uint64, heard time.Duration) { d.raft.ConnClosed(conn, heard) }

// sessionAttached is told by the home's log that a session was attached: through a connection of
// this instance, or, with a nil conn, through another instance or one that is closed; the shard's
// leader knows the latter by itself. Connections that had the session under an older epoch lose it
// and are told.
func (d *shardHost) sessionAttached(c *request.Client, e *shard.Event) {
	if c == nil || !c.NewBinding(e.Session, e.Epoch, e.Node, d, e.Text).Bind(time.Duration(e.Timeout)*time.Millisecond) {
		d.server.bindings.Elsewhere(e.Session, e.Epoch, d)
	}
}

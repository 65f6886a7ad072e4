package request

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Shard is a data shard as this instance hosts it.
type Shard interface {
	session.Home
	Replica() *replica.Shard
	Hubs() *delivery.Hubs
	Requests() *ShardRequests

	// Leading reports whether this instance leads the shard, as far as its log says.
	Leading() bool
	// LedElsewhere reports whether another instance leads it, as far as is known here.
	LedElsewhere() bool
	// LeaderInstance is the instance that leads, and the raft term since which it does; 0 for
	// unknown. The instance is one that runs a replica of the shard in this map: a leader that is
	// newer than the map is not known.
	LeaderInstance(state *meta.State) (instance, term uint64)
	// MaxLogTime is a log time that this leader cannot have passed.
	MaxLogTime(m *shard.Machine, now time.Duration) uint64
}

// ShardRequests is this package's state for a hosted shard.
type ShardRequests struct {
	server *Server
	pager  *pager

	// Of the shard's barrier goroutine.
	out     *Outbox
	buffers *readBuffers

	PollsRead, PollsLogged atomic.Uint64 // polls of tracks: answered from memory; submitted to the log

	LimitRefreshes, LimitAcquires atomic.Uint64
	limits                        limitAnswers // of the barrier goroutine
}

// NewShard returns the state for a shard. Run it while the shard is hosted.
func (s *Server) NewShard(d Shard) *ShardRequests {
	return &ShardRequests{server: s, pager: newPager(d), out: s.NewOutbox(), buffers: new(readBuffers)}
}

// Close ends it when the shard is not hosted any more.
func (r *ShardRequests) Close() { r.out.Close() }

// Run sends pages of streams until ctx ends.
func (r *ShardRequests) Run(ctx context.Context) { r.pager.run(ctx) }

// SendPages has the connection's due pages sent.
func (r *ShardRequests) SendPages(c *Client) { r.pager.add(c) }

package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/client/gateway"
)

// cluster is what the gateway keeps for a connection to the cluster: the sessions of the clients
// with its token.
type cluster struct {
	g *Gateway
	*gateway.Connection[*cluster]

	checking atomic.Bool // checkToken runs

	mu        sync.Mutex
	sessions  map[uint64]*session   // by id: those that are kept attached
	restoring map[uint64]*restoring // by id: the newest restore in progress
}

// clusterConnections are the gateway's connections to the cluster, by token. One with sessions
// stays.
func clusterConnections(g *Gateway) *gateway.Clients[*cluster] {
	return gateway.NewClients(g.ctx, gateway.ClientsConfig[*cluster]{
		Client: g.cfg.Cluster, Purpose: "rate limits of YDB clients", Logger: g.cfg.Logger,
		State: func(c *gateway.Connection[*cluster]) *cluster {
			return &cluster{g: g, Connection: c, sessions: make(map[uint64]*session),
				restoring: make(map[uint64]*restoring)}
		},
		Busy:    func(c *gateway.Connection[*cluster]) bool { return c.State.hasSessions() },
		Changed: func(by int64) { g.metrics.clusters.Add(by) },
		Refused: func() { g.metrics.tokensRefused.Add(1) },
	})
}

func (c *cluster) hasSessions() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)+len(c.restoring) > 0
}

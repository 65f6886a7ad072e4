package server

import (
	"bytes"
	"context"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/operator"
)

func (s *Server) clusterMethods() *operator.ClusterMethods {
	return &operator.ClusterMethods{Self: s.instance, ClusterChanger: s.governor, Observe: s.membership.Observe, AskGovernor: s.member.FetchPlan, Backup: s.member.FetchBackup}
}

// clusterRequest serves operators' methods, off the event loop: documents are made, and changes wait for the meta shard.
func clusterRequest(c *conn, p *readCycle, h protocol.Header, _ target) {
	m := new(protocol.Cluster)
	if !p.decode(c, h, m) {
		return
	}
	right := auth.RightAdmin
	switch m.Method {
	case protocol.MethodWhoAmI:
		right = 0
	case protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth:
		right = auth.RightRead
	}
	if right != 0 {
		if bad := c.allowedPath(right, "/"); bad != nil {
			p.out.failError(c, h.Kind, h.ID, bad)
			return
		}
	}
	if right == auth.RightAdmin && m.Method != protocol.MethodBackup && m.Method != protocol.MethodAuth { // that is one request of many, and changes nothing
		c.server.log.Info("cluster change asked", "method", m.Method, "identity", c.identity, "remote", c.Remote())
		c.server.audit.write(audit.Event{Title: "ask_" + m.Method, Message: "a change of the cluster is asked for", Severity: audit.High, Initiator: c.identity,
			Fields: append(operator.Subjects(m.Body), audit.Field{Key: "remote", Value: c.Remote()})})
	}
	m.Body = bytes.Clone(m.Body)
	methods := c.server.clusterMethods()
	methods.Auth = &operator.AuthMethods{AuthChanger: c.server.governor, Identity: c.identity, Exempt: func() { c.authExempt.Store(true) }}
	c.runOffLoop(p, h, c.server.methods, func(ctx context.Context) (protocol.Message, error) {
		body, err := methods.Serve(ctx, m.Method, m.Body)
		if strings.HasPrefix(m.Method, operator.AuthPrefix) {
			c.server.setAuth(c.server.meta.State()) // who asked may come back with a new token before the map is looked at
		}
		if err == nil && len(body) > protocol.MaxDataLen {
			err = protocol.Errorf(protocol.StatusOverloaded, "the answer is longer than %d bytes; the cluster has too many members for one document; read /metrics of its instances", protocol.MaxDataLen)
		}
		return &protocol.ClusterReply{Body: body}, err
	})
}

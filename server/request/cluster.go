package request

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/operator"
)

// readsAsAdmin reports whether a method changes nothing although it needs the right admin. It is
// asked often, and is not worth a line in the audit log.
func readsAsAdmin(method string) bool {
	switch method {
	case protocol.MethodBackup, protocol.MethodAuth, protocol.MethodAuditLog, protocol.MethodTrust:
		return true
	}
	return false
}

// clusterRequest serves operators' methods, off the event loop: documents are made, and changes
// wait for the meta shard.
func clusterRequest(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.Cluster)
	if !p.decode(c, h, m) {
		return
	}
	right := auth.RightAdmin
	switch m.Method {
	case protocol.MethodWhoAmI:
		right = 0
	case protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth, protocol.MethodShards:
		right = auth.RightRead
	case protocol.MethodTop: // its result is filtered by rights
		right = 0
		if bad := c.allowedPath(auth.RightRead, "/"); bad != nil && !c.allowedAnywhere(auth.RightRead) {
			p.out.FailError(c, h.Kind, h.ID, bad)
			return
		}
	}
	if right != 0 {
		if bad := c.allowedAt(right, "/"); bad != nil {
			p.reject(c, h, bad)
			return
		}
	}
	changes := right == auth.RightAdmin && !readsAsAdmin(m.Method)
	var subjects []any
	if changes {
		var err error
		if subjects, err = operator.Subjects(m.Body); err != nil {
			p.out.FailError(c, h.Kind, h.ID, err)
			return
		}
		writeAudit(c, audit.Event{Title: "ask_" + m.Method,
			Message: "cluster change requested", Severity: audit.High},
			append(slices.Clone(subjects), "remote", c.Remote())...)
	}
	done := outcomeOf(c, m.Method, subjects...)
	m.Body = bytes.Clone(m.Body)
	methods := c.server.cfg.Cluster.Methods()
	methods.Auth = &operator.AuthMethods{AuthChanger: c.server.cfg.Cluster.Governor(), Identity: c.identity,
		FetchKeys: c.server.cfg.Cluster.FetchKeys}
	if by := c.shown.Load(); by != nil {
		methods.Auth.Subject = by.Subject
	}
	methods.MayRead = func(path string) bool { return c.allowedPath(auth.RightRead, path) == nil }
	serve := func(ctx context.Context) (protocol.Message, error) {
		if m.Method == protocol.MethodAuthSwitch {
			c.authSwitches.Add(1)
			defer c.authSwitches.Add(-1)
		}
		body, err := methods.Serve(ctx, m.Method, m.Body)
		if strings.HasPrefix(m.Method, operator.AuthPrefix) {
			c.server.SetAuth(c.server.cfg.Cluster.State()) // who asked may come back with a new token at once
		}
		if err == nil && len(body) > protocol.MaxDataLen {
			err = protocol.Errorf(protocol.StatusOverloaded,
				"the answer has %d bytes, at most %d are allowed; ask for less, or read /metrics of the cluster's instances",
				len(body), protocol.MaxDataLen)
		}
		if changes {
			done(err)
		}
		return &protocol.ClusterReply{Body: body}, err
	}
	if changes {
		runChange(c, p, h, c.server.methods, false, serve)
	} else {
		runOffLoop(c, p, h, c.server.methods, serve)
	}
}

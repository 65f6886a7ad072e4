package handle

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Cluster sends a method for operators, protocol.MethodStatus and its neighbours, to any instance,
// and to another one while that cannot be reached, so that the method may be carried out twice. in
// may be nil for a method that needs nothing, and out when the answer does not matter. Package admin
// has typed calls.
func (c Client) Cluster(ctx context.Context, method string, in, out any) error {
	req, err := clusterRequest(method, in)
	if err != nil {
		return err
	}
	var reply protocol.ClusterReply
	if repeated, err := c.Call(ctx, core.Target{}, protocol.KindCluster, req, &reply); err != nil {
		asks := false
		switch method {
		case protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth, protocol.MethodTop,
			protocol.MethodAuth, protocol.MethodWhoAmI, protocol.MethodBackup, protocol.MethodShards,
			protocol.MethodTrust:
			asks = true
		}
		// A change that turned auth on, or took rights away, may have the one who asked for it
		// refused when it is sent again.
		shutOut := false
		switch method {
		case protocol.MethodAuthSwitch, protocol.MethodGrant, protocol.MethodRevoke:
			shutOut = protocol.StatusOf(err) == protocol.StatusForbidden
		case protocol.MethodTokenRevoke, protocol.MethodTrustCreate, protocol.MethodTrustKeys,
			protocol.MethodTrustDelete: // of the token that asked
			shutOut = protocol.StatusOf(err) == protocol.StatusUnauthenticated
		}
		switch method {
		case protocol.MethodRevoke, protocol.MethodTokenRevoke, protocol.MethodTrustDelete:
			if repeated && protocol.StatusOf(err) == protocol.StatusNotFound {
				return nil // the first sending did it
			}
		}
		return withMethod(method, driver.OutcomeUnknown(repeated && (!driver.Answered(err) && !asks || shutOut), err))
	}
	return readClusterReply(method, &reply, out)
}

// ClusterAt is Cluster at one instance of the map, once.
func (c Client) ClusterAt(ctx context.Context, instance uint64, method string, in, out any) error {
	req, err := clusterRequest(method, in)
	if err != nil {
		return err
	}
	var reply protocol.ClusterReply
	r := c.Driver.Call(ctx, &core.Call{
		Kind: protocol.KindCluster, Msg: req, Reply: &reply, To: core.Target{Of: core.AtInstance, Instance: instance},
		Single: true,
	})
	if err := driver.Err(r); err != nil {
		return withMethod(method, err)
	}
	return readClusterReply(method, &reply, out)
}

// clusterRequest is the request of a method. in may be nil.
func clusterRequest(method string, in any) (*protocol.Cluster, error) {
	req := &protocol.Cluster{Method: method, Body: []byte("{}")}
	if in == nil {
		return req, nil
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, withMethod(method, err)
	}
	req.Body = body
	return req, nil
}

func readClusterReply(method string, reply *protocol.ClusterReply, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		return withMethod(method, protocol.Errorf(protocol.StatusInternal,
			"the answer cannot be read: %v", err))
	}
	return nil
}

// withMethod says in people's words which method an error is of.
func withMethod(method string, err error) error {
	if err == nil {
		return nil
	}
	op := strings.ReplaceAll(method, "_", " ")
	switch {
	case method == protocol.MethodAuthSwitch:
		op = "turn authentication on or off"
	case !strings.HasPrefix(method, "auth_") && !strings.HasPrefix(method, "audit_"):
		op = "cluster " + op
	}
	return fmt.Errorf("%s: %w", op, err)
}

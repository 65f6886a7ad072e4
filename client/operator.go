package client

import (
	"context"
	"encoding/json"

	"github.com/signalbox-dev/signalbox/protocol"
)

// callCluster sends a method for operators, protocol.MethodStatus and its neighbours, to any
// instance, and to another one while that cannot be reached, so that the method may be carried out
// twice. in may be nil for a method that needs nothing, and out when the answer does not matter.
// Package admin has typed calls.
func callCluster(ctx context.Context, c *Client, method string, in, out any) error {
	req, err := clusterRequest(method, in)
	if err != nil {
		return err
	}
	var reply protocol.ClusterReply
	if repeated, err := c.request(ctx, c.anyInstance, protocol.KindCluster, req, &reply); err != nil {
		asks := false
		switch method {
		case protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth, protocol.MethodTop,
			protocol.MethodAuth, protocol.MethodWhoAmI, protocol.MethodBackup, protocol.MethodShards:
			asks = true
		}
		// A change that turned auth on, or took rights away, may have the one who asked for it
		// refused when it is sent again.
		shutOut := false
		switch method {
		case protocol.MethodAuthSwitch, protocol.MethodGrant, protocol.MethodRevoke:
			shutOut = protocol.StatusOf(err) == protocol.StatusForbidden
		case protocol.MethodTokenRevoke: // of the token that asked
			shutOut = protocol.StatusOf(err) == protocol.StatusUnauthenticated
		}
		switch method {
		case protocol.MethodRevoke, protocol.MethodTokenRevoke:
			if repeated && protocol.StatusOf(err) == protocol.StatusNotFound {
				return nil // the first sending did it
			}
		}
		return withOp("cluster", method, outcomeUnknown(repeated && (!answered(err) && !asks || shutOut), err))
	}
	return readClusterReply(method, &reply, out)
}

// callInstance sends a method for operators to one instance, once.
func callInstance(ctx context.Context, c *Client, instance uint64, method string, in, out any) error {
	req, err := clusterRequest(method, in)
	if err != nil {
		return err
	}
	r, err := c.currentRoutes(ctx)
	if err != nil {
		return withOp("cluster", method, err)
	}
	cn, err := c.connector(instance, "").getVia(ctx, r.instances[instance], nil)
	if err != nil {
		return withOp("cluster", method, err)
	}
	var reply protocol.ClusterReply
	if _, err := cn.roundTrip(ctx, protocol.KindCluster, 0, 0, req, &reply); err != nil {
		return withOp("cluster", method, err)
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
		return nil, withOp("cluster", method, err)
	}
	req.Body = body
	return req, nil
}

func readClusterReply(method string, reply *protocol.ClusterReply, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		return withOp("cluster", method, protocol.Errorf(protocol.StatusInternal,
			"the answer cannot be read: %v", err))
	}
	return nil
}

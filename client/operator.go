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
	req := &protocol.Cluster{Method: method, Body: []byte("{}")}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return withOp("cluster", method, err)
		}
		req.Body = body
	}
	var reply protocol.ClusterReply
	if repeated, err := c.request(ctx, c.anyInstance, protocol.KindCluster, req, &reply); err != nil {
		asks := false
		switch method {
		case protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth, protocol.MethodAuth, protocol.MethodWhoAmI, protocol.MethodBackup:
			asks = true
		}
		return withOp("cluster", method, outcomeUnknown(repeated && !answered(err) && !asks, err))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		return withOp("cluster", method, protocol.Errorf(protocol.StatusInternal, "the answer cannot be read: %v", err))
	}
	return nil
}

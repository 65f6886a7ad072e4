package client

import (
	"context"
	"encoding/json"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Cluster asks the cluster something as operators do, or tells it to change: protocol.MethodStatus and its neighbours say which methods there are, and what in and out
// are; in may be nil for a method that needs nothing, out when the answer is of no interest. Any instance is asked, and another one while that is away, so the
// method may be carried out twice: asking again for what is so already changes nothing. Errors: Forbidden without the right admin, or read for what only asks;
// PreconditionFailed with what would allow it; NotFound; BadRequest; Unavailable when the meta shard has no leader for longer than ctx.
func (c *Client) Cluster(ctx context.Context, method string, in, out any) error {
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
		asks := method == protocol.MethodStatus || method == protocol.MethodPlan || method == protocol.MethodHealth
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

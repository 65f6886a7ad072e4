package gateway

import (
	"context"
	"errors"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_RateLimiter"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Ends of an operation by its parameters.
var (
	errOperationTimeout = errors.New("the operation took longer than its timeout; allow more time, or raise the rate of the resource")
	errCancelAfter      = errors.New("the operation was cancelled after the time in its cancel_after; allow more time, or raise the rate of the resource")
)

// operationContext ends when the parameters of an operation say so. The cause says which did.
func operationContext(ctx context.Context, p *Ydb_Operations.OperationParams) (context.Context, context.CancelFunc) {
	timeout, cancelAfter := maxAcquire, p.GetCancelAfter().AsDuration()
	if d := p.GetOperationTimeout().AsDuration(); d > 0 {
		timeout = min(timeout, d)
	}
	if cancelAfter > 0 && cancelAfter <= timeout {
		return context.WithTimeoutCause(ctx, cancelAfter, errCancelAfter)
	}
	return context.WithTimeoutCause(ctx, timeout, errOperationTimeout)
}

// AcquireResource takes units. What is required is waited for until the operation's timeout, in the
// order in which it came. What is used already is counted at once, and later calls wait.
func (r *rateLimiter) AcquireResource(
	ctx context.Context, req *Ydb_RateLimiter.AcquireResourceRequest,
) (*Ydb_RateLimiter.AcquireResourceResponse, error) {
	ctx, cancel := operationContext(ctx, req.GetOperationParams())
	defer cancel()
	op, err := r.g.callAtCluster(ctx, req.GetCoordinationNodePath(),
		func(ctx context.Context, c *cluster, node string) (proto.Message, error) {
			err := c.Limiters.Do(ctx, node, resourcePath(req.GetResourcePath()), func(l *ratelimit.Limiter) error {
				switch units := req.GetUnits().(type) {
				case *Ydb_RateLimiter.AcquireResourceRequest_Required:
					return l.Wait(ctx, units.Required)
				case *Ydb_RateLimiter.AcquireResourceRequest_Used:
					l.Spent(units.Used)
					return nil
				}
				return protocol.Errorf(protocol.StatusBadRequest, "no units are given; set required or used")
			})
			if err != nil {
				if end := context.Cause(ctx); errors.Is(end, errOperationTimeout) || errors.Is(end, errCancelAfter) {
					return nil, end
				}
				return nil, err
			}
			return &Ydb_RateLimiter.AcquireResourceResult{}, nil
		})
	return &Ydb_RateLimiter.AcquireResourceResponse{Operation: op}, err
}

package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_RateLimiter_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_RateLimiter"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
)

// rateLimiter is YDB's rate limiter service, over the rate limits of a node.
type rateLimiter struct {
	Ydb_RateLimiter_V1.UnimplementedRateLimiterServiceServer
	g *Gateway
}

// maxAcquire bounds an AcquireResource that waits, from its headers on.
const maxAcquire = 10 * time.Minute

// resourcePath is a client's path of a resource in the cluster's form. YDB takes slashes around it.
func resourcePath(path string) string { return strings.Trim(path, "/") }

// isRoot reports whether a resource has no parent.
func isRoot(path string) bool { return !strings.Contains(path, "/") }

// change is callAt for a change of a resource, with a session of the node.
func (r *rateLimiter) change(
	ctx context.Context, node string, result proto.Message, change func(ctx context.Context, s *client.Session) error,
) (*Ydb_Operations.Operation, error) {
	return r.g.callAtCluster(ctx, node, func(ctx context.Context, c *cluster, path string) (proto.Message, error) {
		s, release, err := c.Limiters.Session(ctx, path)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := change(ctx, s); err != nil {
			return nil, gateway.ResourceError{Err: err}
		}
		return result, nil
	})
}

// CreateResource makes a resource, whose parent must exist.
func (r *rateLimiter) CreateResource(
	ctx context.Context, req *Ydb_RateLimiter.CreateResourceRequest,
) (*Ydb_RateLimiter.CreateResourceResponse, error) {
	op, err := r.change(ctx, req.GetCoordinationNodePath(), &Ydb_RateLimiter.CreateResourceResult{},
		func(ctx context.Context, s *client.Session) error {
			given, err := settingsIn(req.GetResource())
			if err != nil {
				return err
			}
			path := resourcePath(req.GetResource().GetResourcePath())
			_, err = ratelimit.Create(ctx, s, path, given.in(ratelimit.Config{}, isRoot(path)))
			return err
		})
	return &Ydb_RateLimiter.CreateResourceResponse{Operation: op}, err
}

// AlterResource replaces the settings that YDB has. Other settings stay.
func (r *rateLimiter) AlterResource(
	ctx context.Context, req *Ydb_RateLimiter.AlterResourceRequest,
) (*Ydb_RateLimiter.AlterResourceResponse, error) {
	op, err := r.change(ctx, req.GetCoordinationNodePath(), &Ydb_RateLimiter.AlterResourceResult{},
		func(ctx context.Context, s *client.Session) error {
			given, err := settingsIn(req.GetResource())
			if err != nil {
				return err
			}
			path := resourcePath(req.GetResource().GetResourcePath())
			now, err := describeResource(ctx, s.Node(), path)
			if err != nil {
				return err
			}
			_, err = ratelimit.Alter(ctx, s, path, now.Revision, given.in(now.Config, isRoot(path)))
			return err
		})
	return &Ydb_RateLimiter.AlterResourceResponse{Operation: op}, err
}

// DropResource removes a resource without children.
func (r *rateLimiter) DropResource(
	ctx context.Context, req *Ydb_RateLimiter.DropResourceRequest,
) (*Ydb_RateLimiter.DropResourceResponse, error) {
	op, err := r.change(ctx, req.GetCoordinationNodePath(), &Ydb_RateLimiter.DropResourceResult{},
		func(ctx context.Context, s *client.Session) error {
			return ratelimit.Delete(ctx, s, resourcePath(req.GetResourcePath()), 0, ratelimit.Force())
		})
	return &Ydb_RateLimiter.DropResourceResponse{Operation: op}, err
}

// describeResource reads one resource.
func describeResource(ctx context.Context, n *client.Node, path string) (*ratelimit.Resource, error) {
	d, err := ratelimit.Describe(ctx, n, path, 0)
	if err != nil {
		return nil, err
	}
	return &d.Resources[0], nil
}

// DescribeResource gives the settings as they were given.
func (r *rateLimiter) DescribeResource(
	ctx context.Context, req *Ydb_RateLimiter.DescribeResourceRequest,
) (*Ydb_RateLimiter.DescribeResourceResponse, error) {
	op, err := r.g.callAt(ctx, req.GetCoordinationNodePath(),
		func(ctx context.Context, cl *client.Client, node string) (proto.Message, error) {
			n, err := cl.Node(ctx, node)
			if err != nil {
				return nil, err
			}
			path := resourcePath(req.GetResourcePath())
			x, err := describeResource(ctx, n, path)
			if err != nil {
				return nil, gateway.ResourceError{Err: err}
			}
			return &Ydb_RateLimiter.DescribeResourceResult{Resource: settingsOf(&x.Config, isRoot(path)).message(path)}, nil
		})
	return &Ydb_RateLimiter.DescribeResourceResponse{Operation: op}, err
}

// ListResources lists a resource, or all without parents, and with recursive those below.
func (r *rateLimiter) ListResources(
	ctx context.Context, req *Ydb_RateLimiter.ListResourcesRequest,
) (*Ydb_RateLimiter.ListResourcesResponse, error) {
	op, err := r.g.callAt(ctx, req.GetCoordinationNodePath(),
		func(ctx context.Context, cl *client.Client, node string) (proto.Message, error) {
			end, err := r.g.listings.begin(ctx)
			if err != nil {
				return nil, err
			}
			defer end()
			n, err := cl.Node(ctx, node)
			if err != nil {
				return nil, err
			}
			paths, err := listResources(ctx, n, resourcePath(req.GetResourcePath()), req.GetRecursive())
			if err != nil {
				return nil, gateway.ResourceError{Err: err}
			}
			return &Ydb_RateLimiter.ListResourcesResult{ResourcePaths: paths}, nil
		})
	return &Ydb_RateLimiter.ListResourcesResponse{Operation: op}, err
}

func listResources(ctx context.Context, n *client.Node, path string, recursive bool) (paths []string, err error) {
	var bound listBound
	add := func(path string) error {
		paths = append(paths, path)
		return bound.add(path, "resources", "signalbox limit ls")
	}
	below := func(path string) error {
		d, err := ratelimit.Describe(ctx, n, path, 0)
		if err != nil {
			return err
		}
		for i := range d.Resources {
			if err := add(d.Resources[i].Path); err != nil || !recursive {
				return err
			}
		}
		return nil
	}
	if path != "" {
		return paths, below(path)
	}
	for tree, err := range ratelimit.List(ctx, n, "") {
		if err == nil {
			if err = below(tree.Name); errors.Is(err, protocol.StatusNotFound) {
				err = nil // dropped meanwhile
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// Ends of an operation by its parameters.
var (
	errOperationTimeout = errors.New("the operation took longer than its timeout; allow more time, or raise the rate of the resource")
	errCancelAfter      = errors.New("the operation was cancelled after the time in its cancel_after; allow more time, or raise the rate of the resource")
)

// operationContext ends by the parameters of an operation. The cause names the parameter.
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

package gateway

import (
	"context"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// coordination is YDB's coordination service. Session is in stream.go.
type coordination struct {
	Ydb_Coordination_V1.UnimplementedCoordinationServiceServer
	g *Gateway
}

// CreateNode makes a node with its parents. A node that exists is left as it is, as in YDB.
func (c *coordination) CreateNode(
	ctx context.Context, req *Ydb_Coordination.CreateNodeRequest,
) (*Ydb_Coordination.CreateNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		_, err := admin.Nodes(cl).Ensure(ctx, path, nodeConfig(givenIn(req.GetConfig())))
		return nil, err
	})
	return &Ydb_Coordination.CreateNodeResponse{Operation: op}, err
}

// AlterNode replaces the settings that are given.
func (c *coordination) AlterNode(
	ctx context.Context, req *Ydb_Coordination.AlterNodeRequest,
) (*Ydb_Coordination.AlterNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		now, err := admin.Nodes(cl).Describe(ctx, path)
		if err != nil {
			return nil, err
		}
		_, err = admin.Nodes(cl).Alter(ctx, path, nodeConfig(givenOf(&now.Config).replacedBy(givenIn(req.GetConfig()))))
		return nil, err
	})
	return &Ydb_Coordination.AlterNodeResponse{Operation: op}, err
}

// DropNode drops a node with its sessions and semaphores.
func (c *coordination) DropNode(
	ctx context.Context, req *Ydb_Coordination.DropNodeRequest,
) (*Ydb_Coordination.DropNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		_, err := admin.Nodes(cl).Delete(ctx, path, admin.DeleteOptions{Force: true,
			Reason: "DropNode of YDB's API, which does not ask"})
		return nil, err
	})
	return &Ydb_Coordination.DropNodeResponse{Operation: op}, err
}

// DescribeNode gives the settings as they were given, and the names of the semaphores if they are
// asked for.
func (c *coordination) DescribeNode(
	ctx context.Context, req *Ydb_Coordination.DescribeNodeRequest,
) (*Ydb_Coordination.DescribeNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		info, err := admin.Nodes(cl).Describe(ctx, path)
		if err != nil {
			return nil, err
		}
		result := &Ydb_Coordination.DescribeNodeResult{
			Self:   &Ydb_Scheme.Entry{Name: lastSegment(info.Path), Type: Ydb_Scheme.Entry_COORDINATION_NODE},
			Config: givenOf(&info.Config).message(c.g.clientPath(info.Path)),
		}
		if wantsSemaphoreNames(req) {
			end, err := c.g.listings.begin(ctx)
			if err != nil {
				return nil, err
			}
			defer end()
			n, err := cl.Node(ctx, path)
			if err != nil {
				return nil, err
			}
			names, err := semaphoreNames(n.List(ctx, "", client.ReadConsistency(client.Strict)))
			if err != nil {
				return nil, err
			}
			appendSemaphoreNames(result, names)
		}
		return result, nil
	})
	return &Ydb_Coordination.DescribeNodeResponse{Operation: op}, err
}

package gateway

import (
	"context"
	"iter"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Scheme_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// scheme is YDB's schema service over the paths of nodes. In the cluster a directory is a node too:
// one that has nodes below it is shown as a directory, and any other as a coordination node.
type scheme struct {
	Ydb_Scheme_V1.UnimplementedSchemeServiceServer
	g *Gateway
}

// MakeDirectory makes a node, which may be used as one, with its parents.
func (s *scheme) MakeDirectory(
	ctx context.Context, req *Ydb_Scheme.MakeDirectoryRequest,
) (*Ydb_Scheme.MakeDirectoryResponse, error) {
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		if path == "" { // the database is there
			return nil, nil
		}
		_, err := cl.EnsureNode(ctx, path, client.NodeConfig{})
		return nil, err
	})
	return &Ydb_Scheme.MakeDirectoryResponse{Operation: op}, err
}

// RemoveDirectory drops a node that has no nodes below it, and neither sessions nor semaphores: one
// that is in use is dropped with DropNode.
func (s *scheme) RemoveDirectory(
	ctx context.Context, req *Ydb_Scheme.RemoveDirectoryRequest,
) (*Ydb_Scheme.RemoveDirectoryResponse, error) {
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		if err := checkUnused(ctx, cl, path, req.GetPath()); err != nil {
			return nil, err
		}
		return nil, cl.DropNode(ctx, path)
	})
	return &Ydb_Scheme.RemoveDirectoryResponse{Operation: op}, err
}

// checkUnused refuses a node that has sessions or semaphores.
func checkUnused(ctx context.Context, cl *client.Client, path, shown string) error {
	n, err := cl.Node(ctx, path)
	if err != nil {
		return err
	}
	inUse := protocol.Errorf(protocol.StatusPreconditionFailed,
		"%s is a coordination node in use, with sessions or semaphores; drop it with DropNode", shown)
	for _, err := range n.List(ctx, "", client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		return inUse
	}
	for _, err := range n.Sessions(ctx) {
		if err != nil {
			return err
		}
		return inUse
	}
	return nil
}

// ListDirectory lists the nodes right below a path.
func (s *scheme) ListDirectory(
	ctx context.Context, req *Ydb_Scheme.ListDirectoryRequest,
) (*Ydb_Scheme.ListDirectoryResponse, error) {
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		self := &Ydb_Scheme.Entry{Name: lastSegment(s.g.database()), Type: Ydb_Scheme.Entry_DATABASE}
		if path != "" {
			if _, err := cl.DescribeNode(ctx, path); err != nil {
				return nil, err
			}
			self.Name, self.Type = lastSegment(path), Ydb_Scheme.Entry_COORDINATION_NODE
		}
		end, err := s.g.listings.begin(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		children, err := listChildren(path, func(after string) iter.Seq2[client.NodeInfo, error] {
			return cl.Nodes(ctx, path+"/", client.After(after))
		})
		if len(children) > 0 && path != "" {
			self.Type = Ydb_Scheme.Entry_DIRECTORY
		}
		return &Ydb_Scheme.ListDirectoryResult{Self: self, Children: children}, err
	})
	return &Ydb_Scheme.ListDirectoryResponse{Operation: op}, err
}

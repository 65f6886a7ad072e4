package gateway

import (
	"context"
	"iter"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Scheme_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
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
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		if path == "" { // the database is there
			return nil, nil
		}
		_, err := admin.Nodes(cl).Ensure(ctx, path, admin.NodeConfig{})
		return nil, err
	})
	return &Ydb_Scheme.MakeDirectoryResponse{Operation: op}, err
}

// RemoveDirectory drops a node without child nodes, sessions, and objects: semaphores, rollouts,
// processes, rate limits. DropNode drops one that is in use.
func (s *scheme) RemoveDirectory(
	ctx context.Context, req *Ydb_Scheme.RemoveDirectoryRequest,
) (*Ydb_Scheme.RemoveDirectoryResponse, error) {
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		if err := checkUnused(ctx, cl, path, req.GetPath()); err != nil {
			return nil, err
		}
		_, err := admin.Nodes(cl).Delete(ctx, path, admin.DeleteOptions{})
		return nil, err
	})
	return &Ydb_Scheme.RemoveDirectoryResponse{Operation: op}, err
}

// checkUnused refuses a node that has sessions, semaphores, rollouts, processes or rate limits.
func checkUnused(ctx context.Context, cl *client.Client, path, shown string) error {
	n, err := cl.Node(ctx, path)
	if err != nil {
		return err
	}
	one := client.MaxItems(1)
	for _, err := range []error{
		checkEmpty(n.List(ctx, "", client.ReadConsistency(client.Strict), one), shown, "semaphores"),
		checkEmpty(admin.OfNode(n).Sessions(ctx, one), shown, "sessions"),
		checkEmpty(rollout.List(ctx, n, "", one), shown, "rollouts"),
		checkEmpty(process.List(ctx, n, "", one), shown, "processes"),
		checkEmpty(ratelimit.List(ctx, n, "", one), shown, "rate limits"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEmpty refuses a node that has something of a kind.
func checkEmpty[T any](list iter.Seq2[T, error], shown, kind string) error {
	for _, err := range list {
		if err != nil {
			return err
		}
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"%s is a coordination node in use: it has %s; drop it with DropNode", shown, kind)
	}
	return nil
}

// ListDirectory lists the nodes right below a path.
func (s *scheme) ListDirectory(
	ctx context.Context, req *Ydb_Scheme.ListDirectoryRequest,
) (*Ydb_Scheme.ListDirectoryResponse, error) {
	op, err := s.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message,
		error) {
		self := &Ydb_Scheme.Entry{Name: lastSegment(s.g.database()), Type: Ydb_Scheme.Entry_DATABASE}
		if path != "" {
			if _, err := admin.Nodes(cl).Describe(ctx, path); err != nil {
				return nil, err
			}
			self.Name, self.Type = lastSegment(path), Ydb_Scheme.Entry_COORDINATION_NODE
		}
		end, err := s.g.listings.begin(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		children, err := listChildren(path, func(after string) iter.Seq2[admin.NodeInfo, error] {
			return admin.Nodes(cl).List(ctx, path+"/", client.After(after))
		})
		if len(children) > 0 && path != "" {
			self.Type = Ydb_Scheme.Entry_DIRECTORY
		}
		return &Ydb_Scheme.ListDirectoryResult{Self: self, Children: children}, err
	})
	return &Ydb_Scheme.ListDirectoryResponse{Operation: op}, err
}

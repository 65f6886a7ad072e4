package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_RateLimiter_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// call carries out a call on the cluster and puts its outcome into YDB's envelope. An error of the
// call itself is one of the caller's token only.
func (g *Gateway) call(
	ctx context.Context, work func(ctx context.Context, c *cluster) (proto.Message, error),
) (*Ydb_Operations.Operation, error) {
	var result proto.Message
	err := g.checkDatabase(ctx)
	if err == nil {
		var c *gateway.Connection[*cluster]
		var release func()
		if c, release, err = g.clusters.Use(ctx, tokenOf(ctx), hostOf(ctx)); err == nil {
			defer release()
			result, err = work(ctx, c.State)
		} else if !gateway.IsUnauthenticated(err) {
			g.delays.wait(ctx, g.ctx)
		}
	}
	g.clusters.CallEnded(tokenOf(ctx), err)
	if gateway.IsUnauthenticated(err) { // also of a token that was revoked since
		return nil, g.unauthenticated(ctx, err)
	}
	return operation(result, err)
}

// unauthenticated is the late answer to a caller whose token the cluster does not take.
func (g *Gateway) unauthenticated(ctx context.Context, err error) error {
	g.delays.wait(ctx, g.ctx)
	return grpcstatus.Error(codes.Unauthenticated, err.Error())
}

// callAt is call for a request about the node, or the database, at a client's path.
func (g *Gateway) callAt(
	ctx context.Context, path string, work func(ctx context.Context, c *client.Client, path string) (proto.Message,
		error),
) (*Ydb_Operations.Operation, error) {
	return g.callAtCluster(ctx, path, func(ctx context.Context, c *cluster, own string) (proto.Message, error) {
		return work(ctx, c.Client, own)
	})
}

// callAtCluster is callAt for calls that need more of the connection than its client.
func (g *Gateway) callAtCluster(
	ctx context.Context, path string, work func(ctx context.Context, c *cluster, path string) (proto.Message, error),
) (*Ydb_Operations.Operation, error) {
	return g.call(ctx, func(ctx context.Context, c *cluster) (proto.Message, error) {
		own, err := g.nodePath(path)
		if err != nil {
			return nil, err
		}
		return work(ctx, c, own)
	})
}

// operation is the envelope of a finished call.
func operation(result proto.Message, err error) (*Ydb_Operations.Operation, error) {
	if err == nil && result != nil && proto.Size(result) > maxDescription {
		err = protocol.Errorf(protocol.StatusPreconditionFailed,
			"the result is longer than %d bytes; list in parts with signalbox's own CLI", maxDescription)
	}
	op := &Ydb_Operations.Operation{Ready: true, Status: unaryStatus(err), Issues: issuesOf(err)}
	if err == nil && result != nil {
		packed, err := anypb.New(result)
		if err != nil {
			return nil, grpcstatus.Error(codes.Internal, fmt.Sprintf("the result could not be encoded: %v", err))
		}
		op.Result = packed
	}
	return op, nil
}

// unaryStatus returns the code of an error outside of a session: YDB calls a missing path an error
// of the schema, except for a resource of a rate limit.
func unaryStatus(err error) Ydb.StatusIds_StatusCode {
	var resource gateway.ResourceError
	switch st := statusOf(err); {
	case errors.Is(err, errOperationTimeout):
		return Ydb.StatusIds_TIMEOUT
	case errors.Is(err, errCancelAfter):
		return Ydb.StatusIds_CANCELLED
	case st == Ydb.StatusIds_NOT_FOUND && !errors.As(err, &resource):
		return Ydb.StatusIds_SCHEME_ERROR
	case st == Ydb.StatusIds_SESSION_EXPIRED || st == Ydb.StatusIds_BAD_SESSION: // of the gateway's own sessions
		return Ydb.StatusIds_UNAVAILABLE
	default:
		return st
	}
}

// tap counts a call from its headers on, and bounds its time: gRPC waits for the request without a
// bound, before it calls unary. A session's stream counts itself, until its session has started.
func (g *Gateway) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == Ydb_Coordination_V1.CoordinationService_Session_FullMethodName {
		return ctx, nil
	}
	end, err := g.calls.begin(ctx)
	if err != nil {
		if _, ok := ctx.Deadline(); !ok {
			return nil, err
		}
		// gRPC does not end the context of a call that its tap refuses: its timer would stay until
		// the client's deadline, which may be years away. unary refuses such a call.
		short, cancel := context.WithTimeout(context.WithValue(ctx, refusedCall{}, err), refusalTimeout)
		context.AfterFunc(ctx, cancel)
		return short, nil
	}
	bound := unaryTimeout
	if info.FullMethodName == Ydb_RateLimiter_V1.RateLimiterService_AcquireResource_FullMethodName {
		bound = maxAcquire + unaryTimeout
	}
	timed, cancel := context.WithTimeout(ctx, bound)
	context.AfterFunc(ctx, func() { // gRPC ends ctx with the call
		cancel()
		end()
	})
	return timed, nil
}

// refusedCall is the key of the error in a context whose call is refused.
type refusedCall struct{}

// refusalTimeout is how long a refused call may take to send its request, and so to learn why.
const refusalTimeout = 100 * time.Millisecond

func refused(ctx context.Context) error {
	err, _ := ctx.Value(refusedCall{}).(error)
	return err
}

// unary gives methods of known services that are not implemented the same answer as unknown ones.
func (g *Gateway) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := refused(ctx); err != nil {
		return nil, err
	}
	reply, err := handler(ctx, req)
	if grpcstatus.Code(err) == codes.Unimplemented {
		return nil, g.refuseMethod(ctx, info.FullMethod)
	}
	return reply, err
}

func (g *Gateway) unknownMethod(_ any, stream grpc.ServerStream) error {
	if err := refused(stream.Context()); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	return g.refuseMethod(stream.Context(), method)
}

// refuseMethod is the late answer to a call of a method that there is not.
func (g *Gateway) refuseMethod(ctx context.Context, method string) error {
	g.delays.wait(ctx, g.ctx)
	return g.unknown.refuse(method)
}

// Headers of YDB's clients.
const (
	headerDatabase = "x-ydb-database"
	headerTicket   = "x-ydb-auth-ticket"
)

// tokenOf is the token that a call shows; empty: the caller is anonymous.
func tokenOf(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, headerTicket); len(v) > 0 {
		return v[0]
	}
	return ""
}

// checkDatabase refuses a call for another database. A call that names none is for this one.
func (g *Gateway) checkDatabase(ctx context.Context) error {
	for _, d := range metadata.ValueFromIncomingContext(ctx, headerDatabase) {
		if d != "" && normalize(d) != g.prefix {
			return protocol.Errorf(protocol.StatusNotFound,
				"this gateway serves the database %s, not %q; name that when you connect", g.database(), d)
		}
	}
	return nil
}

// networkBits is the length of an IPv6 network, which one host may have for itself.
const networkBits = 64

// hostOf is the host that a call comes from: with IPv6, its network.
func hostOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return hostOfAddress(p.Addr)
	}
	return ""
}

// hostOfAddress is the host that has an address.
func hostOfAddress(a net.Addr) string {
	address, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := address.Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, networkBits).Masked().String()
	}
	return ip.String()
}

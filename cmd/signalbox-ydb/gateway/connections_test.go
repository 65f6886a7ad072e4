package gateway

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
)

// TestConnections: a connection beyond a limit is refused, while those that are open are served. It
// is served when one of them has closed, or from another address if that is what counts.
func TestConnections(t *testing.T) {
	for reason, cfg := range map[string]Config{
		"gateway has 2 connections, ":                 {MaxConnections: 2},
		"gateway has 2 connections from this address": {MaxConnectionsPerAddress: 2},
	} {
		t.Run(reason, func(t *testing.T) {
			g, address := serve(t, cfg)
			dial := func(host byte) *grpc.ClientConn {
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
				cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute,
						Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}}),
					grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
						return from.DialContext(ctx, "tcp", address)
					}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cc.Close() })
				return cc
			}
			call := func(cc *grpc.ClientConn, opts ...grpc.CallOption) error {
				_, err := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc).ListEndpoints(t.Context(),
					&Ydb_Discovery.ListEndpointsRequest{}, opts...)
				return err
			}
			one, two, three := dial(1), dial(1), dial(1)
			for _, cc := range []*grpc.ClientConn{one, two} {
				if err := call(cc); err != nil {
					t.Fatal(err)
				}
			}
			if err := call(three); grpcstatus.Code(err) != codes.Unavailable {
				t.Fatalf("one connection too many: %v", err)
			}
			raw, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if reply, err := io.ReadAll(raw); err != nil || !strings.Contains(string(reply), reason) {
				t.Fatalf("one connection too many: %q, %v", reply, err)
			}
			_ = raw.Close()
			for _, cc := range []*grpc.ClientConn{one, two} {
				if err := call(cc); err != nil {
					t.Fatal(err)
				}
			}
			if n, refused := g.metrics.connections.Load(), g.metrics.connectionsRefused.Load(); n != 2 || refused == 0 {
				t.Errorf("%d connections are counted, and %d refused", n, refused)
			}
			if cfg.MaxConnectionsPerAddress > 0 {
				if err := call(dial(2)); err != nil {
					t.Fatal(err)
				}
			}
			if err := one.Close(); err != nil {
				t.Fatal(err)
			}
			if err := call(three, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Package outlier_test has gRPC's outlier detection over the policy of grpcsignalbox. It is apart
// from the module because gRPC's package xds has many dependencies.
package outlier_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // outlier detection

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/grpcsignalbox"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestOutlierDetection: a member that answers with errors is left out, though it is ready by its own
// word.
func TestOutlierDetection(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	for i := range 3 {
		serve(t, c, i == 0)
	}
	conn, err := grpc.NewClient("signalbox:///default/api", append(grpcsignalbox.Options(c),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"outlier_detection_experimental": {
			"interval": "0.05s", "baseEjectionTime": "300s", "maxEjectionTime": "300s", "maxEjectionPercent": 50,
			"failurePercentageEjection": {"threshold": 50, "enforcementPercentage": 100, "minimumHosts": 3, "requestVolume": 5},
			"childPolicy": [{"`+grpcsignalbox.PolicyName+`": {}}]}}]}`))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := healthpb.NewHealthClient(conn)
	failed, inRow := 0, 0
	for inRow < 100 && t.Context().Err() == nil { // of a third of the calls
		if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			if status.Code(err) != codes.Internal {
				t.Fatal(err)
			}
			failed++
			inRow = 0
			continue
		}
		inRow++
	}
	if failed == 0 {
		t.Error("the member was never tried")
	}
}

func serve(t *testing.T, c *client.Client, fails bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if fails {
			return nil, status.Error(codes.Internal, "no disk")
		}
		return handle(ctx, req)
	}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		done.Wait()
	})
	s, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
}

package gateway

import (
	"net"
	"testing"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/client"
)

// serve serves a gateway of no cluster until the test ends.
func serve(t *testing.T, cfg Config) (g *Gateway, address string) {
	t.Helper()
	cfg.Cluster = client.Config{Endpoints: []string{"127.0.0.1:1"}}
	cfg.Database, cfg.Advertise = "/local", []string{"127.0.0.1:2136"}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(l) }()
	return g, l.Addr().String()
}

// TestCalls: a host with as many calls in progress as may be gets no more, unary or streams, over
// any connection. Calls count until they end.
func TestCalls(t *testing.T) {
	g, address := serve(t, Config{})
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	unary := func() codes.Code {
		_, err := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc).ListEndpoints(t.Context(), &Ydb_Discovery.ListEndpointsRequest{})
		return grpcstatus.Code(err)
	}
	stream := func() codes.Code {
		s, err := Ydb_Coordination_V1.NewCoordinationServiceClient(cc).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stop := &Ydb_Coordination.SessionRequest_SessionStop_{SessionStop: &Ydb_Coordination.SessionRequest_SessionStop{}}
		_ = s.Send(&request{Request: stop}) // which no stream may begin with
		_, err = s.Recv()
		return grpcstatus.Code(err)
	}
	set := func(n int) {
		g.calls.mu.Lock()
		defer g.calls.mu.Unlock()
		g.calls.hosts["127.0.0.1"] = n
	}
	for range 3 { // what ends gives its place back
		set(maxCalls - 1)
		if a, b := unary(), stream(); a != codes.OK || b != codes.InvalidArgument {
			t.Fatalf("with one place left: %v, %v", a, b)
		}
		set(maxCalls)
		if a, b := unary(), stream(); a != codes.ResourceExhausted || b != codes.ResourceExhausted {
			t.Fatalf("with no place left: %v, %v", a, b)
		}
	}
}

// TestCallTable: hosts do not take each other's places, and none is remembered without calls.
func TestCallTable(t *testing.T) {
	c := newCallTable()
	var ends []func()
	for range maxCalls {
		end, err := c.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, err := c.begin(t.Context()); grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	ends[0]()
	ends[0]()
	end, err := c.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.begin(t.Context()); err == nil {
		t.Fatal("an end that is called twice gives two places back")
	}
	end()
	for _, end := range ends {
		end()
	}
	if len(c.hosts) != 0 {
		t.Errorf("%v are remembered", c.hosts)
	}
}

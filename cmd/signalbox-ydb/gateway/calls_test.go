package gateway

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
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

// inProgress is how many calls of all hosts are in progress.
func (t *callTable) inProgress() (calls int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.hosts {
		calls += n
	}
	return calls
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
	list := func(ctx context.Context) codes.Code {
		_, err := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc).ListEndpoints(ctx, &Ydb_Discovery.ListEndpointsRequest{})
		return grpcstatus.Code(err)
	}
	unary := func() codes.Code { return list(t.Context()) }
	timed := func() codes.Code {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		return list(ctx)
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
	silent := func() codes.Code { // a unary call whose request is not sent
		s, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			Ydb_Discovery_V1.DiscoveryService_ListEndpoints_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		return grpcstatus.Code(s.RecvMsg(&Ydb_Discovery.ListEndpointsResponse{}))
	}
	add := func(n int) {
		g.calls.mu.Lock()
		defer g.calls.mu.Unlock()
		g.calls.hosts["127.0.0.1"] += n
	}
	add(maxCalls - 1)
	for range 3 { // what ends gives its place back
		for what, c := range map[string]struct {
			call func() codes.Code
			want codes.Code
		}{"unary": {unary, codes.OK}, "stream": {stream, codes.InvalidArgument}} {
			if got := c.call(); got != c.want {
				t.Fatalf("%s with one place left: %v", what, got)
			}
			await.True(t, "the end of the call", func() bool { return g.calls.inProgress() == maxCalls-1 })
		}
		add(1)
		if a, b, c, d := unary(), stream(), silent(), timed(); a != codes.ResourceExhausted || b != a || c != a || d != a {
			t.Fatalf("with no place left: %v, %v, %v, %v", a, b, c, d)
		}
		add(-1)
	}
}

// TestCallWithoutRequest: a call whose request does not arrive ends, and gives its place back.
func TestCallWithoutRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Cluster: client.Config{Endpoints: []string{"127.0.0.1:1"}}, Database: "/local",
			Advertise: []string{"127.0.0.1:2136"}})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		l := bufconn.Listen(64 << 10)
		go func() { _ = g.Serve(l) }()
		cc, err := grpc.NewClient("passthrough:gateway", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		s, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			Ydb_Discovery_V1.DiscoveryService_ListEndpoints_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := g.calls.inProgress(); n != 1 {
			t.Errorf("%d calls in progress", n)
		}
		if err := s.RecvMsg(&Ydb_Discovery.ListEndpointsResponse{}); grpcstatus.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the call ended with %v", err)
		}
		synctest.Wait()
		if n := g.calls.inProgress(); n != 0 {
			t.Errorf("%d calls in progress", n)
		}
	})
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

// TestSessionsWithoutStream: a host that has left as many sessions as may be restores them, and
// starts no more until one has ended. Other hosts do not notice.
func TestSessionsWithoutStream(t *testing.T) {
	g, _ := serve(t, Config{})
	g.left.most = 2
	status := func(host byte, id uint64) protocol.Status {
		t.Helper()
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host), Port: 1}})
		_, err := g.checkStart(ctx, &Ydb_Coordination.SessionRequest_SessionStart{Path: "/local/a", SessionId: id})
		return protocol.StatusOf(err)
	}
	c := &cluster{g: g}
	var left []*session
	for range g.left.most {
		if st := status(1, 0); st != protocol.StatusOK {
			t.Fatalf("with %d sessions that were left: %v", len(left), st)
		}
		s := &session{c: c, host: "127.0.0.1", native: new(client.Session), timeout: time.Hour}
		s.leave()
		left = append(left, s)
	}
	if start, restore, other := status(1, 0), status(1, 7), status(2, 0); start != protocol.StatusOverloaded ||
		restore != protocol.StatusOK || other != protocol.StatusOK {
		t.Fatalf("a start: %v, a restore: %v, another host: %v", start, restore, other)
	}
	left[0].over()
	if st := status(1, 0); st != protocol.StatusOK {
		t.Fatalf("when one has ended: %v", st)
	}
	left[1].over()
	(&session{c: c}).over() // it had its stream to the end
	if len(g.left.hosts) != 0 {
		t.Errorf("%v are remembered", g.left.hosts)
	}
}

// TestUnknownMethods: calls of methods that there are not are slowed down, as failed starts are,
// whether the service is known or not.
func TestUnknownMethods(t *testing.T) {
	g, address := serve(t, Config{})
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for _, method := range []string{"/Ydb.Table.V1.TableService/CreateSession", "/Ydb.Scheme.V1.SchemeService/DescribePath"} {
		err := cc.Invoke(t.Context(), method, &Ydb_Discovery.ListEndpointsRequest{}, &Ydb_Discovery.ListEndpointsResponse{})
		if grpcstatus.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
	}
	if d := g.delays.failed("127.0.0.1", time.Now()); d != 4*firstDelay {
		t.Errorf("the third failure is delayed for %v", d)
	}
}

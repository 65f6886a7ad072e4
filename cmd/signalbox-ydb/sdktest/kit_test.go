package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	pb "github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// patience bounds waits of tests that must end; nothing is timed by it.
const patience = 90 * time.Second

// gatewayVariable has the test binary run as a gateway, so that a test can kill it: another gateway
// that it advertises, or -, and the cluster's addresses.
const gatewayVariable = "SIGNALBOX_YDB_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if args := os.Getenv(gatewayVariable); args != "" {
		runGateway(strings.Split(args, " "))
		return
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Close()
	}
	os.Exit(code)
}

// runGateway is the gateway as a process. It ends when its standard input does.
func runGateway(args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	advertise := []string{l.Addr().String()}
	if args[0] != "-" {
		advertise = append(advertise, args[0])
	}
	cluster := client.Config{Endpoints: args[1:]}
	g, err := gateway.New(gateway.Config{Cluster: cluster, Database: "/local", Advertise: advertise})
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(l.Addr())
	if err := g.Serve(l); err != nil {
		panic(err)
	}
}

// shared is a cluster for the tests that do it no harm. It has one instance, whose leaders stay: a
// change of leaders ends every watch as changed, and these tests name each message that comes.
var shared struct {
	once    sync.Once
	cluster *servertest.Cluster
}

func sharedCluster(t testing.TB) *servertest.Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster = servertest.NewCluster(1) })
	return shared.cluster
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// startGateway serves the cluster at a free port until the test ends.
func startGateway(
	t testing.TB, endpoints []string, change ...func(*gateway.Config),
) (address string, g *gateway.Gateway) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{
		Cluster: client.Config{Endpoints: endpoints}, Database: "/local", Advertise: []string{l.Addr().String()},
	}
	for _, f := range change {
		f(&cfg)
	}
	if g, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), g
}

func dialRaw(t testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient(address, append(opts, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func coordinationOf(cc *grpc.ClientConn) Ydb_Coordination_V1.CoordinationServiceClient {
	return Ydb_Coordination_V1.NewCoordinationServiceClient(cc)
}

// oneGateway is a gateway of the shared cluster, by a connection to it, and a node.
func oneGateway(t testing.TB) (cc *grpc.ClientConn, path string) {
	t.Helper()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc = dialRaw(t, address)
	return cc, node(t, cc)
}

// twoGateways are gateways of the shared cluster, by connections to them, and a node.
func twoGateways(t testing.TB, change ...func(*gateway.Config)) (one, two *grpc.ClientConn, path string) {
	t.Helper()
	a, _ := startGateway(t, sharedCluster(t).Addrs(), change...)
	b, _ := startGateway(t, sharedCluster(t).Addrs(), change...)
	one, two = dialRaw(t, a), dialRaw(t, b)
	return one, two, node(t, one)
}

// ownCluster is a cluster that the test may harm, and the address of a gateway of it.
func ownCluster(t testing.TB) (cluster *servertest.Cluster, address string) {
	t.Helper()
	cluster = servertest.StartCluster(t, 3)
	address, _ = startGateway(t, cluster.Addrs())
	return cluster, address
}

// nativeNode is a node as signalbox's own SDK sees it.
func nativeNode(t testing.TB, endpoints []string, path string) *client.Node {
	t.Helper()
	c, err := client.Dial(testContext(t), endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	n, err := c.Node(testContext(t), strings.TrimPrefix(path, "/local"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nativeSession is a session of a node by signalbox's own SDK.
func nativeSession(t testing.TB, endpoints []string, path string) *client.Session {
	t.Helper()
	c, err := client.Dial(testContext(t), endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(testContext(t), strings.TrimPrefix(path, "/local"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// metric is one of the gateway's metrics, by its name without the prefix.
func metric(t testing.TB, g *gateway.Gateway, name string) (value int64) {
	t.Helper()
	var b strings.Builder
	g.Metrics().Write(&b)
	_, rest, _ := strings.Cut(b.String(), "\nsignalbox_ydb_"+name+" ")
	if _, err := fmt.Sscan(rest, &value); err != nil {
		t.Fatalf("%s: %v in\n%s", name, err, b.String())
	}
	return value
}

// node makes a coordination node of the test's own, and gives its path as clients name it.
func node(t testing.TB, cc *grpc.ClientConn) string {
	t.Helper()
	path := "/local/" + strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	got, err := coordinationOf(cc).CreateNode(testContext(t), &pb.CreateNodeRequest{Path: path})
	if err != nil || got.GetOperation().GetStatus() != Ydb.StatusIds_SUCCESS {
		t.Fatal(got, err)
	}
	return path
}

type (
	request           = pb.SessionRequest
	response          = pb.SessionResponse
	sessionStart      = pb.SessionRequest_SessionStart
	describeSemaphore = pb.SessionRequest_DescribeSemaphore
)

// rawStream is one stream of Session. It answers pings by itself, unless mute.
type rawStream struct {
	t      testing.TB
	rpc    Ydb_Coordination_V1.CoordinationService_SessionClient
	cancel context.CancelFunc
	id     uint64
	got    chan *response // all but pings
	pings  chan uint64    // the numbers, the newest ones
	ended  chan error     // the result of the call, once

	mu   sync.Mutex
	mute bool

	reading sync.Mutex // held by the reader, and to keep readers out
}

func openStream(t testing.TB, cc *grpc.ClientConn, headers ...string) *rawStream {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), headers...))
	t.Cleanup(cancel)
	rpc, err := coordinationOf(cc).Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawStream{
		t: t, rpc: rpc, cancel: cancel,
		got: make(chan *response, 1000), pings: make(chan uint64, 1000), ended: make(chan error, 1),
	}
	go s.read()
	return s
}

func (s *rawStream) read() {
	for {
		s.reading.Lock()
		m, err := s.rpc.Recv()
		s.reading.Unlock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			s.ended <- err
			return
		}
		if p := m.GetPing(); p != nil {
			s.mu.Lock()
			mute := s.mute
			s.mu.Unlock()
			if !mute {
				pong := &pb.SessionRequest_PingPong{Opaque: p.GetOpaque()}
				s.send(&request{Request: &pb.SessionRequest_Pong{Pong: pong}})
			}
			select {
			case s.pings <- p.GetOpaque():
			default:
			}
			continue
		}
		s.got <- m
	}
}

func (s *rawStream) setMute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = on
}

// setPaused has the stream not be read any more, after the next message.
func (s *rawStream) setPaused(on bool) {
	if on {
		s.reading.Lock()
	} else {
		s.reading.Unlock()
	}
}

// send sends a request; whether the stream has ended shows when it is read.
func (s *rawStream) send(m *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.rpc.Send(m)
}

func (s *rawStream) start(m *sessionStart) {
	s.send(&request{Request: &pb.SessionRequest_SessionStart_{SessionStart: m}})
}

// next is the next message but pings.
func (s *rawStream) next() *response {
	s.t.Helper()
	select {
	case m := <-s.got:
		return m
	default:
	}
	select {
	case m := <-s.got:
		return m
	case err := <-s.ended:
		s.ended <- err
		select {
		case m := <-s.got: // sent before the end
			return m
		default:
		}
		s.t.Fatalf("the stream ended: %v", err)
	case <-time.After(patience):
		s.t.Fatal("nothing came")
	}
	return nil
}

// started is the answer to a SessionStart that succeeds.
func (s *rawStream) started() *rawStream {
	s.t.Helper()
	m := s.next()
	if m.GetSessionStarted() == nil {
		s.t.Fatalf("SessionStart was answered %v", m)
	}
	s.id = m.GetSessionStarted().GetSessionId()
	return s
}

// failed waits for the failure that ends the stream.
func (s *rawStream) failed(want Ydb.StatusIds_StatusCode) {
	s.t.Helper()
	for {
		m := s.next()
		if f := m.GetFailure(); f != nil {
			if f.GetStatus() != want {
				s.t.Fatalf("the stream failed with %v, and not %v", f, want)
			}
			break
		}
		s.t.Logf("before the failure: %v", m)
	}
	if err := s.end(); err != nil {
		s.t.Fatalf("after its failure the stream ended with %v", err)
	}
}

// end waits for the end of the call.
func (s *rawStream) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.t.Fatal("the stream does not end")
		return nil
	}
}

func newSession(t testing.TB, cc *grpc.ClientConn, path string, change ...func(*sessionStart)) *rawStream {
	t.Helper()
	m := &sessionStart{Path: path, TimeoutMillis: 5000, ProtectionKey: []byte("key"), Description: t.Name()}
	for _, f := range change {
		f(m)
	}
	s := openStream(t, cc)
	s.start(m)
	return s.started()
}

// withTimeout is a session timeout for newSession, in milliseconds.
func withTimeout(ms uint64) func(*sessionStart) {
	return func(m *sessionStart) { m.TimeoutMillis = ms }
}

// restore opens a stream for a session that exists.
func restore(t testing.TB, cc *grpc.ClientConn, path string, id, seqNo uint64, key string) *rawStream {
	t.Helper()
	s := openStream(t, cc)
	s.start(&sessionStart{Path: path, SessionId: id, TimeoutMillis: 5000, SeqNo: seqNo, ProtectionKey: []byte(key)})
	return s
}

const forever = ^uint64(0)

func (s *rawStream) acquire(req uint64, name string, count, timeout uint64, data string, ephemeral bool) {
	m := &pb.SessionRequest_AcquireSemaphore{
		ReqId: req, Name: name, Count: count, TimeoutMillis: timeout, Data: []byte(data), Ephemeral: ephemeral,
	}
	s.send(&request{Request: &pb.SessionRequest_AcquireSemaphore_{AcquireSemaphore: m}})
}

func (s *rawStream) release(req uint64, name string) {
	m := &pb.SessionRequest_ReleaseSemaphore{ReqId: req, Name: name}
	s.send(&request{Request: &pb.SessionRequest_ReleaseSemaphore_{ReleaseSemaphore: m}})
}

func (s *rawStream) create(req uint64, name string, limit uint64, data string) {
	m := &pb.SessionRequest_CreateSemaphore{ReqId: req, Name: name, Limit: limit, Data: []byte(data)}
	s.send(&request{Request: &pb.SessionRequest_CreateSemaphore_{CreateSemaphore: m}})
}

func (s *rawStream) update(req uint64, name, data string) {
	m := &pb.SessionRequest_UpdateSemaphore{ReqId: req, Name: name, Data: []byte(data)}
	s.send(&request{Request: &pb.SessionRequest_UpdateSemaphore_{UpdateSemaphore: m}})
}

func (s *rawStream) remove(req uint64, name string, force bool) {
	m := &pb.SessionRequest_DeleteSemaphore{ReqId: req, Name: name, Force: force}
	s.send(&request{Request: &pb.SessionRequest_DeleteSemaphore_{DeleteSemaphore: m}})
}

func (s *rawStream) describe(m *describeSemaphore) {
	s.send(&request{Request: &pb.SessionRequest_DescribeSemaphore_{DescribeSemaphore: m}})
}

func (s *rawStream) stop() {
	s.send(&request{Request: &pb.SessionRequest_SessionStop_{SessionStop: &pb.SessionRequest_SessionStop{}}})
}

func (s *rawStream) ping(n uint64) {
	s.send(&request{Request: &pb.SessionRequest_Ping{Ping: &pb.SessionRequest_PingPong{Opaque: n}}})
}

// text is a message in one line, without what people read.
func text(m *response) string {
	status := func(s Ydb.StatusIds_StatusCode) string {
		if s == Ydb.StatusIds_SUCCESS {
			return ""
		}
		return " " + s.String()
	}
	switch x := m.GetResponse().(type) {
	case *pb.SessionResponse_Pong:
		return fmt.Sprintf("pong %d", x.Pong.GetOpaque())
	case *pb.SessionResponse_Failure_:
		return "failure" + status(x.Failure.GetStatus())
	case *pb.SessionResponse_SessionStopped_:
		return "stopped"
	case *pb.SessionResponse_AcquireSemaphorePending_:
		return fmt.Sprintf("%d pending", x.AcquireSemaphorePending.GetReqId())
	case *pb.SessionResponse_AcquireSemaphoreResult_:
		r := x.AcquireSemaphoreResult
		return fmt.Sprintf("%d acquired=%t%s", r.GetReqId(), r.GetAcquired(), status(r.GetStatus()))
	case *pb.SessionResponse_ReleaseSemaphoreResult_:
		r := x.ReleaseSemaphoreResult
		return fmt.Sprintf("%d released=%t%s", r.GetReqId(), r.GetReleased(), status(r.GetStatus()))
	case *pb.SessionResponse_CreateSemaphoreResult_:
		r := x.CreateSemaphoreResult
		return fmt.Sprintf("%d created%s", r.GetReqId(), status(r.GetStatus()))
	case *pb.SessionResponse_UpdateSemaphoreResult_:
		r := x.UpdateSemaphoreResult
		return fmt.Sprintf("%d updated%s", r.GetReqId(), status(r.GetStatus()))
	case *pb.SessionResponse_DeleteSemaphoreResult_:
		r := x.DeleteSemaphoreResult
		return fmt.Sprintf("%d deleted%s", r.GetReqId(), status(r.GetStatus()))
	case *pb.SessionResponse_DescribeSemaphoreChanged_:
		c := x.DescribeSemaphoreChanged
		return fmt.Sprintf("%d changed data=%t owners=%t", c.GetReqId(), c.GetDataChanged(), c.GetOwnersChanged())
	case *pb.SessionResponse_DescribeSemaphoreResult_:
		r := x.DescribeSemaphoreResult
		line := fmt.Sprintf("%d described%s", r.GetReqId(), status(r.GetStatus()))
		if d := r.GetSemaphoreDescription(); d != nil {
			line += fmt.Sprintf(" %q %d/%d ephemeral=%t", d.GetData(), d.GetCount(), d.GetLimit(), d.GetEphemeral())
			line += fmt.Sprintf(" watch=%t", r.GetWatchAdded())
			for _, o := range d.GetOwners() {
				line += fmt.Sprintf(" owner(%d %q)", o.GetCount(), o.GetData())
			}
			for _, w := range d.GetWaiters() {
				line += fmt.Sprintf(" waiter(%d %q %d)", w.GetCount(), w.GetData(), w.GetTimeoutMillis())
			}
		}
		return line
	}
	return fmt.Sprint(m)
}

// expect reads as many messages as there are lines, which must be these.
func (s *rawStream) expect(lines ...string) {
	s.t.Helper()
	for _, want := range lines {
		if got := text(s.next()); got != want {
			s.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

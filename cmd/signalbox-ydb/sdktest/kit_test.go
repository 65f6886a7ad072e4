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
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
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
	g, err := gateway.New(gateway.Config{Cluster: client.Config{Endpoints: args[1:]}, Database: "/local", Advertise: advertise})
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

// shared is a cluster of three instances for the tests that do it no harm.
var shared struct {
	once    sync.Once
	cluster *servertest.Cluster
}

func sharedCluster(t testing.TB) *servertest.Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster = servertest.NewCluster(3) })
	return shared.cluster
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// startGateway serves the cluster at a free port until the test ends.
func startGateway(t testing.TB, endpoints []string, change ...func(*gateway.Config)) (address string, g *gateway.Gateway) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{Cluster: client.Config{Endpoints: endpoints}, Database: "/local", Advertise: []string{l.Addr().String()}}
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

func dialRaw(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// node makes a coordination node of the test's own, and gives its path as clients name it.
func node(t testing.TB, cc *grpc.ClientConn) string {
	t.Helper()
	path := "/local/" + strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	got, err := Ydb_Coordination_V1.NewCoordinationServiceClient(cc).CreateNode(testContext(t), &Ydb_Coordination.CreateNodeRequest{Path: path})
	if err != nil || got.GetOperation().GetStatus() != Ydb.StatusIds_SUCCESS {
		t.Fatal(got, err)
	}
	return path
}

type (
	request  = Ydb_Coordination.SessionRequest
	response = Ydb_Coordination.SessionResponse
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
}

func openStream(t testing.TB, cc *grpc.ClientConn, headers ...string) *rawStream {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), headers...))
	t.Cleanup(cancel)
	rpc, err := Ydb_Coordination_V1.NewCoordinationServiceClient(cc).Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawStream{t: t, rpc: rpc, cancel: cancel, got: make(chan *response, 1000), pings: make(chan uint64, 1000), ended: make(chan error, 1)}
	go s.read()
	return s
}

func (s *rawStream) read() {
	for {
		m, err := s.rpc.Recv()
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
				s.send(&request{Request: &Ydb_Coordination.SessionRequest_Pong{Pong: &Ydb_Coordination.SessionRequest_PingPong{Opaque: p.GetOpaque()}}})
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

// send sends a request; whether the stream has ended shows when it is read.
func (s *rawStream) send(m *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.rpc.Send(m)
}

func (s *rawStream) start(m *Ydb_Coordination.SessionRequest_SessionStart) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_SessionStart_{SessionStart: m}})
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

func newSession(t testing.TB, cc *grpc.ClientConn, path string, change ...func(*Ydb_Coordination.SessionRequest_SessionStart)) *rawStream {
	t.Helper()
	m := &Ydb_Coordination.SessionRequest_SessionStart{Path: path, TimeoutMillis: 5000, ProtectionKey: []byte("key"), Description: t.Name()}
	for _, f := range change {
		f(m)
	}
	s := openStream(t, cc)
	s.start(m)
	return s.started()
}

// restore opens a stream for a session that exists.
func restore(t testing.TB, cc *grpc.ClientConn, path string, id, seqNo uint64, key string) *rawStream {
	t.Helper()
	s := openStream(t, cc)
	s.start(&Ydb_Coordination.SessionRequest_SessionStart{Path: path, SessionId: id, TimeoutMillis: 5000, SeqNo: seqNo, ProtectionKey: []byte(key)})
	return s
}

const forever = ^uint64(0)

func (s *rawStream) acquire(req uint64, name string, count, timeout uint64, data string, ephemeral bool) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_AcquireSemaphore_{AcquireSemaphore: &Ydb_Coordination.SessionRequest_AcquireSemaphore{
		ReqId: req, Name: name, Count: count, TimeoutMillis: timeout, Data: []byte(data), Ephemeral: ephemeral,
	}}})
}

func (s *rawStream) release(req uint64, name string) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_ReleaseSemaphore_{ReleaseSemaphore: &Ydb_Coordination.SessionRequest_ReleaseSemaphore{ReqId: req, Name: name}}})
}

func (s *rawStream) create(req uint64, name string, limit uint64, data string) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_CreateSemaphore_{CreateSemaphore: &Ydb_Coordination.SessionRequest_CreateSemaphore{
		ReqId: req, Name: name, Limit: limit, Data: []byte(data),
	}}})
}

func (s *rawStream) update(req uint64, name, data string) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_UpdateSemaphore_{UpdateSemaphore: &Ydb_Coordination.SessionRequest_UpdateSemaphore{ReqId: req, Name: name, Data: []byte(data)}}})
}

func (s *rawStream) remove(req uint64, name string, force bool) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_DeleteSemaphore_{DeleteSemaphore: &Ydb_Coordination.SessionRequest_DeleteSemaphore{ReqId: req, Name: name, Force: force}}})
}

func (s *rawStream) describe(m *Ydb_Coordination.SessionRequest_DescribeSemaphore) {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_DescribeSemaphore_{DescribeSemaphore: m}})
}

func (s *rawStream) stop() {
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_SessionStop_{SessionStop: &Ydb_Coordination.SessionRequest_SessionStop{}}})
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
	case *Ydb_Coordination.SessionResponse_Pong:
		return fmt.Sprintf("pong %d", x.Pong.GetOpaque())
	case *Ydb_Coordination.SessionResponse_Failure_:
		return "failure" + status(x.Failure.GetStatus())
	case *Ydb_Coordination.SessionResponse_SessionStopped_:
		return "stopped"
	case *Ydb_Coordination.SessionResponse_AcquireSemaphorePending_:
		return fmt.Sprintf("%d pending", x.AcquireSemaphorePending.GetReqId())
	case *Ydb_Coordination.SessionResponse_AcquireSemaphoreResult_:
		r := x.AcquireSemaphoreResult
		return fmt.Sprintf("%d acquired=%t%s", r.GetReqId(), r.GetAcquired(), status(r.GetStatus()))
	case *Ydb_Coordination.SessionResponse_ReleaseSemaphoreResult_:
		r := x.ReleaseSemaphoreResult
		return fmt.Sprintf("%d released=%t%s", r.GetReqId(), r.GetReleased(), status(r.GetStatus()))
	case *Ydb_Coordination.SessionResponse_CreateSemaphoreResult_:
		return fmt.Sprintf("%d created%s", x.CreateSemaphoreResult.GetReqId(), status(x.CreateSemaphoreResult.GetStatus()))
	case *Ydb_Coordination.SessionResponse_UpdateSemaphoreResult_:
		return fmt.Sprintf("%d updated%s", x.UpdateSemaphoreResult.GetReqId(), status(x.UpdateSemaphoreResult.GetStatus()))
	case *Ydb_Coordination.SessionResponse_DeleteSemaphoreResult_:
		return fmt.Sprintf("%d deleted%s", x.DeleteSemaphoreResult.GetReqId(), status(x.DeleteSemaphoreResult.GetStatus()))
	case *Ydb_Coordination.SessionResponse_DescribeSemaphoreChanged_:
		c := x.DescribeSemaphoreChanged
		return fmt.Sprintf("%d changed data=%t owners=%t", c.GetReqId(), c.GetDataChanged(), c.GetOwnersChanged())
	case *Ydb_Coordination.SessionResponse_DescribeSemaphoreResult_:
		r := x.DescribeSemaphoreResult
		line := fmt.Sprintf("%d described%s", r.GetReqId(), status(r.GetStatus()))
		if d := r.GetSemaphoreDescription(); d != nil {
			line += fmt.Sprintf(" %q %d/%d ephemeral=%t watch=%t", d.GetData(), d.GetCount(), d.GetLimit(), d.GetEphemeral(), r.GetWatchAdded())
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

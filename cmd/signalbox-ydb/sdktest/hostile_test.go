package sdktest

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	pb "github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	"github.com/ydb-platform/ydb-go-sdk/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestFlood: clients that start sessions again at once after each failure are slowed down, and
// others go on.
func TestFlood(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	const floods = 50
	var all sync.WaitGroup
	stop := make(chan struct{})
	var mu sync.Mutex
	failures := 0
	for range floods {
		all.Go(func() {
			flood := dialRaw(t, cc.Target())
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := openStream(t, flood)
				s.start(&sessionStart{Path: path + "-none", TimeoutMillis: 5000})
				s.failed(Ydb.StatusIds_NOT_FOUND)
				mu.Lock()
				failures++
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return failures
	}
	await.True(t, "a flood", func() bool { return count() >= floods })
	from, before := time.Now(), count()
	s := newSession(t, cc, path)
	for i := range uint64(200) {
		s.acquire(2*i, "lock", forever, 0, "", true)
		s.expect(fmt.Sprintf("%d acquired=true", 2*i))
		s.release(2*i+1, "lock")
		s.expect(fmt.Sprintf("%d released=true", 2*i+1))
	}
	await.True(t, "more of the flood", func() bool { return count() >= before+floods })
	took := time.Since(from)
	close(stop)
	all.Wait()
	// Each of the failures took 2 s at the end, and they went on side by side. Without the delay
	// there would be thousands a second.
	if rate := float64(count()-before) / took.Seconds(); rate > 10*floods {
		t.Errorf("%.0f failures a second of %d clients", rate, floods)
	}
}

// TestLeftSessions: a client that starts sessions and breaks their streams, without end, is refused
// when it has left 10,000. It can restore them, and then start others. Another host does not
// notice.
func TestLeftSessions(t *testing.T) {
	if !long() {
		t.Skip("10,000 sessions are left by make ydb")
	}
	const most, clients = 10_000, 50
	address, _ := startGateway(t, []string{servertest.Start(t, servertest.RealTime()).Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	start := func(cc *grpc.ClientConn) (s *rawStream, status Ydb.StatusIds_StatusCode) {
		s = openStream(t, cc)
		s.start(&sessionStart{Path: path, TimeoutMillis: 1_500_000, ProtectionKey: []byte("key")})
		m := s.next()
		s.id = m.GetSessionStarted().GetSessionId()
		return s, m.GetFailure().GetStatus()
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var left []uint64
	for range clients {
		all.Go(func() {
			for {
				s, status := start(cc)
				if status != 0 {
					if status != Ydb.StatusIds_OVERLOADED {
						t.Errorf("a start is answered %v", status)
					}
					return
				}
				s.cancel()
				mu.Lock()
				left = append(left, s.id)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(left) < most || len(left) > 2*most {
		t.Fatalf("%d sessions were left", len(left))
	}
	far := dialRaw(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}} // another host
		return d.DialContext(ctx, "tcp", address)
	}))
	if _, status := start(far); status != 0 {
		t.Fatal(status)
	}
	for _, id := range left[:len(left)-most+1] {
		restore(t, cc, path, id, 0, "key").started()
	}
	await.True(t, "the restored sessions not to count", func() bool {
		_, status := start(cc)
		return status == 0
	})
}

// TestLongHeaders: the gateway does not take headers that would fill its memory.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-ydb-auth-ticket", strings.Repeat("x", 100<<10))
	c := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc)
	if _, err := c.ListEndpoints(ctx, &Ydb_Discovery.ListEndpointsRequest{}); err == nil {
		t.Fatal("a token of 100 KiB is taken")
	}
	dropNode(t, cc, path)
}

// TestInFlight: a stream that sends requests without end is refused, and not the memory's end.
func TestInFlight(t *testing.T) {
	t.Parallel()
	cluster := servertest.Start(t, servertest.RealTime())
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	s := newSession(t, cc, path, withTimeout(patienceMillis))
	cluster.Pause() // nothing is answered meanwhile
	for i := range uint64(2000) {
		s.create(i, fmt.Sprint("n", i), 1, "")
	}
	for i := range uint64(2000 - 1024) {
		s.expect(fmt.Sprintf("%d created OVERLOADED", 1024+i))
	}
	cluster.Resume()
	got := make(map[string]bool)
	for range 1024 {
		got[text(s.next())] = true
	}
	for i := range 1024 {
		if !got[fmt.Sprintf("%d created", i)] {
			t.Fatalf("request %d has no answer", i)
		}
	}
}

// TestSilentClient: a client that answers no ping loses its stream, and then its session.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	address, g := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
	s := newSession(t, cc, path, withTimeout(5000))
	s.acquire(1, "lock", forever, 0, "", true)
	s.expect("1 acquired=true")
	s.setMute(true)
	other := newSession(t, cc, path, withTimeout(patienceMillis))
	other.acquire(1, "lock", forever, forever, "", true)
	other.expect("1 pending")
	s.failed(Ydb.StatusIds_TIMEOUT)
	other.expect("1 acquired=true")
	if silent := metric(t, g, "streams_silent_total"); silent != 1 {
		t.Fatalf("%d silent streams", silent)
	}
	if sessions := metric(t, g, "sessions"); sessions != 1 {
		t.Fatalf("%d sessions", sessions)
	}
}

// slowConn is a connection on which each 4 KiB to be sent wait for an element of pace, if there is
// one.
type slowConn struct {
	net.Conn
	pace *atomic.Pointer[chan struct{}]
}

func (c slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if pace := c.pace.Load(); pace != nil {
			<-*pace
		}
		var sent int
		sent, err = c.Conn.Write(b[n:min(n+4<<10, len(b))])
		n += sent
	}
	return n, err
}

// TestLongUpload: a client whose answers to pings wait behind a long message of its own keeps its
// stream.
func TestLongUpload(t *testing.T) {
	t.Parallel()
	address, g := startGateway(t, sharedCluster(t).Addrs())
	var paced atomic.Pointer[chan struct{}]
	cc := dialRaw(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return slowConn{nc, &paced}, err
	}))
	s := newSession(t, cc, node(t, cc), withTimeout(patienceMillis))
	s.setMute(true)
	pace := make(chan struct{}, 1000)
	paced.Store(&pace)
	sent := make(chan error, 1)
	go func() {
		m := &pb.SessionRequest_CreateSemaphore{ReqId: 1, Name: "sem", Limit: 1, Data: make([]byte, 500<<10)}
		sent <- s.rpc.Send(&request{Request: &pb.SessionRequest_CreateSemaphore_{CreateSemaphore: m}})
	}()
	for range 6 { // the fourth unanswered one comes later than silence may last
		select {
		case <-s.pings:
		case m := <-s.got:
			t.Fatalf("during the upload: %v", m)
		}
		for range 8 {
			pace <- struct{}{}
		}
	}
	paced.Store(nil)
	close(pace)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	s.setMute(false)
	s.expect("1 created")
	if n := metric(t, g, "streams_silent_total"); n != 0 {
		t.Errorf("%d silent streams", n)
	}
}

// guardedCluster is a cluster with authentication. Each identity has a token, and its right on
// /guarded.
func guardedCluster(t *testing.T, rights map[string]string) (cluster *servertest.Server, tokens map[string]string) {
	t.Helper()
	const root = "the administrator of this test"
	guarded := func(c *server.Config) { c.Auth, c.AdminToken = true, root }
	cluster = servertest.Start(t, servertest.RealTime(), servertest.Config(guarded))
	ctx := testContext(t)
	c, err := client.Open(ctx, client.Config{Endpoints: []string{cluster.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tokens = make(map[string]string)
	for name, right := range rights {
		token, err := admin.New(c).CreateToken(ctx, "of-"+name, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.New(c).Grant(ctx, name, "/guarded", right); err != nil {
			t.Fatal(err)
		}
		tokens[name] = token.Secret
	}
	return cluster, tokens
}

// whoAmI asks whose token it is.
func whoAmI(ctx context.Context, cc *grpc.ClientConn, token string) (*Ydb_Operations.Operation, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "x-ydb-auth-ticket", token)
	got, err := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc).WhoAmI(ctx, &Ydb_Discovery.WhoAmIRequest{})
	return got.GetOperation(), err
}

// TestTokens: a client's token is what the cluster goes by; a missing right is refused for the
// request, and the session lives.
func TestTokens(t *testing.T) {
	t.Parallel()
	cluster, tokens := guardedCluster(t, map[string]string{"reader": "read", "user": "use", "boss": "admin"})
	ctx := testContext(t)
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	as := func(name string) []string { return []string{"x-ydb-auth-ticket", tokens[name]} }
	call := func(name string, want Ydb.StatusIds_StatusCode) {
		t.Helper()
		as := metadata.AppendToOutgoingContext(ctx, as(name)...)
		got, err := coordinationOf(cc).CreateNode(as, &pb.CreateNodeRequest{Path: "/local/guarded/" + name})
		outcome(t, got.GetOperation(), err, want, nil)
	}
	call("boss", Ydb.StatusIds_SUCCESS)
	call("reader", Ydb.StatusIds_UNAUTHORIZED)
	start := func(name string) *rawStream {
		s := openStream(t, cc, as(name)...)
		s.start(&sessionStart{Path: "/local/guarded/boss", TimeoutMillis: 5000, ProtectionKey: []byte("key")})
		return s
	}
	user := start("user").started()
	user.acquire(1, "lock", 1, 0, "", true)
	user.expect("1 acquired=true")
	user.create(2, "sem", 1, "")
	user.expect("2 created")
	user.remove(3, "sem", false)
	user.expect("3 deleted UNAUTHORIZED")
	user.release(4, "lock")
	user.expect("4 released=true")
	reader := start("reader").started()
	reader.create(1, "other", 1, "")
	reader.expect("1 created UNAUTHORIZED")
	reader.describe(&describeSemaphore{ReqId: 2, Name: "sem"})
	reader.expect(`2 described "" 0/1 ephemeral=false watch=false`)
	// Nobody else's session, even with the key.
	theirs := openStream(t, cc, as("boss")...)
	theirs.start(&sessionStart{
		Path: "/local/guarded/boss", SessionId: user.id, SeqNo: 1, TimeoutMillis: 5000, ProtectionKey: []byte("key"),
	})
	theirs.failed(Ydb.StatusIds_BAD_SESSION)
	// A cluster with authentication takes neither anonymous callers nor wrong tokens.
	tokens["nobody"], tokens["wrong"] = "", "no such token"
	for _, name := range []string{"nobody", "wrong"} {
		if err := start(name).end(); grpcstatus.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	if _, err := whoAmI(ctx, cc, "wrong"); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	db := openSDK(t, address, ydb.WithAccessTokenCredentials(tokens["user"]))
	if who, err := db.Discovery().WhoAmI(ctx); err != nil || who.User != "user" {
		t.Fatal(who, err)
	}
	sdkSession(t, db, "/local/guarded/boss")
}

// TestWrongTokens: calls with wrong tokens, each with another one and more than the gateway has
// places for connections, harm no honest client: neither one that is connected nor a new one.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	cluster, tokens := guardedCluster(t, map[string]string{"known": "use", "new": "use"})
	address, g := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	works := func(cc *grpc.ClientConn, name string) {
		t.Helper()
		op, err := whoAmI(testContext(t), cc, tokens[name])
		outcome(t, op, err, Ydb.StatusIds_SUCCESS, nil)
	}
	works(cc, "known")
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var all sync.WaitGroup
	var refused, overloaded atomic.Int64
	flood := dialRaw(t, address)
	for i := range 1500 {
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				op, err := whoAmI(ctx, flood, fmt.Sprintf("wrong %d %d", i, j))
				switch {
				case ctx.Err() != nil:
				case grpcstatus.Code(err) == codes.Unauthenticated:
					refused.Add(1)
				case op.GetStatus() == Ydb.StatusIds_OVERLOADED:
					overloaded.Add(1)
				case err == nil && op.GetStatus() == Ydb.StatusIds_SUCCESS:
					t.Error("a wrong token is taken")
					return
				}
			}
		})
	}
	await.True(t, "a flood", func() bool { return refused.Load() >= 20 && overloaded.Load() >= 1500 })
	for range 50 {
		works(cc, "known")
	}
	far := dialRaw(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}} // another host
		return d.DialContext(ctx, "tcp", address)
	}))
	works(far, "new")
	cancel()
	all.Wait()
	if n := metric(t, g, "cluster_connections"); n != 2 {
		t.Errorf("%d connections to the cluster", n)
	}
	t.Logf("%d calls with wrong tokens, of which the cluster was asked about %d",
		refused.Load()+overloaded.Load(), metric(t, g, "tokens_refused_total"))
}

// openGateway is a connection to a gateway of a cluster that has authentication off, until the
// operator enables it.
func openGateway(t *testing.T) (cc *grpc.ClientConn, g *gateway.Gateway, operator *admin.Client) {
	t.Helper()
	cluster := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(testContext(t), cluster.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	address, g := startGateway(t, []string{cluster.Addr()})
	return dialRaw(t, address), g, admin.New(c)
}

// TestUnknownTokens: with authentication off, tokens that the cluster does not know take no places:
// their callers share one connection, with sessions too. A known token counts, and so does one that
// the cluster gets to know before authentication is enabled.
func TestUnknownTokens(t *testing.T) {
	t.Parallel()
	cc, g, operator := openGateway(t)
	path := node(t, cc)
	ctx := testContext(t)
	known, err := operator.CreateToken(ctx, "of-boss", "boss")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s := openStream(t, cc, "x-ydb-auth-ticket", fmt.Sprint("an invented token ", i))
		s.start(&sessionStart{Path: path, TimeoutMillis: 5000})
		s.started().acquire(1, fmt.Sprint("lock ", i), 1, 0, "", true)
		s.expect("1 acquired=true")
	}
	if n := metric(t, g, "cluster_connections"); n != 1 {
		t.Fatalf("%d connections to the cluster", n)
	}
	is := func(token, want string) {
		t.Helper()
		op, err := whoAmI(ctx, cc, token)
		result := &Ydb_Discovery.WhoAmIResult{}
		outcome(t, op, err, Ydb.StatusIds_SUCCESS, result)
		if result.GetUser() != want {
			t.Fatalf("%s is %s", token, result.GetUser())
		}
	}
	is("an invented token 0", "anonymous")
	is(known.Secret, "boss")
	admins, err := operator.EnableAuth(ctx, "an invented token 0")
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the cluster to be asked again about an unknown token", func() bool {
		op, err := whoAmI(ctx, cc, "an invented token 0")
		result := &Ydb_Discovery.WhoAmIResult{}
		return err == nil && op.GetResult().UnmarshalTo(result) == nil && result.GetUser() == admins.Identity
	})
	await.True(t, "an invented token to be refused", func() bool {
		_, err := whoAmI(ctx, cc, "an invented token 1")
		return grpcstatus.Code(err) == codes.Unauthenticated
	})
}

// TestTokenThatGetsRights: a token that was unknown gets rights while callers without one have some
// too, so that the shared connection stays. Its caller is refused as one without a token at most
// once.
func TestTokenThatGetsRights(t *testing.T) {
	t.Parallel()
	cc, _, operator := openGateway(t)
	path := node(t, cc)
	ctx := testContext(t)
	op, err := whoAmI(ctx, cc, "a new admin's token")
	outcome(t, op, err, Ydb.StatusIds_SUCCESS, nil)
	if _, err := operator.Grant(ctx, "anonymous", "/elsewhere", "read"); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.EnableAuth(ctx, "a new admin's token"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the shared connection to have the rights of one without a token", func() bool {
		got, err := coordinationOf(cc).DescribeNode(ctx, &pb.DescribeNodeRequest{Path: path})
		return err == nil && got.GetOperation().GetStatus() == Ydb.StatusIds_UNAUTHORIZED
	})
	ctx = metadata.AppendToOutgoingContext(ctx, "x-ydb-auth-ticket", "a new admin's token")
	for _, want := range []Ydb.StatusIds_StatusCode{Ydb.StatusIds_UNAUTHORIZED, Ydb.StatusIds_SUCCESS} {
		got, err := coordinationOf(cc).DescribeNode(ctx, &pb.DescribeNodeRequest{Path: path})
		outcome(t, got.GetOperation(), err, want, nil)
	}
}

// TestSlowReader: descriptions wait for a client that reads slowly, and the stream goes on. It
// outlives one that does not answer its pings: the slow client has none to answer.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	address, g := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
	s, other := newSession(t, cc, path, withTimeout(patienceMillis)), newSession(t, dialRaw(t, address), path)
	s.create(1, "config", 1, strings.Repeat("x", 1<<20))
	s.expect("1 created")
	s.setPaused(true)
	const describes = 100
	for i := range uint64(describes) {
		s.describe(&describeSemaphore{ReqId: 100 + i, Name: "config"})
	}
	await.True(t, "a full outbox", func() bool { return metric(t, g, "outbox_bytes") > 59<<20 })
	for i := range uint64(20) { // meanwhile more would have been put into it
		other.describe(&describeSemaphore{ReqId: i, Name: "config"})
		if r := other.next().GetDescribeSemaphoreResult(); r.GetStatus() != Ydb.StatusIds_SUCCESS {
			t.Fatal(r.GetStatus())
		}
	}
	if n := metric(t, g, "outbox_bytes"); n > 64<<20 {
		t.Fatalf("%d bytes wait", n)
	}
	silent := newSession(t, dialRaw(t, address), path, withTimeout(patienceMillis))
	silent.setMute(true)
	silent.failed(Ydb.StatusIds_TIMEOUT)
	s.setPaused(false)
	for i := range uint64(describes) {
		m := s.next()
		if r := m.GetDescribeSemaphoreResult(); r.GetReqId() != 100+i || r.GetStatus() != Ydb.StatusIds_SUCCESS {
			t.Fatalf("%.100s, and not the answer to %d", text(m), 100+i)
		}
	}
	if n := metric(t, g, "streams_silent_total"); n != 1 {
		t.Errorf("%d silent streams", n)
	}
	await.True(t, "an empty outbox", func() bool { return metric(t, g, "outbox_bytes") == 0 })
}

// TestManySlowReaders: a client with many streams that it does not read has the gateway keep no
// more than its bound. Streams end until it fits, and those of others go on.
func TestManySlowReaders(t *testing.T) {
	t.Parallel()
	const most = 32 << 20
	address, g := startGateway(t, sharedCluster(t).Addrs(), func(c *gateway.Config) { c.MaxMemory = most })
	cc := dialRaw(t, address)
	path := node(t, cc)
	long := withTimeout(patienceMillis)
	honest := newSession(t, dialRaw(t, address), path, long)
	honest.create(1, "config", 1, strings.Repeat("x", 1<<20))
	honest.expect("1 created")
	slow := make([]*rawStream, 8)
	for i := range slow {
		slow[i] = newSession(t, cc, path, long)
		slow[i].ping(0) // its answer is the last message that is read
		slow[i].setPaused(true)
		for id := range uint64(20) {
			slow[i].describe(&describeSemaphore{ReqId: id, Name: "config"})
		}
	}
	await.True(t, "a stream to end", func() bool {
		for _, s := range slow {
			s.ping(1)
		}
		return metric(t, g, "streams_shed_total") > 0
	})
	for i := range uint64(100) {
		honest.acquire(2*i, "lock", forever, 0, "", true)
		honest.expect(fmt.Sprintf("%d acquired=true", 2*i))
		honest.release(2*i+1, "lock")
		honest.expect(fmt.Sprintf("%d released=true", 2*i+1))
	}
	// The outbox of a stream that ends goes with it, within a second.
	await.True(t, "the others to fit", func() bool { return metric(t, g, "outbox_bytes") <= most })
	for _, s := range slow {
		s.setPaused(false)
	}
}

// TestTLS: YDB's SDK connects with grpcs, and discovery says so.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t)
	cert, key := authority.Issue(t, t.TempDir(), "gateway", certstest.Host("127.0.0.1"))
	c, err := certs.Open(certs.Files{Cert: cert, Key: key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address, _ := startGateway(t, sharedCluster(t).Addrs(), func(cfg *gateway.Config) { cfg.TLS = c.Server() })
	trust := ydb.WithTLSConfig(&tls.Config{RootCAs: authority.Pool()})
	db, err := ydb.Open(testContext(t), "grpcs://"+address+"/local", trust)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(testContext(t)) }()
	path := sdkNode(t, db)
	s := sdkSession(t, db, path)
	if err := s.CreateSemaphore(testContext(t), "sem", 1); err != nil {
		t.Fatal(err)
	}
}

// TestLongDescription: a description above 60 MiB is refused, and one below it arrives whole.
func TestLongDescription(t *testing.T) {
	if !long() {
		t.Skip("63 MiB of data are written by make ydb")
	}
	srv := servertest.Start(t, servertest.RealTime())
	address, _ := startGateway(t, []string{srv.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	data := strings.Repeat("x", 1<<20)
	s := newSession(t, cc, path)
	s.create(1, "wide", forever, "")
	s.expect("1 created")
	for i := range 62 {
		owner := newSession(t, cc, path)
		owner.acquire(1, "wide", 1, 0, data, false)
		owner.expect("1 acquired=true")
		if i != 58 && i != 61 {
			continue
		}
		s.describe(&describeSemaphore{ReqId: 2, Name: "wide", IncludeOwners: true})
		got := s.next().GetDescribeSemaphoreResult()
		switch owners := len(got.GetSemaphoreDescription().GetOwners()); {
		case i == 58 && (got.GetStatus() != Ydb.StatusIds_SUCCESS || owners != 59):
			t.Fatalf("%v, %d owners of 59", got.GetStatus(), owners)
		case i == 61 && got.GetStatus() != Ydb.StatusIds_PRECONDITION_FAILED:
			t.Fatalf("%v, %d owners of 62", got.GetStatus(), owners)
		}
	}
	s.describe(&describeSemaphore{ReqId: 3, Name: "wide"})
	s.expect(fmt.Sprintf(`3 described "" 62/%d ephemeral=false watch=false`, uint64(forever)))
}

// TestManyTokens: each token that the cluster knows has a connection of its own, up to a bound.
// Then the one that was not used for longest goes, and one with a session never does.
func TestManyTokens(t *testing.T) {
	if !long() {
		t.Skip("a thousand connections are made by make ydb")
	}
	cc, g, operator := openGateway(t)
	path := node(t, cc)
	ctx := testContext(t)
	token := func(id string) string {
		known, err := operator.CreateToken(ctx, id, id)
		if err != nil {
			t.Fatal(err)
		}
		return known.Secret
	}
	s := openStream(t, cc, "x-ydb-auth-ticket", token("with-a-session"))
	s.start(&sessionStart{Path: path, TimeoutMillis: patienceMillis})
	s.started()
	for i := range 1100 {
		op, err := whoAmI(ctx, cc, token(fmt.Sprint("token-", i)))
		outcome(t, op, err, Ydb.StatusIds_SUCCESS, nil)
	}
	if n := metric(t, g, "cluster_connections"); n != 1000 {
		t.Fatalf("%d connections to the cluster", n)
	}
	s.create(1, "sem", 1, "")
	s.expect("1 created")
}

package sdktest

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

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
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// root is the administrator's token of guarded clusters.
const root = "the administrator of this test"

// guardedCluster is a cluster with authentication. Each identity has a token, and its right on
// /guarded.
func guardedCluster(t *testing.T, rights map[string]string) (cluster *servertest.Server, tokens map[string]string) {
	t.Helper()
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
	// A client learns of it when it connects.
	discover := func(token string) error {
		ctx := metadata.AppendToOutgoingContext(ctx, "x-ydb-auth-ticket", token)
		_, err := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc).ListEndpoints(ctx, &Ydb_Discovery.ListEndpointsRequest{})
		return err
	}
	if err := discover("wrong"); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	for _, token := range []string{tokens["user"], ""} {
		if err := discover(token); err != nil {
			t.Fatal(err)
		}
	}
	db := openSDK(t, address, ydb.WithAccessTokenCredentials(tokens["user"]))
	if who, err := db.Discovery().WhoAmI(ctx); err != nil || who.User != "user" {
		t.Fatal(who, err)
	}
	sdkSession(t, db, "/local/guarded/boss")
}

// TestTokenReplaced: a client's token is revoked while it holds something. Its stream ends with the
// refusal, and the client restores its session with another token of its identity.
func TestTokenReplaced(t *testing.T) {
	t.Parallel()
	cluster, tokens := guardedCluster(t, map[string]string{"user": "use", "boss": "admin"})
	ctx := testContext(t)
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	as := metadata.AppendToOutgoingContext(ctx, "x-ydb-auth-ticket", tokens["boss"])
	got, err := coordinationOf(cc).CreateNode(as, &pb.CreateNodeRequest{Path: "/local/guarded/node"})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
	c, err := client.Open(ctx, client.Config{Endpoints: []string{cluster.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := sessionStart{Path: "/local/guarded/node", TimeoutMillis: 600_000, ProtectionKey: []byte("key")}
	holder := openStream(t, cc, "x-ydb-auth-ticket", tokens["user"])
	holder.start(&start)
	holder.started()
	holder.acquire(1, "lock", 1, 0, "", true)
	holder.expect("1 acquired=true")

	next, err := admin.New(c).CreateToken(ctx, "next", "user")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.New(c).RevokeToken(ctx, "of-user"); err != nil {
		t.Fatal(err)
	}
	if err := holder.end(); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Fatalf("the stream of a revoked token ended with %v", err)
	}
	again := openStream(t, cc, "x-ydb-auth-ticket", next.Secret)
	again.start(&sessionStart{Path: start.Path, SessionId: holder.id, SeqNo: 1, TimeoutMillis: 600_000, ProtectionKey: []byte("key")})
	again.started()
	again.release(1, "lock")
	again.expect("1 released=true")
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

// TestMistakenTLS: the log says why a client cannot connect that speaks TLS to a gateway without it,
// or the other way round, or that trusts another authority.
func TestMistakenTLS(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t)
	cert, key := authority.Issue(t, t.TempDir(), "gateway", certstest.Host("127.0.0.1"))
	c, err := certs.Open(certs.Files{Cert: cert, Key: key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log := new(lineLog)
	logged := func(cfg *gateway.Config) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) }
	plain, _ := startGateway(t, []string{"127.0.0.1:1"}, logged)
	secure, _ := startGateway(t, []string{"127.0.0.1:1"}, logged, func(cfg *gateway.Config) { cfg.TLS = c.Server() })
	for _, x := range []struct {
		address string
		tls     bool
		want    string
	}{
		{plain, true, "it speaks TLS, and this gateway does not"},
		{secure, false, "it does not speak TLS, which this gateway does"},
		{secure, true, "it may not trust the authority"},
	} {
		nc, err := net.Dial("tcp", x.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if x.tls {
			_ = tls.Client(nc, &tls.Config{ServerName: "127.0.0.1", RootCAs: certstest.New(t).Pool()}).Handshake()
		} else {
			_, _ = nc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		}
		await.True(t, x.want, func() bool { return log.lines(x.want) == 1 })
	}
}

// TestManyTokens: each token that the cluster knows has a connection of its own, up to a bound.
// Then the one that was not used for longest goes, and one with a session never does.
func TestManyTokens(t *testing.T) {
	form.SkipUntil(t, form.Long, "a thousand connections are made")
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

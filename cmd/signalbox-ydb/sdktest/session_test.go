package sdktest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	pb "github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	native "github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)

	s := openStream(t, cc)
	s.start(&sessionStart{Path: path + "/", TimeoutMillis: 7000, SeqNo: 3})
	m := s.next().GetSessionStarted()
	if m.GetSessionId() == 0 || m.GetTimeoutMillis() != 7000 {
		t.Fatal(m)
	}
	first := <-s.pings // right behind it
	s.ping(77)
	s.expect("pong 77")
	// A ping with the number of the gateway's own is a pong, and is not answered.
	s.ping(first)
	s.ping(78)
	s.expect("pong 78")

	for _, c := range []struct {
		what string
		m    *sessionStart
		want Ydb.StatusIds_StatusCode
	}{
		{"no such node", &sessionStart{Path: path + "-none"}, Ydb.StatusIds_NOT_FOUND},
		{"another database", &sessionStart{Path: "/elsewhere/x"}, Ydb.StatusIds_BAD_REQUEST},
		{"a relative path", &sessionStart{Path: "x"}, Ydb.StatusIds_BAD_REQUEST},
		{"a long key", &sessionStart{Path: path, ProtectionKey: make([]byte, 17)}, Ydb.StatusIds_BAD_REQUEST},
		{"a long timeout", &sessionStart{Path: path, TimeoutMillis: 30*60*1000 + 1}, Ydb.StatusIds_BAD_REQUEST},
		{"a long text", &sessionStart{Path: path, Description: strings.Repeat("x", 1025)}, Ydb.StatusIds_BAD_REQUEST},
		{"a seq_no without room", &sessionStart{Path: path, SeqNo: 1<<39 + 1}, Ydb.StatusIds_BAD_REQUEST},
		{"an endless seq_no", &sessionStart{Path: path, SeqNo: math.MaxUint64}, Ydb.StatusIds_BAD_REQUEST},
		{"a session that never was", &sessionStart{Path: path, SessionId: 12345}, Ydb.StatusIds_SESSION_EXPIRED},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := openStream(t, cc)
			s.start(c.m)
			s.failed(c.want)
		})
	}

	s = openStream(t, cc)
	s.stop()
	if err := s.end(); grpcstatus.Code(err) != codes.InvalidArgument ||
		grpcstatus.Convert(err).Message() != "First message must be a SessionStart" { // YDB's text
		t.Fatalf("a stream that begins with a stop ended with %v", err)
	}
	s = openStream(t, cc)
	if err := s.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); grpcstatus.Code(err) != codes.Canceled {
		t.Fatalf("a stream without a start ended with %v", err)
	}
	s = newSession(t, cc, path)
	s.start(&sessionStart{Path: path})
	s.failed(Ydb.StatusIds_BAD_REQUEST)
	s = newSession(t, cc, path)
	s.send(&request{Request: &pb.SessionRequest_Unsupported_5{Unsupported_5: &pb.Unsupported{}}})
	s.failed(Ydb.StatusIds_BAD_REQUEST)
}

// TestRestore: order by seq_no and the key decide who gets a session, here and at another gateway.
func TestRestore(t *testing.T) {
	t.Parallel()
	var log lineLog
	one, two, path := twoGateways(t, func(c *gateway.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })

	s := newSession(t, one, path, func(m *sessionStart) { m.SeqNo = 5 })
	s.acquire(1, "lock", 1, 0, "mine", true)
	s.expect("1 acquired=true")
	s.describe(&describeSemaphore{ReqId: 2, Name: "lock", WatchOwners: true})
	s.expect(`2 described "" 1/18446744073709551615 ephemeral=true watch=true`)

	restore(t, two, path, s.id, 6, "wrong").failed(Ydb.StatusIds_BAD_SESSION)
	restore(t, two, path, s.id, 4, "key").failed(Ydb.StatusIds_BAD_SESSION)
	restore(t, one, path, s.id, 4, "key").failed(Ydb.StatusIds_BAD_SESSION)
	s.describe(&describeSemaphore{ReqId: 3, Name: "lock", IncludeOwners: true})
	s.expect(`3 described "" 1/18446744073709551615 ephemeral=true watch=false owner(1 "mine")`)

	// An equal seq_no attaches, and a higher one; the stream before it fails each time. What it
	// holds stays, and its requests go on.
	for i, x := range []struct {
		at  int
		seq uint64
	}{{1, 5}, {1, 5}, {2, 5}, {2, 6}, {1, 6}, {1, 9}, {2, 1 << 39}} {
		cc := one
		if x.at == 2 {
			cc = two
		}
		next := restore(t, cc, path, s.id, x.seq, "key").started()
		if next.id != s.id {
			t.Fatalf("restored session %d, and got %d", s.id, next.id)
		}
		s.failed(Ydb.StatusIds_BAD_SESSION)
		s = next
		s.acquire(1, "lock", 1, forever, "mine", true)
		s.expect("1 acquired=true")
		name := string(rune('a' + i))
		s.create(2, name, 1, "")
		s.expect("2 created")
		s.create(3, name, 1, "")
		s.expect("3 created ALREADY_EXISTS")
	}
	restore(t, one, path, s.id, 1<<39-1, "key").failed(Ydb.StatusIds_BAD_SESSION)
	s.stop()
	s.expect("stopped")
	restore(t, one, path, s.id, 1<<39, "key").failed(Ydb.StatusIds_SESSION_EXPIRED)
	if lines := log.lines("level=WARN"); lines != 0 { // all this is as the clients want it
		t.Errorf("%d lines of the log are warnings", lines)
	}
}

// TestLastRestore: a session cannot be restored when its request numbers are used up, and lives on
// at its holder.
func TestLastRestore(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	ctx := testContext(t)
	s := newSession(t, cc, path, func(m *sessionStart) { m.SeqNo = 5 })
	n := nativeNode(t, sharedCluster(t).Addrs(), path)
	hash := sha256.Sum256([]byte("signalbox-ydb protection key\x00key")) // the same at all gateways
	const last = 1<<18 - 1
	holder, err := native.Attach(ctx, n, native.Takeover{
		Session: s.id, Key: native.Key(hash[:16]), Epoch: 5<<24 | last<<6, FirstNumber: last<<40 + 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.failed(Ydb.StatusIds_BAD_SESSION)
	for _, seq := range []uint64{5, 6, 1 << 39} {
		restore(t, cc, path, s.id, seq, "key").failed(Ydb.StatusIds_BAD_SESSION)
	}
	if err := holder.Create(ctx, "sem", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := holder.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// attachHold holds back what a gateway sends to the cluster, from an attach on.
type attachHold struct {
	once    sync.Once
	seen    chan struct{} // closed at the first attach
	release chan struct{} // when it is closed, all goes on
}

func holdAttaches() *attachHold {
	return &attachHold{seen: make(chan struct{}), release: make(chan struct{})}
}

func (h *attachHold) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	return heldConn{Conn: c, by: h}, err
}

type heldConn struct {
	net.Conn
	by *attachHold
}

func (c heldConn) Write(b []byte) (int, error) {
	if hasAttach(b) {
		c.by.once.Do(func() { close(c.by.seen) })
		<-c.by.release
	}
	return c.Conn.Write(b)
}

// hasAttach reports whether an attach is among the frames.
func hasAttach(frames []byte) bool {
	for {
		frame, n, err := protocol.SplitFrame(frames, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			return false
		}
		if h, err := protocol.ParseFrame(frame); err == nil && h.Kind == protocol.KindSessionAttach {
			return true
		}
		frames = frames[n:]
	}
}

// TestAbandonedStart: a client goes away while the cluster is told the seq_no of its new session.
// The session ends, and does not live as long as the gateway.
func TestAbandonedStart(t *testing.T) {
	t.Parallel()
	hold := holdAttaches()
	dial := func(c *gateway.Config) { c.Cluster.Dial = hold.dial }
	address, g := startGateway(t, sharedCluster(t).Addrs(), dial)
	cc := dialRaw(t, address)
	path := node(t, cc)
	n := nativeNode(t, sharedCluster(t).Addrs(), path)
	sessions := func() (count int) {
		for _, err := range admin.OfNode(n).Sessions(testContext(t)) {
			if err != nil {
				t.Fatal(err)
			}
			count++
		}
		return count
	}
	newSession(t, cc, path, withTimeout(patienceMillis)) // it keeps the gateway's connection alive
	s := openStream(t, cc)
	s.start(&sessionStart{Path: path, TimeoutMillis: patienceMillis, SeqNo: 1})
	<-hold.seen
	if n := sessions(); n != 2 {
		t.Fatalf("%d sessions", n)
	}
	s.cancel()
	await.True(t, "the end of the start", func() bool { return metric(t, g, "session_starts_failed_total") == 1 })
	close(hold.release)
	await.True(t, "the end of the session", func() bool { return sessions() == 1 })
	await.True(t, "the end of the session at the gateway", func() bool { return metric(t, g, "sessions") == 1 })
}

// TestWrongKeys: restores of a session with a wrong key delay neither its end nor its
// client. The gateway knows the key, and does not ask the cluster.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	attaches := holdAttaches()
	close(attaches.release)
	dial := func(c *gateway.Config) { c.Cluster.Dial = attaches.dial }
	address, _ := startGateway(t, sharedCluster(t).Addrs(), dial)
	cc := dialRaw(t, address)
	path := node(t, cc)
	lost, kept := newSession(t, cc, path, withTimeout(2000)), newSession(t, cc, path, withTimeout(patienceMillis))
	lost.acquire(1, "lock", forever, 0, "", true)
	lost.expect("1 acquired=true")
	kept.acquire(1, "lock", forever, forever, "", true)
	kept.expect("1 pending")
	lost.cancel()
	var wrong []*rawStream
	for range 5 {
		wrong = append(wrong, restore(t, cc, path, lost.id, 9, "wrong"), restore(t, cc, path, kept.id, 9, "wrong"))
	}
	for _, s := range wrong {
		s.failed(Ydb.StatusIds_BAD_SESSION)
	}
	kept.expect("1 acquired=true")
	select {
	case <-attaches.seen:
		t.Error("the cluster was asked about a wrong key")
	default:
	}
	restore(t, cc, path, kept.id, 1, "key").started()
}

// TestTakenOverStream: the watches and waits of a stream end with it when another stream has the
// session; the entry in the queue stays, and the new stream gets its result.
func TestTakenOverStream(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	holder := newSession(t, cc, path)
	holder.acquire(1, "lock", 1, 0, "", true)
	holder.expect("1 acquired=true")
	holder.acquire(2, "lock", forever, 0, "", true)
	holder.expect("2 acquired=false BAD_REQUEST") // more than it has

	s := newSession(t, cc, path)
	s.acquire(1, "lock", forever, forever, "waits", true)
	s.expect("1 pending")
	s.describe(&describeSemaphore{ReqId: 2, Name: "lock", WatchOwners: true, IncludeWaiters: true})
	waits := fmt.Sprintf(`waiter(%d "waits" %[1]d)`, uint64(forever))
	s.expect(fmt.Sprintf(`2 described "" 1/%d ephemeral=true watch=true %s`, uint64(forever), waits))
	next := restore(t, cc, path, s.id, 0, "key").started()
	s.failed(Ydb.StatusIds_BAD_SESSION)

	next.acquire(7, "lock", forever, forever, "waits", true)
	next.expect("7 pending")
	holder.release(3, "lock")
	holder.expect("3 released=true")
	next.expect("7 acquired=true")
}

// TestStop: a stop ends the call with OK and frees what was held at once.
func TestStop(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	s, other := newSession(t, cc, path), newSession(t, cc, path)
	s.acquire(1, "lock", forever, 0, "", true)
	s.expect("1 acquired=true")
	other.acquire(1, "lock", forever, forever, "", true)
	other.expect("1 pending")
	s.stop()
	s.expect("stopped")
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	other.expect("1 acquired=true")
	restore(t, cc, path, s.id, 1, "key").failed(Ydb.StatusIds_SESSION_EXPIRED)

	// A client that closes its side behind the stop still gets the answer.
	other.stop()
	if err := other.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	other.expect("stopped")
	if err := other.end(); err != nil {
		t.Fatal(err)
	}
}

// TestStopBehindRequests: what was sent before a stop is carried out and answered before it. A wait
// in the queue does not hold it up, and what comes behind it is dropped.
func TestStopBehindRequests(t *testing.T) {
	t.Parallel()
	cluster := servertest.Start(t, servertest.RealTime())
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	s, holder := newSession(t, cc, path, withTimeout(patienceMillis)), newSession(t, cc, path, withTimeout(patienceMillis))
	holder.acquire(1, "lock", forever, 0, "", true)
	holder.expect("1 acquired=true")
	s.acquire(1, "lock", forever, forever, "", true)
	s.expect("1 pending")
	s.create(2, "config", 1, "")
	s.expect("2 created")
	cluster.Pause() // nothing is answered meanwhile
	s.update(3, "config", "new")
	s.describe(&describeSemaphore{ReqId: 4, Name: "config"})
	s.stop()
	s.update(5, "config", "too late")
	s.ping(6)
	s.expect("pong 6") // all this has reached the gateway
	cluster.Resume()
	s.expect("3 updated", `4 described "new" 0/1 ephemeral=false watch=false`, "stopped")
	holder.describe(&describeSemaphore{ReqId: 2, Name: "config"})
	holder.expect(`2 described "new" 0/1 ephemeral=false watch=false`)
}

// TestStopBehindLongAnswers: a client that reads slowly gets the answers from before its stop.
func TestStopBehindLongAnswers(t *testing.T) {
	t.Parallel()
	address, g := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	s := newSession(t, cc, node(t, cc), withTimeout(patienceMillis))
	s.create(1, "config", 1, strings.Repeat("x", 1<<20))
	s.expect("1 created")
	s.setPaused(true)
	const describes = 20
	for i := range uint64(describes) {
		s.describe(&describeSemaphore{ReqId: 100 + i, Name: "config"})
	}
	await.True(t, "the answers", func() bool { // but the first, which is on its way
		return metric(t, g, "outbox_bytes") > (describes-1)<<20
	})
	s.stop()
	s.setPaused(false)
	for i := range uint64(describes) {
		r := s.next().GetDescribeSemaphoreResult()
		if r.GetReqId() != 100+i || r.GetStatus() != Ydb.StatusIds_SUCCESS {
			t.Fatalf("answer %d is %d, %v", 100+i, r.GetReqId(), r.GetStatus())
		}
	}
	s.expect("stopped")
}

// TestBrokenStream: a session whose stream breaks keeps what it holds until its timeout is over,
// and then it goes. One that is restored before stays.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	other := newSession(t, cc, path, withTimeout(patienceMillis))

	lost := newSession(t, cc, path, withTimeout(3000))
	lost.acquire(1, "lost", forever, 0, "", true)
	lost.expect("1 acquired=true")
	other.acquire(1, "lost", forever, forever, "", true)
	other.expect("1 pending")
	lost.cancel()
	other.expect("1 acquired=true")
	restore(t, cc, path, lost.id, 1, "key").failed(Ydb.StatusIds_SESSION_EXPIRED)

	// Without a timeout it goes at once.
	none := newSession(t, cc, path, withTimeout(0))
	none.acquire(1, "none", forever, 0, "", true)
	none.expect("1 acquired=true")
	other.acquire(2, "none", forever, forever, "", true)
	other.expect("2 pending")
	if err := none.rpc.CloseSend(); err != nil { // the other way to break it
		t.Fatal(err)
	}
	other.expect("2 acquired=true")

	kept := newSession(t, cc, path, withTimeout(patienceMillis))
	kept.acquire(1, "kept", forever, 0, "", true)
	kept.expect("1 acquired=true")
	kept.cancel()
	_ = kept.end()
	again := restore(t, cc, path, kept.id, 1, "key").started()
	other.acquire(3, "kept", forever, 0, "", true)
	other.expect("3 acquired=false")
	again.release(2, "kept")
	again.expect("2 released=true")
}

const patienceMillis = 60_000

// TestNodeDropped: sessions end with the node.
func TestNodeDropped(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	s := newSession(t, cc, path)
	dropNode(t, cc, path)
	s.failed(Ydb.StatusIds_SESSION_EXPIRED)
	s = openStream(t, cc)
	s.start(&sessionStart{Path: path, TimeoutMillis: 5000})
	s.failed(Ydb.StatusIds_NOT_FOUND)
}

package sdktest

import (
	"math"
	"testing"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

func TestStart(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)

	s := openStream(t, cc)
	s.start(&Ydb_Coordination.SessionRequest_SessionStart{Path: path + "/", TimeoutMillis: 7000, SeqNo: 3})
	m := s.next().GetSessionStarted()
	if m.GetSessionId() == 0 || m.GetTimeoutMillis() != 7000 {
		t.Fatal(m)
	}
	first := <-s.pings // right behind it
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_Ping{Ping: &Ydb_Coordination.SessionRequest_PingPong{Opaque: 77}}})
	s.expect("pong 77")
	// A ping with the number of the gateway's own is a pong, and is not answered.
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_Ping{Ping: &Ydb_Coordination.SessionRequest_PingPong{Opaque: first}}})
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_Ping{Ping: &Ydb_Coordination.SessionRequest_PingPong{Opaque: 78}}})
	s.expect("pong 78")

	for _, c := range []struct {
		what string
		m    *Ydb_Coordination.SessionRequest_SessionStart
		want Ydb.StatusIds_StatusCode
	}{
		{"no such node", &Ydb_Coordination.SessionRequest_SessionStart{Path: path + "-none"}, Ydb.StatusIds_NOT_FOUND},
		{"another database", &Ydb_Coordination.SessionRequest_SessionStart{Path: "/elsewhere/x"}, Ydb.StatusIds_BAD_REQUEST},
		{"a relative path", &Ydb_Coordination.SessionRequest_SessionStart{Path: "x"}, Ydb.StatusIds_BAD_REQUEST},
		{"a long key", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, ProtectionKey: make([]byte, 17)}, Ydb.StatusIds_BAD_REQUEST},
		{"a long timeout", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, TimeoutMillis: 30*60*1000 + 1}, Ydb.StatusIds_BAD_REQUEST},
		{"a long description", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, Description: string(make([]byte, 1025))}, Ydb.StatusIds_BAD_REQUEST},
		{"a seq_no without room", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, SeqNo: 1<<39 + 1}, Ydb.StatusIds_BAD_REQUEST},
		{"an endless seq_no", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, SeqNo: math.MaxUint64}, Ydb.StatusIds_BAD_REQUEST},
		{"a session that never was", &Ydb_Coordination.SessionRequest_SessionStart{Path: path, SessionId: 12345}, Ydb.StatusIds_SESSION_EXPIRED},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := openStream(t, cc)
			s.start(c.m)
			s.failed(c.want)
		})
	}

	s = openStream(t, cc)
	s.stop()
	if err := s.end(); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Fatalf("a stream that begins with a stop ended with %v", err)
	}
	s = newSession(t, cc, path)
	s.start(&Ydb_Coordination.SessionRequest_SessionStart{Path: path})
	s.failed(Ydb.StatusIds_BAD_REQUEST)
	s = newSession(t, cc, path)
	s.send(&request{Request: &Ydb_Coordination.SessionRequest_Unsupported_5{Unsupported_5: &Ydb_Coordination.Unsupported{}}})
	s.failed(Ydb.StatusIds_BAD_REQUEST)
}

// TestRestore: order by seq_no and the key decide who gets a session, here and at another gateway.
func TestRestore(t *testing.T) {
	t.Parallel()
	endpoints := sharedCluster(t).Addrs()
	a1, _ := startGateway(t, endpoints)
	a2, _ := startGateway(t, endpoints)
	one, two := dialRaw(t, a1), dialRaw(t, a2)
	path := node(t, one)

	s := newSession(t, one, path, func(m *Ydb_Coordination.SessionRequest_SessionStart) { m.SeqNo = 5 })
	s.acquire(1, "lock", 1, 0, "mine", true)
	s.expect("1 acquired=true")
	s.describe(&Ydb_Coordination.SessionRequest_DescribeSemaphore{ReqId: 2, Name: "lock", WatchOwners: true})
	s.expect(`2 described "" 1/18446744073709551615 ephemeral=true watch=true`)

	restore(t, two, path, s.id, 6, "wrong").failed(Ydb.StatusIds_BAD_SESSION)
	restore(t, two, path, s.id, 4, "key").failed(Ydb.StatusIds_BAD_SESSION)
	restore(t, one, path, s.id, 4, "key").failed(Ydb.StatusIds_BAD_SESSION)
	s.describe(&Ydb_Coordination.SessionRequest_DescribeSemaphore{ReqId: 3, Name: "lock", IncludeOwners: true})
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
}

// TestTakenOverStream: the watches and waits of a stream end with it when another stream has the
// session; the entry in the queue stays, and the new stream gets its result.
func TestTakenOverStream(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
	holder := newSession(t, cc, path)
	holder.acquire(1, "lock", 1, 0, "", true)
	holder.expect("1 acquired=true")
	holder.acquire(2, "lock", forever, 0, "", true)
	holder.expect("2 acquired=false BAD_REQUEST") // more than it has

	s := newSession(t, cc, path)
	s.acquire(1, "lock", forever, forever, "waits", true)
	s.expect("1 pending")
	s.describe(&Ydb_Coordination.SessionRequest_DescribeSemaphore{ReqId: 2, Name: "lock", WatchOwners: true, IncludeWaiters: true})
	s.expect(`2 described "" 1/18446744073709551615 ephemeral=true watch=true waiter(18446744073709551615 "waits" 18446744073709551615)`)
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
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
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

// TestBrokenStream: a session whose stream breaks keeps what it holds until its timeout is over,
// and then it goes. One that is restored before stays.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
	brief := func(ms uint64) func(*Ydb_Coordination.SessionRequest_SessionStart) {
		return func(m *Ydb_Coordination.SessionRequest_SessionStart) { m.TimeoutMillis = ms }
	}
	other := newSession(t, cc, path)

	lost := newSession(t, cc, path, brief(300))
	lost.acquire(1, "lost", forever, 0, "", true)
	lost.expect("1 acquired=true")
	other.acquire(1, "lost", forever, forever, "", true)
	other.expect("1 pending")
	lost.cancel()
	other.expect("1 acquired=true")
	restore(t, cc, path, lost.id, 1, "key").failed(Ydb.StatusIds_SESSION_EXPIRED)

	// Without a timeout it goes at once.
	none := newSession(t, cc, path, brief(0))
	none.acquire(1, "none", forever, 0, "", true)
	none.expect("1 acquired=true")
	other.acquire(2, "none", forever, forever, "", true)
	other.expect("2 pending")
	if err := none.rpc.CloseSend(); err != nil { // the other way to break it
		t.Fatal(err)
	}
	other.expect("2 acquired=true")

	kept := newSession(t, cc, path, brief(patienceMillis))
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
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	path := node(t, cc)
	s := newSession(t, cc, path)
	dropNode(t, cc, path)
	s.failed(Ydb.StatusIds_SESSION_EXPIRED)
	s = openStream(t, cc)
	s.start(&Ydb_Coordination.SessionRequest_SessionStart{Path: path, TimeoutMillis: 5000})
	s.failed(Ydb.StatusIds_NOT_FOUND)
}

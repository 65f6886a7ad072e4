package sdktest

import (
	"context"
	"fmt"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
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
	form.SkipUntil(t, form.Long, "10,000 sessions are left")
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

// TestLongRequests: a request that is too long is refused by its number, and the stream goes on. Its
// client would send it again for ever if it ended the stream.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	s := newSession(t, cc, path, withTimeout(patienceMillis))
	for i, length := range []int{1<<20 + 1, 4<<20 + 1, 63 << 20} {
		data := strings.Repeat("x", length)
		id := 10 * uint64(i)
		s.create(id, "sem", 1, data)
		s.expect(fmt.Sprintf("%d created BAD_REQUEST", id))
		s.acquire(id+1, "lock", 1, forever, data, true)
		s.expect(fmt.Sprintf("%d acquired=false BAD_REQUEST", id+1))
		s.update(id+2, "sem", data)
		s.expect(fmt.Sprintf("%d updated BAD_REQUEST", id+2))
	}
	s.create(100, "sem", 1, strings.Repeat("x", 1<<20))
	s.expect("100 created")
}

// TestManyLongUploads: clients that send long messages without an end have the gateway keep no more
// than its bound. The connection with the most is closed, and others go on.
func TestManyLongUploads(t *testing.T) {
	t.Parallel()
	address, g := startGateway(t, sharedCluster(t).Addrs(), func(c *gateway.Config) { c.MaxMemory = 8 << 20 })
	cc := dialRaw(t, address)
	path := node(t, cc)
	honest := newSession(t, cc, path, withTimeout(patienceMillis))
	var ends []*rawStream
	for range 4 { // 12 MiB of messages that are not whole
		var paced atomic.Pointer[chan struct{}]
		slow := dialRaw(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return slowConn{nc, &paced}, err
		}))
		s := newSession(t, slow, path, withTimeout(patienceMillis))
		pace := make(chan struct{}, 3<<20/(4<<10))
		for range cap(pace) {
			pace <- struct{}{}
		}
		t.Cleanup(func() { close(pace) })
		paced.Store(&pace)
		go s.create(1, "sem", 1, strings.Repeat("x", 60<<20))
		ends = append(ends, s)
	}
	await.True(t, "a connection to close", func() bool { return metric(t, g, "streams_shed_total") > 0 })
	honest.acquire(1, "lock", 1, 0, "", true)
	honest.expect("1 acquired=true")
	ended := 0
	for _, s := range ends {
		select {
		case <-s.ended:
			ended++
		case <-s.got:
			t.Error("a message that is not whole was answered")
		default:
		}
	}
	t.Logf("%d of %d connections were closed", ended, len(ends))
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

// TestLongDescription: a description above 60 MiB is refused, and one below it arrives whole.
func TestLongDescription(t *testing.T) {
	form.SkipUntil(t, form.Long, "63 MiB of data are written")
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

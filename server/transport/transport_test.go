package transport

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet starts a pool of workers when it is imported, and never ends it.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// wait bounds what a test waits for; it is reached by failures only.
const wait = 60 * time.Second

// stubClient takes any frame for a hello, and answers each with a pong. All but the first count as
// pings.
type stubClient struct {
	*Conn
	keepsAlive bool
}

func (c *stubClient) Frame(_ Cycle, h protocol.Header) {
	if c.Established() {
		c.CountPing()
	}
	c.Establish()
	c.Append(protocol.KindPong, h.ID, 0, nil)
}

func (c *stubClient) KeepsAlive() bool     { return c.keepsAlive }
func (c *stubClient) Room()                {}
func (c *stubClient) Closed(time.Duration) {}

// stubCycle gathers nothing.
type stubCycle struct{}

func (stubCycle) Begin(time.Duration) {}
func (stubCycle) End(Client) int      { return 0 }
func (stubCycle) Reset()              {}

// manualClock moves when told to.
type manualClock struct{ ns atomic.Int64 }

func (c *manualClock) Now() time.Duration { return time.Duration(c.ns.Load()) }

func (c *manualClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// start lets clients in without TLS, by a clock that the test moves.
func start(t *testing.T, change func(*Config)) (*Transport, *manualClock) {
	t.Helper()
	lc := ListenConfig()
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	clock := new(manualClock)
	clock.advance(time.Hour)
	cfg := Config{
		Plain: l, Clock: clock, ManualClock: true, Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
		Limits: Limits{
			Connections: 100, MaxFrame: protocol.MaxFrameLen, InTotal: 256 << 20, OutSoft: 1 << 20, OutHard: 4 << 20, OutTotal: 64 << 20,
			OutAge: time.Hour, Hello: time.Hour, Frame: time.Hour, Idle: time.Hour,
		},
		NewClient: func(c *Conn) Client { return &stubClient{Conn: c} },
		NewCycle:  func() Cycle { return stubCycle{} },
		OnSweep:   func() {},
		OnPanic:   func(where string, what any) { t.Errorf("%s: %v", where, what) },
		Fail:      func(err error) { t.Error(err) },
	}
	if change != nil {
		change(&cfg)
	}
	x := New(cfg)
	t.Cleanup(x.Close)
	if err := x.Open(); err != nil {
		t.Fatal(err)
	}
	return x, clock
}

// dial connects, and sends pings.
func dial(t *testing.T, x *Transport, pings int) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", x.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(wait))
	ping(t, nc, pings)
	return nc
}

func ping(t *testing.T, nc net.Conn, n int) {
	t.Helper()
	var b []byte
	for i := range n {
		b = protocol.AppendFrame(b, protocol.KindPing, uint64(i), 0, nil)
	}
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

// pong reads one frame.
func pong(t *testing.T, nc net.Conn) protocol.Header {
	t.Helper()
	b := make([]byte, 4)
	if _, err := io.ReadFull(nc, b); err != nil {
		t.Fatal(err)
	}
	b = append(b, make([]byte, b[3])...) // all that the tests expect is short
	if _, err := io.ReadFull(nc, b[4:]); err != nil {
		t.Fatal(err)
	}
	frame, _, err := protocol.SplitFrame(b, protocol.MaxFrameLen)
	if err != nil {
		t.Fatal(err)
	}
	h, err := protocol.ParseFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pipe opens a connection that the test reads into.
func pipe(t *testing.T, x *Transport) *Pipe {
	t.Helper()
	p := x.NewPipe("127.0.0.1:1")
	if p == nil {
		t.Fatal("no room")
	}
	return p
}

// TestConnectionsPerAddress: one address, or one network of IPv6, gets no more than its share, and
// has it again when a connection closes.
func TestConnectionsPerAddress(t *testing.T) {
	x, _ := start(t, func(c *Config) { c.Limits.ConnectionsPerAddress = 2 })
	a, b := dial(t, x, 1), dial(t, x, 1)
	pong(t, a)
	pong(t, b)
	var g protocol.Goodbye
	if h := pong(t, dial(t, x, 0)); h.Kind != protocol.KindGoodbye || protocol.DecodeBody(&g, h.Body) != nil ||
		g.Status != protocol.StatusOverloaded || !strings.Contains(g.Message, "2 connections from this address") {
		t.Fatalf("the third was told %+v", g)
	}
	_ = a.Close()
	await.True(t, "a place to be free", func() bool { return !x.addresses.full("127.0.0.1:1") })
	pong(t, dial(t, x, 1))

	for i, remote := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:1::1]:1"} {
		if x.addresses.full(remote) || !x.addresses.acquire(remote) {
			t.Errorf("connection %d from two IPv6 networks has no place", i)
		}
	}
	if third := "[2001:db8::3]:1"; !x.addresses.full(third) || x.addresses.acquire(third) {
		t.Error("one IPv6 network has three connections")
	}
}

// TestSurplusOfAFlood: clients that come while a loop is busy are on their way to it together. As
// many are let in as the limit allows, and each other one is told why it is not.
func TestSurplusOfAFlood(t *testing.T) {
	const limit, surplus = 4, 12
	free := make(chan struct{})
	x, _ := start(t, func(c *Config) {
		c.Limits.Connections = limit
		newClient := c.NewClient
		c.NewClient = func(c *Conn) Client {
			<-free
			return newClient(c)
		}
	})
	turnedAway := make(chan error, limit+surplus)
	for range limit + surplus {
		nc := dial(t, x, 0)
		go func() {
			b := make([]byte, protocol.MaxHelloLen)
			n, err := io.ReadAtLeast(nc, b, 4)
			if err == nil && !strings.Contains(string(b[:n]), "its limit of connections") {
				err = fmt.Errorf("told %q", b[:n])
			}
			turnedAway <- err
		}()
	}
	close(free)
	for range surplus {
		if err := <-turnedAway; err != nil {
			t.Errorf("turned away: %v", err)
		}
	}
	if n := x.Connections(); n != limit {
		t.Errorf("%d connections are open, want %d", n, limit)
	}
}

// TestLoopsShareClients: clients that come together are spread evenly over the loops, also while
// these are busy.
func TestLoopsShareClients(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const loops, each = 3, 2
	free := make(chan struct{})
	x, _ := start(t, func(c *Config) {
		newClient := c.NewClient
		c.NewClient = func(c *Conn) Client {
			<-free
			return newClient(c)
		}
	})
	var clients []net.Conn
	for range loops * each {
		clients = append(clients, dial(t, x, 1))
	}
	close(free)
	for _, nc := range clients {
		pong(t, nc)
	}
	counts := make(map[*eventLoop]int)
	x.Each(func(c *Conn) { counts[c.socket.(*gnetSocket).loop]++ })
	for _, n := range counts {
		if n != each {
			t.Errorf("a loop has %d connections, want %d", n, each)
		}
	}
}

// TestClosedBeforeOpened: a connection that was too many gives nothing back.
func TestClosedBeforeOpened(t *testing.T) {
	x, _ := start(t, func(c *Config) { c.Limits.ConnectionsPerAddress = 1 })
	pipe(t, x)
	var p Pipe
	if p.open(x, &p, "127.0.0.1:2") {
		t.Fatal("one too many was let in")
	}
	p.closed()
	if p.open(x, &p, "127.0.0.1:3") {
		t.Fatal("one too many was let in afterwards")
	}
}

// TestRoom: a client is told once when there is room again, and not before.
func TestRoom(t *testing.T) {
	var client *roomClient
	x, _ := start(t, func(c *Config) {
		c.NewClient = func(c *Conn) Client {
			client = &roomClient{stubClient: stubClient{Conn: c}}
			return client
		}
	})
	p := pipe(t, x)
	p.AwaitRoom()
	if client.calls != 1 {
		t.Fatalf("told %d times with nothing waiting", client.calls)
	}
	p.AppendShared(make([]byte, 600<<10), true)
	p.AwaitRoom()
	if client.calls != 1 || p.HasRoom() {
		t.Fatalf("told %d times with more than half of the soft bound waiting", client.calls)
	}
	p.AppendWritten(nil)
	p.checkRoom()
	p.checkRoom()
	if client.calls != 2 {
		t.Fatalf("told %d times, want 2", client.calls)
	}
}

type roomClient struct {
	stubClient
	calls int
}

func (c *roomClient) Room() { c.calls++ }

func TestConnTable(t *testing.T) {
	var table connTable
	seen := map[uint64]bool{}
	var open []*Conn
	for i := range 3 * chunkSize {
		c := new(Conn)
		if !table.add(c, 2*chunkSize) {
			if len(open) != 2*chunkSize {
				t.Fatalf("full with %d", len(open))
			}
			gone := open[i%len(open)]
			table.remove(gone)
			table.remove(gone)
			if table.get(gone.id) != nil {
				t.Fatal("a removed connection is found")
			}
			open[i%len(open)] = c
			if !table.add(c, 2*chunkSize) {
				t.Fatal("no room after a removal")
			}
		} else {
			open = append(open, c)
		}
		if seen[c.id] || c.id == 0 {
			t.Fatalf("id %d was used before", c.id)
		}
		seen[c.id] = true
	}
	n := 0
	table.each(func(*Conn) { n++ })
	if n != 2*chunkSize || table.get(0) != nil || table.get(^uint64(0)) != nil {
		t.Fatalf("%d connections", n)
	}
	for _, c := range open {
		if table.get(c.id) != c {
			t.Fatal("an open connection is not found")
		}
	}
}

// TestFramesDoNotAllocate: a frame on its way in and its answer on the way out cost no allocation
// in steady state.
func TestFramesDoNotAllocate(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	x, _ := start(t, nil)
	p := pipe(t, x)
	frame := protocol.AppendFrame(nil, protocol.KindPing, 1, 0, nil)
	buf := make([]byte, 0, 1<<10)
	if n := testing.AllocsPerRun(200, func() {
		if used := p.Read(frame); used != len(frame) {
			t.Fatalf("used %d of %d bytes", used, len(frame))
		}
		if buf = p.AppendWritten(buf[:0]); len(buf) == 0 {
			t.Fatal("no answer")
		}
	}); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
}

package session

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestMain(m *testing.M) {
	// The event loop's package keeps a pool of workers for the life of the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// transportClient is what stands above a connection here: it hands the connection to the test at its
// first frame.
type transportClient struct {
	c     *transport.Conn
	conns chan<- *transport.Conn
}

func (c transportClient) Frame(transport.Cycle, protocol.Header) { c.conns <- c.c }
func (transportClient) KeepsAlive() bool                         { return true }
func (transportClient) Room()                                    {}
func (transportClient) Closed(time.Duration)                     {}
func (transportClient) Begin(time.Duration)                      {}
func (transportClient) End(transport.Client) int                 { return 0 }
func (transportClient) Reset()                                   {}

type stoppedClock struct{}

func (stoppedClock) Now() time.Duration { return time.Hour }

// instance is the connections of an instance, on real sockets, and a log of the calls about them.
type instance struct {
	t     *testing.T
	x     *transport.Transport
	table *Table
	conns chan *transport.Conn

	mu    sync.Mutex
	calls []string
}

func newInstance(t *testing.T) *instance {
	t.Helper()
	lc := transport.ListenConfig()
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &instance{t: t, table: new(Table), conns: make(chan *transport.Conn, 1)}
	n.x = transport.New(transport.Config{
		Plain: l, Clock: stoppedClock{}, ManualClock: true, Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
		Limits: transport.Limits{
			Connections: 10, MaxFrame: protocol.MaxFrameLen, InTotal: 1 << 20, OutSoft: 1 << 20, OutHard: 1 << 20, OutTotal: 1 << 20,
			OutAge: time.Hour, Hello: time.Hour, Frame: time.Hour, Idle: time.Hour,
		},
		NewClient: func(c *transport.Conn) transport.Client { return transportClient{c, n.conns} },
		NewCycle:  func() transport.Cycle { return transportClient{} },
		OnSweep:   func() {},
		OnPanic:   func(where string, what any) { t.Errorf("%s: %v", where, what) },
		Fail:      func(err error) { t.Error(err) },
	})
	t.Cleanup(n.x.Close)
	if err := n.x.Open(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *instance) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf(format, args...))
}

// did are the calls since the last look.
func (n *instance) did() (calls []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls, n.calls = n.calls, nil
	return calls
}

// client is a connection from both ends.
type client struct {
	*Conn
	n      *instance
	socket net.Conn
}

func (n *instance) dial() *client {
	n.t.Helper()
	socket, err := net.Dial("tcp", n.x.Addr())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = socket.Close() })
	if _, err := socket.Write(protocol.AppendFrame(nil, protocol.KindPing, 1, 0, nil)); err != nil {
		n.t.Fatal(err)
	}
	return &client{&Conn{Conn: <-n.conns, Table: n.table}, n, socket}
}

// frames are those that the client has got, up to now.
func (c *client) frames() (lines []string) {
	c.n.t.Helper()
	c.Append(protocol.KindPong, 0, 0, nil)
	c.n.x.Flush()
	var have []byte
	for {
		frame, size, err := protocol.SplitFrame(have, protocol.MaxFrameLen)
		if err != nil {
			c.n.t.Fatal(err)
		}
		if size == 0 {
			b := make([]byte, 4096)
			k, err := c.socket.Read(b)
			if err != nil && (err != io.EOF || k == 0) {
				c.n.t.Fatal(err)
			}
			have = append(have, b[:k]...)
			continue
		}
		have = have[size:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			c.n.t.Fatal(err)
		}
		switch h.Kind {
		case protocol.KindPong:
			return lines
		case protocol.KindTakenOver:
			var m protocol.TakenOver
			_ = protocol.DecodeBody(&m, h.Body)
			lines = append(lines, fmt.Sprintf("session %d is taken over in epoch %d", m.Session, m.Epoch))
		case protocol.KindDetached:
			var m protocol.Detached
			_ = protocol.DecodeBody(&m, h.Body)
			lines = append(lines, fmt.Sprintf("session %d of epoch %d is detached by shard %d", m.Session, m.Epoch, h.Arg))
		default:
			lines = append(lines, fmt.Sprintf("kind %d", h.Kind))
		}
	}
}

// notingHome and notingWatches note their calls.
type notingHome struct {
	n  *instance
	id uint64
}

func (h *notingHome) ID() uint64                 { return h.id }
func (h *notingHome) RenewLeases(_, ping uint64) { h.n.note("shard %d renews for ping %d", h.id, ping) }
func (h *notingHome) RenewLeasesAfterStep(_, ping uint64) {
	h.n.note("shard %d renews later for ping %d", h.id, ping)
}
func (h *notingHome) ConnClosed(_ uint64, heard time.Duration, _ protocol.Link) {
	h.n.note("shard %d: closed, last heard at %v", h.id, heard)
}

type notingWatches struct{ n *instance }

func (w *notingWatches) ConnClosed(uint64)      { w.n.note("watches: closed") }
func (w *notingWatches) SessionEnded(id uint64) { w.n.note("watches: session %d has ended", id) }
func (w *notingWatches) SessionUnbound(_, id uint64, notify bool) {
	w.n.note("watches: session %d is unbound, notify %v", id, notify)
}

func (n *instance) expect(what string, got []string, want ...string) {
	n.t.Helper()
	if !slices.Equal(got, want) {
		n.t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTakenOver: a newer attach takes the session from other connections, which are told, and its
// one-shot watches end there.
func TestTakenOver(t *testing.T) {
	n := newInstance(t)
	home := &notingHome{n, 3}
	a, b := n.dial(), n.dial()
	if !a.Watch(&notingWatches{n}) || !a.NewBinding(7, 1, 0, home, "").Bind(time.Minute) || !a.Has(7) || !a.HasSessions() {
		t.Fatal("not bound")
	}
	if !b.NewBinding(7, 2, 0, home, "").Bind(time.Minute) || a.Has(7) || a.HasSessions() || !b.Has(7) || n.table.Conn(7) != b.Conn {
		t.Error("not taken over")
	}
	n.expect("the older connection gets", a.frames(), "session 7 is taken over in epoch 2")
	n.expect("the newer connection gets", b.frames())
	n.expect("calls", n.did(), "watches: session 7 is unbound, notify true")
	if err := a.UnboundError(7); err.Status != protocol.StatusBadSession {
		t.Errorf("on the older connection: %v", err)
	}
	n.table.Elsewhere(7, 2, &notingHome{n, 4})
	n.expect("the same attach again, through another instance", b.frames(), "session 7 is taken over in epoch 2")
	if !b.NewBinding(7, 3, 0, home, "").Bind(time.Minute) {
		t.Error("not bound again")
	}
	n.table.Elsewhere(7, 4, home)
	n.expect("taken over through another instance", b.frames(), "session 7 is taken over in epoch 4")
	if b.Has(7) || n.table.Len() != 0 {
		t.Error("still bound")
	}
}

// TestSessionEnds: the end takes all bindings, and late requests and results learn of it.
func TestSessionEnds(t *testing.T) {
	n := newInstance(t)
	home := &notingHome{n, 3}
	a, b := n.dial(), n.dial()
	a.Watch(&notingWatches{n})
	for id := uint64(1); id <= 2; id++ {
		a.NewBinding(id, 1, 0, home, "").Bind(time.Minute)
		b.NewBinding(id, 1, 0, nil, "").Bind(time.Minute)
	}
	if n.table.Len() != 2 {
		t.Errorf("%d sessions are bound, want 2", n.table.Len())
	}
	if list := n.table.End(1, "it was killed", time.Hour); len(list) != 2 || a.Has(1) || b.Has(1) || !a.Has(2) || n.table.Conn(1) != nil {
		t.Error("an end leaves a binding, or takes another session's")
	}
	n.expect("calls", n.did(), "watches: session 1 has ended")
	for _, c := range []*client{a, b} {
		if err := c.UnboundError(1); err.Status != protocol.StatusSessionExpired {
			t.Errorf("after the end: %v", err)
		}
		if err := c.UnboundError(2); err.Status != protocol.StatusBadSession {
			t.Errorf("of another session: %v", err)
		}
	}
	if conn, reason := n.table.Ended(1); conn != b.ID() || reason != "it was killed" {
		t.Errorf("remembered: connection %d, %q", conn, reason)
	}
	n.table.End(9, "it was bound nowhere", time.Hour)
	if conn, _ := n.table.Ended(9); conn != 0 {
		t.Errorf("connection %d of a session that had none", conn)
	}
	n.table.End(2, "later", time.Hour+endedTTL)
	if conn, _ := n.table.Ended(1); conn == 0 {
		t.Error("forgotten after a minute, want more")
	}
	a.NewBinding(3, 1, 0, home, "").Bind(time.Minute)
	n.table.End(3, "later still", time.Hour+endedTTL+1)
	if conn, _ := n.table.Ended(1); conn != 0 || len(n.table.ended.ends) != 2 || len(n.table.ended.queue) != 2 {
		t.Errorf("connection %d; %d ends are kept, want 2", conn, len(n.table.ended.ends))
	}
	for id := uint64(100); id < 100+maxEndedHere; id++ {
		a.NewBinding(id, 1, 0, home, "").Bind(time.Minute)
		a.Unbind(id, true)
	}
	a.Unbind(999, true) // never bound here
	if conn := n.table.Conn(100); conn != nil {
		t.Error("a session that was taken off is in the table")
	}
	if a.UnboundError(100).Status != protocol.StatusSessionExpired || a.UnboundError(3).Status != protocol.StatusBadSession ||
		a.UnboundError(999).Status != protocol.StatusBadSession || len(a.ended) != maxEndedHere {
		t.Errorf("it remembers %d sessions that ended, and not the last", len(a.ended))
	}
}

// TestDetach: the sessions at home in some buckets of a shard are taken off, in order.
func TestDetach(t *testing.T) {
	n := newInstance(t)
	home, other := &notingHome{n, 3}, &notingHome{n, 4}
	a := n.dial()
	a.Detach(home, 0, 9) // it has no session
	id := func(bucket uint16, counter uint64) uint64 { return protocol.MakeSessionID(0, bucket, counter) }
	for _, s := range []uint64{id(3, 2), id(2, 5), id(2, 4), id(1, 1), id(4, 1)} {
		a.NewBinding(s, 6, 0, home, "").Bind(time.Minute)
	}
	a.NewBinding(id(2, 9), 6, 0, other, "").Bind(time.Minute)
	a.NewBinding(id(3, 9), 6, 0, nil, "").Bind(time.Minute)
	a.Watch(&notingWatches{n})
	a.Detach(home, 2, 2)
	line := func(s uint64) string { return fmt.Sprintf("session %d of epoch 6 is detached by shard 3", s) }
	n.expect("the connection gets", a.frames(), line(id(2, 4)), line(id(2, 5)), line(id(3, 2)))
	if a.bindings.len() != 4 || n.table.Len() != 4 || len(n.did()) != 3 {
		t.Errorf("%d sessions are left on the connection, %d in the table; want 4", a.bindings.len(), n.table.Len())
	}
}

// TestConnClosed: a closed connection has no session and gets none, and its homes and watches learn
// of its end once.
func TestConnClosed(t *testing.T) {
	n := newInstance(t)
	home, unused := &notingHome{n, 3}, &notingHome{n, 4}
	a, b, w := n.dial(), n.dial(), &notingWatches{n}
	if a.HasHomes() || !a.Watch(w) || !a.Watch(w) {
		t.Error("a new connection has homes, or cannot watch")
	}
	a.NewBinding(1, 1, 0, home, "").Bind(time.Minute)
	a.NewBinding(2, 1, 0, home, "").Bind(time.Minute)
	late := a.NewBinding(3, 1, 0, unused, "")
	b.NewBinding(2, 1, 0, nil, "").Bind(time.Minute)
	if a.Binding(1).Session != 1 || a.Binding(2).Session != 2 || a.Binding(3) != nil {
		t.Error("a session has another's binding")
	}
	if !a.HasHome(home) || a.HasHome(unused) || !a.HasHomes() || a.CheckLimit(3, 3) != nil || a.CheckLimit(2, 2) != nil || a.CheckLimit(3, 2) == nil {
		t.Error("homes, or the limit of two sessions, are wrong")
	}
	a.Closed(5 * time.Second)
	n.expect("calls", n.did(), "shard 3: closed, last heard at 5s", "watches: closed")
	if a.HasSessions() || a.HasHomes() || a.Binding(1) != nil || n.table.Conn(1) != nil || n.table.Conn(2) != b.Conn {
		t.Error("a closed connection has a session")
	}
	if late.Bind(time.Minute) || n.table.Conn(3) != nil || a.Watch(w) {
		t.Error("a closed connection is bound, or watches")
	}
	n.expect("calls", n.did())
}

// TestTableOfThree: what is taken out of a list of bindings leaves the others, in their order.
func TestTableOfThree(t *testing.T) {
	conns := []*Conn{new(Conn), new(Conn), new(Conn)}
	for gone := range conns {
		table := new(Table)
		bindings := make([]*Binding, len(conns))
		for i, c := range conns {
			bindings[i] = &Binding{Session: 7, Epoch: 1, shared: &shared{Conn: c}}
			table.insert(bindings[i])
		}
		table.remove(bindings[gone])
		table.remove(bindings[gone])
		for i := len(conns) - 1; i >= 0; i-- {
			if i == gone {
				continue
			}
			if table.Conn(7) != conns[i] || bindings[i].removed.Load() {
				t.Errorf("without binding %d: binding %d is not the next", gone, i)
			}
			table.remove(bindings[i])
		}
		if table.Conn(7) != nil || table.Len() != 0 || !bindings[gone].removed.Load() {
			t.Errorf("without binding %d: something is left", gone)
		}
	}
	table := new(Table)
	home := new(stubHome)
	var list []*Binding
	for i, c := range conns {
		b := &Binding{Session: 7, Epoch: 1, shared: &shared{Conn: c}}
		if i == 1 {
			b.shared.home = home // an attach of the epoch, which the same attach elsewhere replaces
		}
		list = append(list, b)
		table.insert(b)
	}
	older := table.removeOlder(&Binding{Session: 7, Epoch: 1, shared: &shared{home: home}})
	if len(older) != 1 || older[0] != list[1] || table.Conn(7) != conns[2] || !list[1].removed.Load() {
		t.Fatalf("%d are replaced, want that in the middle", len(older))
	}
	if table.remove(list[2]); table.Conn(7) != conns[0] {
		t.Error("that before it is lost")
	}
	newest := &Binding{Session: 7, Epoch: 2, shared: &shared{Conn: conns[1], home: home}}
	table.insert(newest)
	late := &Binding{Session: 7, Epoch: 3, shared: &shared{Conn: conns[2]}}
	table.insert(late)
	if older := table.removeOlder(&Binding{Session: 7, Epoch: 4, shared: &shared{home: home}}); len(older) == 0 || table.Conn(7) != nil {
		t.Errorf("%d are older than an attach elsewhere, and one is left", len(older))
	}
}

// TestBindingsShareLittle: bindings of one connection keep their own nodes, homes and descriptions.
func TestBindingsShareLittle(t *testing.T) {
	c := &Conn{Table: new(Table)}
	one, two := &stubHome{id: 1}, &stubHome{id: 2}
	var list []*Binding
	check := func(b *Binding, node uint64, home Home, description string) {
		t.Helper()
		if b.Node != node || b.home != home || b.description != description || b.ByTicket() != (home == nil) {
			t.Errorf("%+v, want node %d, %v, %q", *b.shared, node, home, description)
		}
	}
	for range 3 { // more than it shares
		for node := uint64(1); node <= maxShared; node++ {
			list = append(list, c.NewBinding(1, 1, node, one, "a"), c.NewBinding(2, 1, node, two, "a"),
				c.NewBinding(3, 1, node, one, "b"), c.NewBinding(4, 1, node, nil, "b"))
		}
	}
	for i := 0; i < len(list); i += 4 {
		node := uint64(i/4%maxShared + 1)
		check(list[i], node, one, "a")
		check(list[i+1], node, two, "a")
		check(list[i+2], node, one, "b")
		check(list[i+3], node, nil, "b")
	}
	if len(c.shared) > maxShared {
		t.Errorf("%d are remembered, more than %d", len(c.shared), maxShared)
	}
}

// TestNewerTicket: a ticket of a newer epoch takes the place of an older attach.
func TestNewerTicket(t *testing.T) {
	c := &Conn{Table: new(Table)}
	home := new(stubHome)
	attached, newer := c.NewBinding(7, 1, 0, home, ""), c.NewBinding(7, 2, 0, nil, "")
	c.add(attached)
	c.Table.insert(attached)
	if added, _ := c.add(newer); !added || c.Binding(7) != newer || c.HasHome(home) {
		t.Error("the connection keeps the older attach")
	}
	if c.Table.insert(newer); c.Table.NewestEpoch(7) != 2 || !attached.removed.Load() {
		t.Error("the table keeps the older attach")
	}
}

// TestLoggedAttachIsRenewed: once the log has a relaxed attach, its home is asked for each ping.
func TestLoggedAttachIsRenewed(t *testing.T) {
	home := new(stubHome)
	c := &Conn{Conn: new(transport.Conn), Table: new(Table)}
	b := c.NewBinding(1, 1, 0, home, "")
	b.Unlogged = true
	c.add(b)
	c.requestPongs(10)
	b.Logged()
	c.requestPongs(11)
	if !slices.Equal(home.asked, []uint64{10, 11}) || home.late != 1 || !c.HasHome(home) || b.Unlogged {
		t.Errorf("asked for %v, %d of them late", home.asked, home.late)
	}
}

// TestRenewals: pings that come together are answered at the end of a window, by the homes of each
// connection, and connections without a home are written all the same.
func TestRenewals(t *testing.T) {
	n := newInstance(t)
	v := NewRenewals()
	ctx, cancel := context.WithCancel(t.Context())
	flushes := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		v.Run(ctx, func() {
			select {
			case flushes <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	defer running.Wait()
	defer cancel()
	home, former := &notingHome{n, 3}, &notingHome{n, 4}
	a, b := n.dial(), n.dial()
	a.NewBinding(1, 1, 0, home, "").Bind(time.Minute)
	a.NewBinding(2, 1, 0, former, "").Bind(time.Minute)
	a.Unbind(2, false)
	for window := range uint64(3) {
		v.Add(a.Conn, 10+window)
		v.AddDeferred(b.Conn)
		<-flushes // of the pings
		n.expect("a window", n.did(), fmt.Sprintf("shard 3 renews for ping %d", 10+window))
		<-flushes // of what waited for the homes
		n.expect("the next window", n.did())
	}
}

// TestTicketsThatAreNone: a ticket that was cut, lengthened or changed is refused.
func TestTicketsThatAreNone(t *testing.T) {
	var mac Signer
	key := testKey(1)
	ticket := mac.Append(nil, &key, 7, 8, 9, "me")
	taken := func(b []byte) bool {
		_, err := new(Signer).Verify(b, &key, &key, "me")
		return err == nil
	}
	if !taken(ticket) {
		t.Fatal("the ticket is refused")
	}
	for n := range ticket {
		if taken(ticket[:n]) {
			t.Errorf("%d bytes of %d are a ticket", n, len(ticket))
		}
		for bit := range 8 {
			changed := slices.Clone(ticket)
			changed[n] ^= 1 << bit
			if taken(changed) {
				t.Errorf("a ticket with bit %d of byte %d flipped is one", bit, n)
			}
		}
	}
	if taken(append(slices.Clone(ticket), 0)) {
		t.Error("a ticket with a byte more is one")
	}
	// A signer is used again, also for another key.
	two := testKey(2)
	if other := mac.Append(nil, &two, 7, 8, 9, "me"); taken(other) {
		t.Error("another key's ticket is taken")
	}
	mac.Append(nil, &key, 7, 8, 9, "me")
	if again := mac.Append(nil, &key, 7, 8, 9, "me"); !slices.Equal(again, ticket) {
		t.Error("the same ticket is another when it is signed again")
	}
}

func testKey(id uint64) meta.Key { return meta.Key{ID: id, Secret: [32]byte{byte(id)}} }

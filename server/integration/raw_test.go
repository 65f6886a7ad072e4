package integration

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// wait bounds what a test waits for; it is reached by failures only.
const wait = 60 * time.Second

// start starts a server in memory on free ports, with two shards and few buckets.
func start(t testing.TB, change func(*server.Config)) *instance {
	t.Helper()
	cfg := server.Config{
		Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", Admin: server.Off, Shards: 2, Buckets: 16, Memory: true, RTT: 5 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	}
	if isOverTLS(t) {
		cfg.TLSListen, cfg.TLS = "127.0.0.1:0", overTLS.files
	}
	if change != nil {
		change(&cfg)
	}
	if cfg.Clock == nil {
		// A test's client may be slow only because the machine is busy. What is about these limits
		// moves the clock itself.
		l := &cfg.Limits
		for _, d := range []*time.Duration{&l.HelloTimeout, &l.FrameTimeout, &l.IdleTimeout, &l.OutAge} {
			*d = cmp.Or(*d, time.Hour)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	s, err := startServer(ctx, cfg)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// raw is a client that does what it is told and nothing more.
type raw struct {
	t      testing.TB
	s      *instance
	nc     net.Conn
	buf    []byte
	nextID uint64
	seq    uint64
	chunk  []byte
	later  []protocol.Header // frames read while looking for another
}

func dial(t testing.TB, s *instance) *raw {
	t.Helper()
	address := s.Addr()
	if isOverTLS(t) {
		address = s.TLSAddr()
	}
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if isOverTLS(t) {
		_ = nc.SetDeadline(time.Now().Add(wait))
		c := tls.Client(nc, overTLS.client)
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		nc = c
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &raw{t: t, s: s, nc: nc}
}

// overTLS is what the tests in TestOverTLS use.
var overTLS *tlsKit

// isOverTLS reports whether start listens for TLS too in this test, and dial uses it.
func isOverTLS(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestOverTLS/") }

type tlsKit struct {
	files  certs.Files
	client *tls.Config
}

func newTLSKit(t testing.TB) *tlsKit {
	dir, ca := t.TempDir(), certstest.New(t)
	cert, key := ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	return &tlsKit{files: certs.Files{Cert: cert, Key: key}, client: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
}

// socketOf is the TCP connection beneath.
func socketOf(nc net.Conn) *net.TCPConn {
	if c, ok := nc.(*tls.Conn); ok {
		nc = c.NetConn()
	}
	return nc.(*net.TCPConn)
}

// connect dials and says hello.
func connect(t testing.TB, s *instance) *raw {
	t.Helper()
	c := dial(t, s)
	var reply protocol.HelloReply
	c.must(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "raw"}, &reply)
	if reply.Window == 0 || reply.MaxFrame == 0 || reply.Cluster == "" || reply.Identity != "anonymous" {
		t.Fatalf("hello was answered %+v", reply)
	}
	return c
}

func (c *raw) write(b []byte) {
	c.t.Helper()
	if err := c.writeErr(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *raw) writeErr(b []byte) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(wait))
	_, err := c.nc.Write(b)
	return err
}

func (c *raw) send(kind protocol.Kind, bucket uint64, m protocol.Message) (id uint64) {
	c.t.Helper()
	c.nextID++
	c.write(protocol.AppendFrame(nil, kind, c.nextID, bucket, m))
	return c.nextID
}

// next reads one frame.
func (c *raw) next() (protocol.Header, error) {
	for {
		frame, n, err := protocol.SplitFrame(c.buf, 64<<20)
		if err != nil {
			return protocol.Header{}, err
		}
		if n > 0 {
			h, err := protocol.ParseFrame(append([]byte(nil), frame...))
			c.buf = c.buf[n:]
			return h, err
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(wait))
		if c.chunk == nil {
			c.chunk = make([]byte, 64<<10)
		}
		n, err = c.nc.Read(c.chunk)
		c.buf = append(c.buf, c.chunk[:n]...)
		if n == 0 && err != nil {
			return protocol.Header{}, err
		}
	}
}

// find reads until a frame fits, and keeps the others for later.
func (c *raw) find(what string, fits func(protocol.Header) bool) protocol.Header {
	c.t.Helper()
	for i, h := range c.later {
		if fits(h) {
			c.later = append(c.later[:i], c.later[i+1:]...)
			return h
		}
	}
	for {
		h, err := c.next()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		if fits(h) {
			return h
		}
		c.later = append(c.later, h)
	}
}

// reply waits for the reply to a request.
func (c *raw) reply(kind protocol.Kind, id uint64, out protocol.Message) error {
	c.t.Helper()
	h := c.find(fmt.Sprintf("the reply to %v", kind), func(h protocol.Header) bool {
		return h.Kind == kind|protocol.KindReply && h.ID == id
	})
	if st := protocol.Status(h.Arg); st != protocol.StatusOK {
		var f protocol.Failure
		if err := protocol.DecodeBody(&f, h.Body); err != nil {
			c.t.Fatal(err)
		}
		return &protocol.Error{
			Status: st, Refusal: f.Refusal, Message: f.Message, Master: f.Master, Term: f.Term, Shard: f.Shard,
			MapVersion: f.MapVersion,
		}
	}
	if out != nil {
		if err := protocol.DecodeBody(out, h.Body); err != nil {
			c.t.Fatalf("reply to %v: %v", kind, err)
		}
	}
	return nil
}

func (c *raw) call(kind protocol.Kind, bucket uint64, m, out protocol.Message) error {
	c.t.Helper()
	return c.reply(kind, c.send(kind, bucket, m), out)
}

func (c *raw) must(kind protocol.Kind, bucket uint64, m, out protocol.Message) {
	c.t.Helper()
	if err := c.call(kind, bucket, m, out); err != nil {
		c.t.Fatalf("%v: %v", kind, err)
	}
}

// fails calls and wants this status.
func (c *raw) fails(want protocol.Status, kind protocol.Kind, bucket uint64, m protocol.Message) {
	c.t.Helper()
	if err := c.call(kind, bucket, m, nil); !errors.Is(err, want) {
		c.t.Fatalf("%v: got %v, want %v", kind, err, want)
	}
}

// event waits for an event of a kind.
func (c *raw) event(kind protocol.Kind, out protocol.Message) protocol.Header {
	c.t.Helper()
	h := c.find(kind.String(), func(h protocol.Header) bool { return h.Kind == kind })
	if out != nil {
		if err := protocol.DecodeBody(out, h.Body); err != nil {
			c.t.Fatal(err)
		}
	}
	return h
}

// closed waits for the server's end of the connection, and gives the last goodbye before it.
func (c *raw) closed() (g *protocol.Goodbye) {
	c.t.Helper()
	for {
		h, err := c.next()
		switch {
		case errors.Is(err, io.EOF), err != nil && !isTimeout(err):
			return g
		case err != nil:
			c.t.Fatalf("the server did not close: %v", err)
		case h.Kind == protocol.KindGoodbye:
			g = new(protocol.Goodbye)
			if err := protocol.DecodeBody(g, h.Body); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// ping proves that the connection is served.
func (c *raw) ping() {
	c.t.Helper()
	c.nextID++
	id := c.nextID
	c.write(protocol.AppendFrame(nil, protocol.KindPing, id, 0, nil))
	c.find("pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == id && h.Arg == 0 })
}

// node is the id of the default node.
func (c *raw) node() uint64 {
	c.t.Helper()
	return c.nodeInfo("/default").ID
}

func (c *raw) nodeInfo(path string) (info protocol.NodeInfo) {
	c.t.Helper()
	c.must(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: path}, &info)
	return info
}

func (c *raw) homeBucket(createID []byte) uint64 {
	return uint64(protocol.HomeBucket([protocol.KeyLen]byte(createID), c.s.Config.Buckets))
}

func (c *raw) bucket(node uint64, name string) uint64 {
	return uint64(protocol.Bucket(node, []byte(name), c.s.Config.Buckets))
}

// id16 makes 16 bytes that differ by n.
func id16(n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, n), ^n)
}

// session starts one; key and create id come from n.
func (c *raw) session(node, n uint64) (r protocol.SessionReply) {
	c.t.Helper()
	m := &protocol.SessionStart{Node: node, CreateID: id16(n), Key: id16(n), Timeout: c.timeout(), Description: "raw", Nonce: n + 1}
	c.must(protocol.KindSessionStart, c.homeBucket(m.CreateID), m, &r)
	return r
}

// attach attaches a session that session made with the same n.
func (c *raw) attach(node, n, session, epoch uint64) (r protocol.SessionReply, err error) {
	c.t.Helper()
	m := &protocol.SessionAttach{Session: session, Node: node, Epoch: epoch, Key: id16(n), Timeout: c.timeout(),
		Description: "raw", Nonce: n + 1}
	err = c.call(protocol.KindSessionAttach, uint64(protocol.SessionBucket(session)), m, &r)
	return r, err
}

// timeout is that of sessions: ten seconds by a clock that the test moves. By the machine's own it
// is more, because nothing renews these sessions, and a busy machine may take that long for a test.
func (c *raw) timeout() uint64 {
	if _, ok := c.s.Config.Clock.(*replica.ManualClock); ok {
		return 10_000
	}
	return 120_000
}

func (c *raw) head(session uint64) protocol.Head {
	c.seq++
	return protocol.Head{Session: session, Seq: c.seq, Low: c.seq}
}

// lock acquires an ephemeral semaphore whole.
func (c *raw) lock(node, session uint64, name string, timeout uint64) (r protocol.AcquireReply, err error) {
	c.t.Helper()
	m := &protocol.Acquire{Head: c.head(session), Name: []byte(name), Count: protocol.Forever, Timeout: timeout, Ephemeral: true}
	err = c.call(protocol.KindAcquire, c.bucket(node, name), m, &r)
	return r, err
}

func (c *raw) unlock(node, session uint64, name string) error {
	c.t.Helper()
	return c.call(protocol.KindRelease, c.bucket(node, name), &protocol.Release{Head: c.head(session), Name: []byte(name)}, nil)
}

func (c *raw) describe(node uint64, name string, consistency protocol.Consistency) (r protocol.DescribeReply, err error) {
	c.t.Helper()
	m := &protocol.Describe{Node: node, Name: []byte(name), Flags: protocol.WithOwners | protocol.WithWaiters, Consistency: consistency}
	err = c.call(protocol.KindDescribe, c.bucket(node, name), m, &r)
	return r, err
}

// manual gives a server a clock that moves when told to.
func manual(c *server.Config) *replica.ManualClock {
	clock := replica.NewManualClock(time.Unix(1_700_000_000, 0))
	c.Clock = clock
	return clock
}

// instance is a server under test, and what it is assembled of.
type instance struct {
	*server.Server
	server.Parts
}

func startServer(ctx context.Context, cfg server.Config) (*instance, error) {
	s, err := server.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &instance{s, s.Parts()}, nil
}

// shardIDs are the shards that have a replica here, in order.
func (i *instance) shardIDs() (ids []uint64) {
	for _, d := range i.Serving.Shards.All() {
		ids = append(ids, d.ID())
	}
	return ids
}

// shardAt is the shard here that owns a bucket, nil when there is none.
func (i *instance) shardAt(tier uint8, bucket uint64) *shardhost.Shard {
	d, _ := i.Requests.Routes().Shard(tier, bucket).(*shardhost.Shard)
	return d
}

// leads reports whether the instance serves a shard as its master.
func (i *instance) leads(shard uint64) bool {
	d := i.Serving.Shards.Get(shard)
	return d != nil && d.Replica().Leading()
}

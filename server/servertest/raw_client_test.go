package servertest_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// rawClient is a client that speaks frames, one request at a time, for tests that must not depend
// on the SDK's own recovery.
type rawClient struct {
	t      testing.TB
	c      net.Conn
	buf    []byte
	id     uint64
	events []protocol.Header
	tier   protocol.MapTier
	shards []protocol.MapShard
	node   uint64

	session, epoch, seq uint64
	key, create         []byte
}

// errBroken is what a request gets when the connection ends before its answer.
var errBroken = errors.New("connection ended")

// answerTime bounds every wait, in real time.
const answerTime = 20 * time.Second

func dial(t testing.TB, srv *servertest.Server) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r := &rawClient{t: t, c: c}
	var hello protocol.HelloReply
	r.must(r.ask(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "raw"}, &hello))
	var m protocol.MapReply
	r.must(r.ask(protocol.KindMap, 0, &protocol.MapRequest{}, &m))
	if len(m.Tiers) != 1 || len(m.Instances) != 1 || m.Instances[0].Address != srv.Addr() {
		t.Fatalf("map %+v; the instance's address should be %s", m, srv.Addr())
	}
	r.tier, r.shards = m.Tiers[0], m.Shards
	var info protocol.NodeInfo
	r.must(r.ask(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, &info))
	r.node = info.ID
	return r
}

func (r *rawClient) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// ask sends a request and waits for its reply; events that come first are kept.
func (r *rawClient) ask(kind protocol.Kind, bucket uint32, m, reply protocol.Message) error {
	r.send(kind, bucket, m)
	return r.answer(kind, r.id, reply)
}

func (r *rawClient) send(kind protocol.Kind, bucket uint32, m protocol.Message) {
	r.id++
	_, _ = r.c.Write(protocol.AppendFrame(nil, kind, r.id, uint64(bucket), m)) // a broken connection shows when reading
}

func (r *rawClient) answer(kind protocol.Kind, id uint64, reply protocol.Message) error {
	for {
		h, err := r.read()
		if err != nil {
			return err
		}
		if h.Kind != kind|protocol.KindReply || h.ID != id {
			r.events = append(r.events, h)
			continue
		}
		if st := protocol.Status(h.Arg); st != protocol.StatusOK {
			var f protocol.Failure
			_ = protocol.DecodeBody(&f, h.Body)
			return protocol.Errorf(st, "%s", f.Message)
		}
		if reply == nil {
			return nil
		}
		return protocol.DecodeBody(reply, h.Body)
	}
}

func (r *rawClient) read() (protocol.Header, error) {
	for {
		frame, n, err := protocol.SplitFrame(r.buf, protocol.MaxFrameLen)
		if err != nil {
			return protocol.Header{}, err
		}
		if n > 0 {
			h, err := protocol.ParseFrame(bytes.Clone(frame))
			r.buf = r.buf[n:]
			return h, err
		}
		_ = r.c.SetReadDeadline(time.Now().Add(answerTime))
		chunk := make([]byte, 32<<10)
		got, err := r.c.Read(chunk)
		r.buf = append(r.buf, chunk[:got]...)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			r.t.Fatalf("nothing came within %v", answerTime)
		}
		if err != nil && got == 0 {
			return protocol.Header{}, fmt.Errorf("%w: %w", errBroken, err)
		}
	}
}

// await reads until an event of this kind, and decodes it.
func (r *rawClient) await(kind protocol.Kind, m protocol.Message) error {
	for i, h := range r.events {
		if h.Kind == kind {
			r.events = append(r.events[:i:i], r.events[i+1:]...)
			return protocol.DecodeBody(m, h.Body)
		}
	}
	for {
		h, err := r.read()
		if err != nil {
			return err
		}
		if h.Kind == kind {
			return protocol.DecodeBody(m, h.Body)
		}
	}
}

// next is the next event, of those kept first.
func (r *rawClient) next() (protocol.Header, error) {
	if len(r.events) > 0 {
		h := r.events[0]
		r.events = r.events[1:]
		return h, nil
	}
	return r.read()
}

// awaitSessionEnd reads until the server or the network ends the connection.
func (r *rawClient) awaitSessionEnd() {
	r.t.Helper()
	for {
		if _, err := r.read(); err != nil {
			if !errors.Is(err, errBroken) {
				r.t.Fatal(err)
			}
			return
		}
	}
}

func (r *rawClient) start(timeout time.Duration) {
	r.t.Helper()
	r.create, r.key = make([]byte, protocol.KeyLen), make([]byte, protocol.KeyLen)
	_, _ = rand.Read(r.create)
	_, _ = rand.Read(r.key)
	home := protocol.HomeBucket([protocol.KeyLen]byte(r.create), r.tier.Buckets)
	var reply protocol.SessionReply
	r.must(r.ask(protocol.KindSessionStart, home, &protocol.SessionStart{
		Node: r.node, CreateID: r.create, Key: r.key, Timeout: uint64(timeout / time.Millisecond), Description: "raw", Nonce: 1,
	}, &reply))
	r.session, r.epoch = reply.Session, reply.Epoch
}

// attach takes over another raw client's session.
func (r *rawClient) attach(from *rawClient) error {
	var reply protocol.SessionReply
	err := r.ask(protocol.KindSessionAttach, protocol.SessionBucket(from.session), &protocol.SessionAttach{
		Session: from.session, Node: r.node, Epoch: from.epoch + 1, Key: from.key, Timeout: 10_000, Description: "raw again", Nonce: 2,
	}, &reply)
	if err == nil {
		r.session, r.epoch, r.seq, r.key = from.session, from.epoch+1, from.seq, from.key
	}
	return err
}

func (r *rawClient) head() protocol.Head {
	r.seq++
	return protocol.Head{Session: r.session, Seq: r.seq, Low: r.seq}
}

func (r *rawClient) bucket(name string) uint32 {
	return protocol.Bucket(r.node, []byte(name), r.tier.Buckets)
}

func (r *rawClient) shardOf(bucket uint32) uint64 {
	for _, run := range r.tier.Runs {
		if bucket < run.Count {
			return run.Shard
		}
		bucket -= run.Count
	}
	r.t.Fatal("bucket beyond the map's runs")
	return 0
}

func (r *rawClient) createSemaphore(name string, limit uint64, data string) error {
	return r.ask(protocol.KindCreate, r.bucket(name),
		&protocol.Create{Head: r.head(), Name: []byte(name), Limit: limit, Data: []byte(data)}, nil)
}

func (r *rawClient) acquire(name string, timeout time.Duration) (protocol.AcquireReply, error) {
	var reply protocol.AcquireReply
	err := r.ask(protocol.KindAcquire, r.bucket(name), &protocol.Acquire{
		Head: r.head(), Name: []byte(name), Count: 1, Timeout: uint64(timeout / time.Millisecond),
	}, &reply)
	return reply, err
}

func (r *rawClient) describe(name string) (protocol.DescribeReply, error) {
	var reply protocol.DescribeReply
	err := r.ask(protocol.KindDescribe, r.bucket(name), &protocol.Describe{
		Node: r.node, Name: []byte(name), Flags: protocol.WithOwners | protocol.WithWaiters, Consistency: protocol.Strict,
	}, &reply)
	return reply, err
}

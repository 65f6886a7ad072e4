package chaos

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// hostileEnv tells the test binary to be hostile clients: a hostileSpec.
const hostileEnv = "SIGNALBOX_CHAOS_HOSTILE"

// hostileSpec is what they do.
type hostileSpec struct {
	Server string
	Node   string         // the node that they are let into
	Kinds  map[string]int // connections by kind
}

// hostilePerAddress is how many of them share a source address, 127.0.1.1 and on, so that ports
// suffice.
const hostilePerAddress = 1000

// hostileKind is one connection's behaviour, which goes on until the connection ends or ctx does.
type hostileKind struct {
	what string
	do   func(ctx context.Context, c *hostileConn) error
	rest time.Duration // before it comes again
}

var hostileKindsByName = map[string]hostileKind{
	"silent":  {"says nothing", func(_ context.Context, c *hostileConn) error { return c.drain() }, 0},
	"dribble": {"a byte of a hello each second", dribble, 0},
	"garbage": {"random bytes, HTTP, the start of TLS", garbage, time.Second},
	"lengths": {"frames of no length, of 4 GiB, of one more than is allowed", lengths, time.Second},
	"unended": {"a hello, and 60 KiB of a frame that never ends", unended, 0},
	"bombs":   {"frames of nested arrays and of lengths that are not there", bombs, 200 * time.Millisecond},
	"pings": {"64 pings at once, again and again",
		burst(64, func(c *hostileConn, b []byte) []byte { return c.frame(b, protocol.KindPing, 0, nil) }), 0},
	"reads":    {"64 strict reads at once, again and again", burst(64, read), 0},
	"window":   {"8,192 reads without taking an answer", window, time.Second},
	"sessions": {"16 sessions started at once, again and again", burst(16, sessionStart), 0},
	"waiters":  {"a session that waits in queues, one more each turn", withSession(waiter), 0},
	"watches":  {"a session that arms watches, 16 at once", withSession(watches), 0},
	"streams":  {"streams over what changes, never read", streams, time.Second},
	"churn":    {"connects and resets", func(context.Context, *hostileConn) error { return errors.New("enough") }, 20 * time.Millisecond},
	"stale":    {"attaches and releases of sessions of others, with wrong keys and old epochs, 8 at once", burst(8, stale), 0},
}

func hostileKinds() (list []string) {
	for kind := range hostileKindsByName {
		list = append(list, kind)
	}
	slices.Sort(list)
	return list
}

// hostileConn is a hostile connection.
type hostileConn struct {
	nc      net.Conn
	n       int    // its number
	node    uint64 // the node's id
	path    string
	session uint64
	serial  uint64
	buf     []byte
	r       *rand.Rand
}

// frame appends a request.
func (c *hostileConn) frame(b []byte, kind protocol.Kind, bucket uint64, m protocol.Message) []byte {
	c.serial++
	return protocol.AppendFrame(b, kind, c.serial, bucket, m)
}

// drain reads until the connection ends.
func (c *hostileConn) drain() error {
	_, err := io.Copy(io.Discard, c.nc)
	if err == nil {
		err = io.EOF
	}
	return err
}

// answer reads a frame.
func (c *hostileConn) answer() (protocol.Header, error) {
	for {
		frame, n, err := protocol.SplitFrame(c.buf, 64<<20)
		if err != nil {
			return protocol.Header{}, err
		}
		if n > 0 {
			h, err := protocol.ParseFrame(slices.Clone(frame))
			c.buf = c.buf[n:]
			return h, err
		}
		chunk := make([]byte, 16<<10)
		n, err = c.nc.Read(chunk)
		c.buf = append(c.buf, chunk[:n]...)
		if n == 0 && err != nil {
			return protocol.Header{}, err
		}
	}
}

// answers reads so many replies or pongs, and drops them.
func (c *hostileConn) answers(n int) error {
	for n > 0 {
		h, err := c.answer()
		if err != nil {
			return err
		}
		if h.Kind == protocol.KindGoodbye {
			return errors.New("goodbye")
		}
		if h.Kind.IsReply() || h.Kind == protocol.KindPong {
			n--
		}
	}
	return nil
}

func (c *hostileConn) write(b []byte) error {
	_, err := c.nc.Write(b)
	return err
}

// hello comes in, and asks for the node.
func (c *hostileConn) hello() error {
	b := c.frame(nil, protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "hostile"})
	if err := c.write(c.frame(b, protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: c.path})); err != nil {
		return err
	}
	for {
		h, err := c.answer()
		if err != nil {
			return err
		}
		if h.Kind != protocol.KindNodeDescribe|protocol.KindReply {
			continue
		}
		var info protocol.NodeInfo
		if protocol.Status(h.Arg) != protocol.StatusOK || protocol.DecodeBody(&info, h.Body) != nil {
			return errors.New("no node")
		}
		c.node = info.ID
		return nil
	}
}

func (c *hostileConn) bucket(name []byte) uint64 {
	return uint64(protocol.Bucket(c.node, name, protocol.DefaultBuckets))
}

func dribble(ctx context.Context, c *hostileConn) error {
	go c.drain()
	for _, b := range protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
		&protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "slow"}) {
		if err := c.write([]byte{b}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

func garbage(_ context.Context, c *hostileConn) error {
	b := make([]byte, 64+c.r.IntN(1000))
	switch c.n % 3 {
	case 0:
		for i := range b {
			b[i] = byte(c.r.Uint32())
		}
	case 1:
		b = []byte("GET / HTTP/1.1\r\nHost: signalbox\r\n\r\n")
	case 2:
		b = []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}
	}
	if err := c.write(b); err != nil {
		return err
	}
	return c.drain()
}

func lengths(_ context.Context, c *hostileConn) error {
	length := []uint32{0, 1, 1<<32 - 1, 1 << 31, protocol.MaxHelloLen + 1}[c.n%5]
	if err := c.write(append(binary.BigEndian.AppendUint32(nil, length), make([]byte, 100)...)); err != nil {
		return err
	}
	return c.drain()
}

func unended(_ context.Context, c *hostileConn) error {
	if err := c.hello(); err != nil {
		return err
	}
	if err := c.write(append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 60<<10)...)); err != nil {
		return err
	}
	return c.drain()
}

func bombs(_ context.Context, c *hostileConn) error {
	if err := c.hello(); err != nil {
		return err
	}
	for {
		body := make([]byte, 32<<10)
		for i := range body {
			body[i] = 0x91 // an array of one that is an array of one
		}
		if c.r.IntN(2) == 0 {
			copy(body, []byte{0xdd, 0xff, 0xff, 0xff, 0xff, 0xc6, 0xff, 0xff, 0xff, 0xff})
		}
		c.serial++
		if err := c.write(protocol.AppendFrameRaw(nil, protocol.KindAcquire, c.serial, 1, body)); err != nil {
			return err
		}
		if err := c.answers(1); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // making the bomb is not what is measured
	}
}

// burst sends this many requests at once, takes the answers, and repeats.
func burst(n int, request func(c *hostileConn, b []byte) []byte) func(context.Context, *hostileConn) error {
	return func(ctx context.Context, c *hostileConn) error {
		if err := c.hello(); err != nil {
			return err
		}
		for ctx.Err() == nil {
			var b []byte
			for range n {
				b = request(c, b)
			}
			if err := c.write(b); err != nil {
				return err
			}
			if err := c.answers(n); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
}

func read(c *hostileConn, b []byte) []byte {
	name := fmt.Appendf(nil, "name-%d", c.r.IntN(1000))
	return c.frame(b, protocol.KindDescribe, c.bucket(name), &protocol.Describe{Node: c.node, Name: name, Consistency: protocol.Strict})
}

func window(_ context.Context, c *hostileConn) error {
	if err := c.hello(); err != nil {
		return err
	}
	var b []byte
	for range 8192 {
		b = read(c, b)
	}
	if err := c.write(b); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return c.drain()
}

func (c *hostileConn) start(b []byte) []byte {
	id := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.r.Uint64()), c.r.Uint64())
	return c.frame(b, protocol.KindSessionStart, uint64(protocol.HomeBucket([protocol.KeyLen]byte(id), protocol.DefaultBuckets)),
		&protocol.SessionStart{Node: c.node, CreateID: id, Key: id, Timeout: 10_000, Nonce: 1})
}

func sessionStart(c *hostileConn, b []byte) []byte { return c.start(b) }

// withSession does something again and again on behalf of a session.
func withSession(do func(c *hostileConn, round int, b []byte) (frame []byte, replies int)) func(context.Context, *hostileConn) error {
	return func(ctx context.Context, c *hostileConn) error {
		if err := c.hello(); err != nil {
			return err
		}
		if err := c.write(c.start(nil)); err != nil {
			return err
		}
		for c.session == 0 {
			h, err := c.answer()
			if err != nil {
				return err
			}
			if h.Kind != protocol.KindSessionStart|protocol.KindReply {
				continue
			}
			var r protocol.SessionReply
			if st := protocol.Status(h.Arg); st != protocol.StatusOK || protocol.DecodeBody(&r, h.Body) != nil {
				time.Sleep(time.Second)
				return errors.New("no session")
			}
			c.session = r.Session
		}
		for round := 1; ctx.Err() == nil; round++ {
			b, n := do(c, round, nil)
			if err := c.write(b); err != nil {
				return err
			}
			if err := c.answers(n); err != nil {
				return err
			}
			if n == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		return ctx.Err()
	}
}

// waiter waits for one of a few names that are held, and does not read the answer.
func waiter(c *hostileConn, round int, b []byte) ([]byte, int) {
	name := fmt.Appendf(nil, "queue-%d", round%64)
	return c.frame(b, protocol.KindAcquire, c.bucket(name), &protocol.Acquire{
		Head: protocol.Head{Session: c.session, Seq: uint64(round), Low: uint64(round)}, Name: name,
		Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true,
	}), 0
}

func watches(c *hostileConn, round int, b []byte) ([]byte, int) {
	for i := range 16 {
		name := fmt.Appendf(nil, "watched-%d", i)
		b = c.frame(b, protocol.KindDescribe, c.bucket(name), &protocol.Describe{
			Session: c.session, Node: c.node, Name: name, Flags: protocol.WatchData | protocol.WatchOwners, WatchID: uint64(round*16 + i),
		})
	}
	return b, 16
}

// streams watch what the test writes all the time, and read nothing.
func streams(ctx context.Context, c *hostileConn) error {
	_ = c.nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	if err := c.hello(); err != nil {
		return err
	}
	name := []byte(loudNode)
	if err := c.write(c.frame(nil, protocol.KindWatch, c.bucket(name), &protocol.Watch{Node: c.node, Name: name})); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// loudNode is the configuration that the test writes all the time.
const loudNode = "loud"

func stale(c *hostileConn, b []byte) []byte {
	session := c.r.Uint64() >> c.r.IntN(60)
	if c.serial%2 == 0 {
		key := make([]byte, protocol.KeyLen)
		return c.frame(b, protocol.KindSessionAttach, uint64(protocol.SessionBucket(session)),
			&protocol.SessionAttach{Session: session, Node: c.node, Epoch: 1, Key: key, Timeout: 10_000, Nonce: 1})
	}
	name := []byte("name-1")
	return c.frame(b, protocol.KindRelease, c.bucket(name),
		&protocol.Release{Head: protocol.Head{Session: session, Seq: 1, Low: 1}, Name: name})
}

// runHostileClients is the main function of hostile clients. It reports ready when each has been
// connected once, and on SIGTERM how many connections there were.
func runHostileClients(text string) int {
	var spec hostileSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := net.ResolveTCPAddr("tcp", spec.Server)
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	var once, all sync.WaitGroup
	var came atomic.Uint64
	entering := make(chan struct{}, 64) // connects in progress
	everyone := make(chan struct{})     // closed when each has been connected once
	n := 0
	for kind, count := range spec.Kinds {
		h := hostileKindsByName[kind]
		for i := range count {
			source := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n/hostilePerAddress))}
			n++
			once.Add(1)
			all.Go(func() {
				first := sync.OnceFunc(once.Done)
				defer first()
				r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(n)<<20|uint64(i)))
				for ctx.Err() == nil {
					entering <- struct{}{}
					d := net.Dialer{LocalAddr: source, Timeout: 10 * time.Second}
					nc, err := d.DialContext(ctx, "tcp", server.String())
					<-entering
					if err == nil {
						came.Add(1)
						first()
						// The first to come would take the processor from those that still connect.
						select {
						case <-everyone:
						case <-ctx.Done():
						}
						if kind == "churn" {
							_ = nc.(*net.TCPConn).SetLinger(0)
						}
						release := context.AfterFunc(ctx, func() { _ = nc.Close() })
						_ = h.do(ctx, &hostileConn{nc: nc, n: i, path: spec.Node, r: r})
						release()
						_ = nc.Close()
					}
					// Connections that are refused at once come no faster than this either.
					select {
					case <-ctx.Done():
					case <-time.After(h.rest + 50*time.Millisecond + time.Duration(r.IntN(100))*time.Millisecond):
					}
				}
			})
		}
	}
	once.Wait()
	close(everyone)
	say(report{Event: "ready"})
	all.Wait()
	say(report{Event: "came", Session: came.Load()})
	return 0
}

package request

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Client is one client: who it is, its requests and its sessions. What it receives and sends are
// frames of a transport.Conn.
//
// Lock order: pageMu, then a shard's machine, then a hub, then the locks of session and of
// transport.
type Client struct {
	session.Conn
	server *Server

	unconfirmed *unconfirmed // the last refusal of allowed; see cycle.reject. Owned by the reading goroutine

	identity string // set by the hello
	via      string // which face of the cluster the client is, for audit lines; empty: none
	// authSwitches are the requests under way that turn auth on or off. A client that turns it on
	// gets its answer, so its connection stays, with no more rights than others.
	authSwitches atomic.Int32
	shown        atomic.Pointer[auth.Shown] // the token with which the client came in; nil if with none
	awaitsMap    atomic.Bool                // a request was refused since the last announcement of a map
	unanswered   atomic.Int32               // Invariant: 0 <= unanswered <= window + 1
	held         atomic.Int32               // of these, those that wait for units of a rate limit

	pageMu sync.Mutex // held around the opening of a stream and its reply, and around each page; before a shard's locks

	duePagesMu sync.Mutex
	duePages   []Shard // shards with snapshot pages for it that wait for room
}

// Identity returns the client's identity, by its hello.
func (c *Client) Identity() string { return c.identity }

// Unanswered is how many of its requests are not answered yet, without those that wait for units of a rate limit.
func (c *Client) Unanswered() int { return int(c.unanswered.Load() - c.held.Load()) }

// cycle is the state of one reading goroutine, which reads its connections one after another: the
// time of the read, the reads that it gathers, and buffers.
type cycle struct {
	server   *Server
	now      time.Duration
	out      *Outbox
	frames   int // in this read
	pings    int // of them
	lastPing uint64
	// frames of this read, with a start that came with the hello and is on its way into the log; 0:
	// none is
	started  int
	commands replica.Submitter // of this read
	reads    []*readBatch      // with something in them
	byID     map[uint64]*readBatch
	requests requestBuffers
	tickets  session.Signer

	startBody []byte // of a start whose path was resolved
}

// NewCycle returns the state of one reading goroutine.
func (s *Server) NewCycle() transport.Cycle {
	out := s.NewOutbox()
	out.instant = true
	return &cycle{server: s, out: out, byID: make(map[uint64]*readBatch)}
}

// Begin implements transport.Cycle.
func (p *cycle) Begin(now time.Duration) {
	p.now, p.frames, p.pings, p.started, p.out.written = now, 0, 0, 0, 0
}

// End implements transport.Cycle. If all frames were pings, their pongs wait for those of the
// sessions' homes. If the last one was a start that came with the hello, the answers wait for its
// own.
func (p *cycle) End(client transport.Client) (deferrable int) {
	c := client.(*Client)
	switch {
	case p.pings > 0 && c.HasHomes():
		p.server.cfg.Renewals.Add(&c.Conn, p.lastPing)
		if p.pings == p.frames {
			deferrable = p.out.written
		}
	case p.started > 0 && p.started == p.frames:
		p.server.cfg.Renewals.AddDeferred(&c.Conn)
		deferrable = p.out.written
	}
	p.commands.Flush(p.now)
	p.serveReads()
	return deferrable
}

// Reset implements transport.Cycle.
func (p *cycle) Reset() {
	p.commands.Flush(p.now)
	p.reads = nil
	p.byID = make(map[uint64]*readBatch)
}

// Frame implements transport.Client.
func (c *Client) Frame(in transport.Cycle, h protocol.Header) {
	p := in.(*cycle)
	p.frames++
	switch {
	case !c.Established():
		if h.Kind != protocol.KindHello {
			c.BadFrame(protocol.Errorf(protocol.StatusBadRequest, "the first frame must be a hello"))
			return
		}
		c.unanswered.Add(1)
		hello(c, p, h)
	case h.Kind == protocol.KindHello:
		c.BadFrame(protocol.Errorf(protocol.StatusBadRequest, "a second hello came; send one, as the first frame"))
	case h.Kind.IsRequest():
		c.request(p, h)
	case h.Kind < 2*protocol.KindReply && (h.Kind.IsReply() || h.Kind.IsEvent()):
		c.BadFrame(protocol.Errorf(protocol.StatusBadRequest, "kind %d is for servers to send; send requests only", h.Kind))
	default:
		c.unanswered.Add(1)
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnsupported,
			"this message is not known here; the server may be older than the client")
	}
}

// KeepsAlive implements transport.Client: the leases of sessions end when the client is not heard.
func (c *Client) KeepsAlive() bool { return c.HasSessions() }

// Room implements transport.Client: it serves the pages that wait for room.
func (c *Client) Room() {
	c.duePagesMu.Lock()
	pages := c.duePages
	c.duePages = nil
	c.duePagesMu.Unlock()
	for _, d := range pages {
		d.Requests().SendPages(c)
	}
}

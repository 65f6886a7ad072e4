package session

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// pingWindow is how long pings are gathered before the home shards are asked to renew leases.
// Keep-alives of thousands of connections then cost a barrier, and a wake-up of each loop, per
// window and not per ping, and a connection's two pongs go out in one write. The client counts from
// when it sent the ping, so that nothing is lost by it but the window.
const pingWindow = 20 * time.Millisecond

// Renewals gathers the pings of connections with sessions at home here, and the connections whose
// answers wait for what their shard answers. One goroutine ends the windows; it sleeps while there
// are none.
type Renewals struct {
	wake chan struct{}

	mu   sync.Mutex
	list []pendingPing
}

// pendingPing is the last ping of a connection in this window.
type pendingPing struct {
	conn      *Conn
	ping      uint64
	writeOnly bool // there is no ping
}

// NewRenewals makes one without pings.
func NewRenewals() *Renewals { return &Renewals{wake: make(chan struct{}, 1)} }

// Add gathers a ping. The last one of a connection proves what those before it prove.
func (r *Renewals) Add(c *Conn, ping uint64) { r.add(pendingPing{conn: c, ping: ping}) }

// AddDeferred has what waits on a connection written after two windows at the latest, whether its
// shard has answered or not.
func (r *Renewals) AddDeferred(c *Conn) { r.add(pendingPing{conn: c, writeOnly: true}) }

func (r *Renewals) add(x pendingPing) {
	r.mu.Lock()
	r.list = append(r.list, x)
	first := len(r.list) == 1
	r.mu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run asks homes at the end of each window, and then has what waited for their answers written with
// flush. It goes on until ctx ends.
func (r *Renewals) Run(ctx context.Context, flush func()) {
	t := time.NewTimer(0)
	defer t.Stop()
	var list, asked []pendingPing
	for {
		if len(asked) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
		}
		t.Reset(pingWindow)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r.mu.Lock()
		list, r.list = r.list, list[:0]
		r.mu.Unlock()
		for _, x := range list {
			if !x.writeOnly {
				x.conn.requestPongs(x.ping)
			}
		}
		// A ping that waits for a home since the window before has been answered by the connection
		// itself by now.
		for i, x := range asked {
			x.conn.WriteDeferred()
			asked[i] = pendingPing{}
		}
		flush()
		list, asked = asked[:0], list
	}
}

// HasHomes reports whether some session of the connection is at home here.
func (c *Conn) HasHomes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, home := range c.homes {
		if home.n > 0 {
			return true
		}
	}
	return false
}

// requestPongs asks each shard that is home to sessions of the connection for a pong. Of pings
// that arrive together only the last is checked; its proof covers the earlier ones. A shard whose
// log may not have the attach of one of them yet is asked once it has: its pong would renew that
// session too. Attaches that come later than the ping do not delay it: their answers let
// the client believe in them for longer than the ping does.
func (c *Conn) requestPongs(ping uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.homes {
		if home := &c.homes[i]; home.n > 0 {
			home.renew(c.ID(), ping)
		}
	}
}

// A statement says which lease of a rate limit a session has. It tells a later leader what an
// earlier one has granted:
//
//	version u8 = 2 | key id u64 | node u64 | session u64 | attach epoch u64 |
//	bucket epoch u64 | leader epoch u64 | count u64 | rate u64 | burst u64 | end u64 |
//	HMAC-SHA256 over all before it and the path of the resource
//
// It is signed with the keys of tickets, whose version tells the two apart.
const (
	statementVersion = 2
	statementBody    = 1 + 10*8
)

// AppendLease appends a signed statement of a lease. path is the resource's.
func (s *Signer) AppendLease(
	b []byte, key *meta.Key, node, session, epoch uint64, path []byte, g *ratelimit.Lease,
) []byte {
	start := len(b)
	b = append(b, statementVersion)
	for _, v := range [...]uint64{key.ID, node, session, epoch, g.Number.Bucket, g.Number.Epoch, g.Number.Count, g.Rate,
		g.Burst, g.End} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	signed := append(b, path...)
	sum := s.of(key, signed[start:])
	return append(b, sum...)
}

// VerifyLease reads a statement that was signed for the session, under an attach epoch up to the
// given one, and the resource. It is false for any other bytes.
func (s *Signer) VerifyLease(
	b []byte, current, previous *meta.Key, node, session, epoch uint64, path []byte,
) (g ratelimit.Lease, ok bool) {
	if len(b) != statementBody+sha256.Size || b[0] != statementVersion {
		return g, false
	}
	var v [10]uint64
	for i := range v {
		v[i] = binary.BigEndian.Uint64(b[1+8*i:])
	}
	var key *meta.Key
	switch v[0] {
	case 0:
		return g, false
	case current.ID:
		key = current
	case previous.ID:
		key = previous
	default:
		return g, false
	}
	s.buffer = append(append(s.buffer[:0], b[:statementBody]...), path...)
	if !hmac.Equal(s.of(key, s.buffer), b[statementBody:]) || v[1] != node || v[2] != session || v[3] > epoch {
		return g, false
	}
	number := ratelimit.Number{Leadership: ratelimit.Leadership{Bucket: v[4], Epoch: v[5]}, Count: v[6]}
	return ratelimit.Lease{Number: number, Rate: v[7], Burst: v[8], End: v[9]}, true
}

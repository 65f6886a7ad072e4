package core

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// routes is where requests go: bucket -> shard -> the instance that leads it -> its connection.
type routes struct {
	version uint64
	tiers   []*tier // by id; nil: there is none of that id
	shards  map[uint64]*shardRoute
	conns   map[uint64]*Conn // by instance
	waiting list             // requests that wait for a map or a connection
}

func newRoutes() routes {
	return routes{shards: make(map[uint64]*shardRoute), conns: make(map[uint64]*Conn)}
}

// shardRoute says where a shard is served.
type shardRoute struct {
	shard  uint64
	leader uint64 // instance, 0: not known
	conn   *Conn  // to it; nil: there is none
}

// tier says who owns the buckets of a tier, in six bytes for each run of buckets with one owner: a
// process may have thousands of clients.
//
// Invariant: first begins with 0 and rises, place is as long, and its values are below that of
// owners.
type tier struct {
	buckets uint32
	first   []uint32 // of each run: its first bucket
	place   []uint16 // of each run: the place of its owner in owners
	owners  []*shardRoute
}

// owner of a bucket, or nil. The tier may be nil.
func (t *tier) owner(bucket uint32) *shardRoute {
	switch {
	case t == nil || bucket >= t.buckets:
		return nil
	case len(t.owners) == 1:
		return t.owners[0]
	}
	i, begins := slices.BinarySearch(t.first, bucket)
	if !begins {
		i--
	}
	return t.owners[t.place[i]]
}

func (r *routes) tier(id uint8) *tier {
	if int(id) < len(r.tiers) {
		return r.tiers[id]
	}
	return nil
}

// useMap routes by a map, if it is newer than the one there is. It checks the map: a server may
// send anything.
func (r *routes) useMap(m *protocol.MapReply) error {
	if m.Version <= r.version {
		return nil
	}
	shards := make(map[uint64]*shardRoute, len(m.Shards))
	for _, s := range m.Shards {
		shards[s.ID] = &shardRoute{shard: s.ID, leader: s.Master, conn: r.conns[s.Master]}
	}
	var tiers []*tier
	for _, t := range m.Tiers {
		own, err := newTier(&t, shards)
		if err != nil {
			return err
		}
		for len(tiers) <= int(t.ID) {
			tiers = append(tiers, nil)
		}
		tiers[t.ID] = own
	}
	r.version, r.tiers, r.shards = m.Version, tiers, shards
	return nil
}

func newTier(t *protocol.MapTier, shards map[uint64]*shardRoute) (*tier, error) {
	if t.Buckets == 0 || t.Buckets > 1<<16 {
		return nil, fmt.Errorf("cluster map gives tier %d %d buckets; there are 1 to 65536", t.ID, t.Buckets)
	}
	own := &tier{buckets: t.Buckets}
	places := make(map[uint64]uint16)
	next := uint32(0) // bucket
	for _, run := range t.Runs {
		if uint64(next)+uint64(run.Count) > uint64(t.Buckets) {
			return nil, fmt.Errorf("cluster map gives tier %d more than its %d buckets", t.ID, t.Buckets)
		}
		if run.Count == 0 {
			continue
		}
		place, seen := places[run.Shard]
		if !seen {
			place = uint16(len(own.owners)) // there are no more than buckets
			places[run.Shard] = place
			own.owners = append(own.owners, shards[run.Shard])
		}
		if n := len(own.place); n == 0 || own.place[n-1] != place {
			own.first, own.place = append(own.first, next), append(own.place, place)
		}
		next += run.Count
	}
	if next != t.Buckets {
		return nil, fmt.Errorf("cluster map leaves buckets of tier %d without a shard", t.ID)
	}
	return own, nil
}

func (r *routes) connected(c *Conn) {
	r.conns[c.instance] = c
	for _, w := range r.shards {
		if w.leader == c.instance {
			w.conn = c
		}
	}
}

func (r *routes) lost(c *Conn) {
	if r.conns[c.instance] != c {
		return
	}
	delete(r.conns, c.instance)
	for _, w := range r.shards {
		if w.conn == c {
			w.conn = nil
		}
	}
}

// mapRequest asks an instance for its map.
type mapRequest struct {
	Request
	msg   protocol.MapRequest
	reply protocol.MapReply
}

// fetchMap asks for the map on a connection.
func (e *Engine) fetchMap(c *Conn) {
	m := &mapRequest{msg: protocol.MapRequest{Known: e.routes.version}}
	m.Request = Request{kind: protocol.KindMap, message: &m.msg, op: m, route: toConn(c), once: true}
	e.send(&m.Request)
}

func (m *mapRequest) turn(*Engine)                     {}
func (m *mapRequest) decode(body []byte) (bool, error) { return false, m.reply.DecodeBody(body) }
func (m *mapRequest) left(*Engine, error)              {}
func (m *mapRequest) over(*Engine, error)              {}

func (m *mapRequest) decided(e *Engine, err error) {
	m.state = Over
	if err != nil {
		return
	}
	if err := e.routes.useMap(&m.reply); err != nil {
		m.via.end(e, err)
		return
	}
	e.routes.waiting.drain(e.send)
}

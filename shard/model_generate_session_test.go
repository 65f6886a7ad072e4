package shard

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelClient is somebody who makes requests on a session.
type modelClient struct {
	id, node uint64
	key      []byte
	epoch    uint64 // that it believes in
	nonce    uint64
	seq, low uint64
	sent     []op // the last requests
}

func (g *gen) timeout() uint64 {
	if g.fault(2) {
		return 30*60*1000 + 1
	}
	return pick[uint64](g, 10_000, 10_000, 60_000, 60, 1000, 0, 30*60*1000)
}

func (g *gen) text() string {
	if g.fault(1) {
		return pick(g, "\xff", string(bulk[:1025]))
	}
	return pick(g, "", "one", "two")
}

func (g *gen) freshStart() op {
	create := make([]byte, 8, 16)
	for any := g.fault(10); ; {
		g.serial++
		create = binary.BigEndian.AppendUint64(create[:8], g.serial)
		if any || g.m.total == 0 || g.m.active[protocol.HomeBucket([protocol.KeyLen]byte(create), modelBuckets)] {
			break
		}
	}
	x := &protocol.SessionStart{CreateID: create, Key: modelKey(g.serial), Timeout: g.timeout(),
		Description: g.text(), Nonce: 1 + uint64(min(g.n(20), 1))}
	x.Node = pick[uint64](g, 1, 1, 1, 1, 1, 1, 2, uint64(2+g.n(2)))
	g.starts = append(g.starts, x)
	return op{kind: CmdSessionStart, client: pick(g, "", "10.0.0.1:7"), msg: x}
}

func modelKey(of uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, ^of), of)
}

func (g *gen) startOp() op {
	if len(g.starts) == 0 || g.chance(50) && len(g.starts) < 12 {
		return g.freshStart()
	}
	again := *g.starts[len(g.starts)-1-g.n(min(len(g.starts), 6))]
	switch {
	case g.fault(10):
		again.Key = modelKey(999)
	case g.fault(5):
		again.Node = 2
	case g.fault(3):
		again.CreateID = again.CreateID[1:]
	case g.fault(3):
		again.Key = again.Key[:3]
	case g.fault(5):
		again.Nonce++
	}
	return op{kind: CmdSessionStart, client: pick(g, "", "10.0.0.2:7"), msg: &again}
}

// learn makes clients of the sessions that were started or attached.
func (g *gen) learn(ops []op, events []Event) {
	for _, e := range events {
		if e.Kind != EventSessionAttached {
			continue
		}
		var c *modelClient
		for _, o := range g.clients {
			if o.id == e.Session {
				c = o
			}
		}
		if c == nil {
			c = &modelClient{id: e.Session, node: e.Node, low: 1}
			g.clients = append(g.clients, c)
		}
		c.epoch = e.Epoch
		switch x := ops[e.Command].msg.(type) {
		case *protocol.SessionStart:
			c.key, c.nonce = x.Key, x.Nonce
		case *protocol.SessionAttach:
			c.key, c.nonce = x.Key, x.Nonce
		}
	}
}

// client is somebody: mostly one of the newest that live, at home here or elsewhere.
func (g *gen) client() *modelClient {
	if len(g.clients) == 0 || len(g.clients) < 12 && g.chance(g.strange) && g.chance(30) {
		// A session of another shard: at home in a bucket that is not active here, or not active
		// yet, or in another tier.
		g.serial++
		id := protocol.MakeSessionID(uint8(pick(g, 0, 0, 0, 1)),
			pick[uint16](g, modelBuckets-1, modelBuckets-2, modelBuckets+2), g.serial+100)
		c := &modelClient{id: id, node: pick[uint64](g, 1, 1, 1, 2),
			epoch: 1, nonce: 1, low: 1, key: modelKey(g.serial)}
		g.clients = append(g.clients, c)
		return c
	}
	list := g.clients
	if !g.fault(10) {
		var living []*modelClient
		for _, c := range g.clients {
			s, gone := g.m.session(c.id), g.m.goneIDs[c.id] > 0
			if g.m.node(c.node) != nil && (s != nil || !gone && !g.m.isHome(c.id)) {
				living = append(living, c)
			}
		}
		if len(living) > 0 {
			list = living
		}
	}
	return list[len(list)-1-g.n(min(len(list), 6))]
}

func (g *gen) attachOp() op {
	c := g.client()
	x := &protocol.SessionAttach{Session: c.id, Node: c.node, Epoch: c.epoch + uint64(pick(g, 1, 0, 2)),
		Key: c.key, Timeout: g.timeout(), Nonce: c.nonce}
	x.Description = g.text()
	switch {
	case g.fault(10):
		x.Epoch = c.epoch - min(c.epoch, 1)
	case g.fault(10):
		x.Key = modelKey(999)
	case g.fault(15):
		x.Nonce = c.nonce%3 + 1 // another client
	case g.fault(4):
		x.Node = 3 - x.Node%3
	case g.fault(3):
		x.Session += 50
	case g.fault(2):
		x.Key = append([]byte{1}, x.Key...)
	case g.fault(1):
		x.Epoch = ^uint64(0)
	}
	return op{kind: CmdSessionAttach, node: c.node, epoch: x.Epoch, client: pick(g, "", "10.0.0.3:7"), msg: x}
}

func (g *gen) detachOp() op {
	var x DetachBody
	for range 1 + g.n(3) {
		c := g.client()
		lastContact := g.m.now + 1000 - uint64(pick(g, 1000, 1001, 0, min(int(g.m.now), 1<<30)+1000))
		x.Sessions = append(x.Sessions, DetachItem{Session: c.id, Epoch: g.epochOf(c), LastContact: lastContact,
			Link: pick(g, protocol.LinkSilent, protocol.LinkClosed)})
	}
	x.Stood, x.StoodAt = uint64(pick(g, 0, 0, 1500)), g.m.now-min(g.m.now, uint64(pick(g, 0, 500, 1<<20)))
	return op{kind: CmdDetach, msg: x}
}

func (g *gen) transferOp() op {
	return op{kind: CmdTransfer, raw: pick(g, TransferBegins, TransferBegins, TransferCancelled)}
}

// epochOf is the epoch a client acts under: mostly the newest.
func (g *gen) epochOf(c *modelClient) uint64 {
	switch {
	case g.fault(5):
		return c.epoch - min(c.epoch, 1)
	case g.fault(3):
		return c.epoch + 1
	}
	return c.epoch
}

func (g *gen) stopOp() op {
	c := g.client()
	o := op{kind: CmdSessionStop, node: c.node, epoch: g.epochOf(c),
		msg: &protocol.SessionStop{Session: c.id, Epoch: g.epochOf(c)}}
	if g.fault(4) {
		o.node = 2
	}
	return o
}

func (g *gen) killOp() op {
	c := g.client()
	return op{kind: CmdSessionKill, msg: &protocol.SessionKill{Session: c.id, Node: c.node, Reason: g.text()}}
}

func (g *gen) remoteEndedOp() op {
	var x RemoteEndedBody
	for range 1 + g.n(2) {
		x.Sessions = append(x.Sessions, RemoteEnd{g.client().id, pick(g, protocol.Ending{}, protocol.Ending{Reason: protocol.EndKilled},
			protocol.Ending{Reason: protocol.EndExpired, Link: protocol.LinkSilent, Silent: 3000, Stood: 1500})})
	}
	return op{kind: CmdRemoteEnded, msg: x}
}

func (g *gen) remoteUpdateOp() op {
	c := g.client()
	x := RemoteUpdateBody{Session: c.id, Epoch: c.epoch + uint64(pick(g, 0, 1)),
		Description: pick(g, "seen", "", string(bulk[:1025])), Detached: pick(g, true, false)}
	if g.chance(30) {
		x.Epoch = c.epoch - min(c.epoch, 1)
	}
	if !g.m.isHome(c.id) && g.chance(50) {
		c.epoch = max(c.epoch, x.Epoch)
	}
	return op{kind: CmdRemoteUpdate, msg: x}
}

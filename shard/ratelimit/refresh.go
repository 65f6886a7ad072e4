package ratelimit

import (
	"cmp"
	"slices"
)

// Leadership is a time in which one leader decides about a tree. A later one is greater: a bucket
// gets another epoch by each move, and a shard by each change of its leader.
type Leadership struct{ Bucket, Epoch uint64 }

func (l Leadership) compare(b Leadership) int {
	return cmp.Or(cmp.Compare(l.Bucket, b.Bucket), cmp.Compare(l.Epoch, b.Epoch))
}

// Number is that of a lease. No two leases of a tree have the same, whatever leaders do not know of
// each other.
type Number struct {
	Leadership
	Count uint64
}

// Lease is what a client may use, until the end at the latest.
type Lease struct {
	Number Number // zero: there is no lease
	Rate   uint64
	Burst  uint64
	End    uint64 // the leader counts it until then
}

func (l *Lease) there(now uint64) bool { return l.Number.Count != 0 && l.End > now }

// LeafRefresh is what a client says of one leaf.
type LeafRefresh struct {
	Leaf      string
	Demand    uint64 // the rate that it wants
	Waiting   uint64 // amount that callers wait for; with some the demand has no bound
	Need      uint64 // the largest amount of one call lately
	Elsewhere bool   // its first call waits for another limit alone

	// Held is the lease that the client uses, by a statement that the leader's signature
	// proves. Presented is true of any statement: one that is not good counts for nothing, while
	// without one the client uses none.
	Held      Lease
	Presented bool

	// Closed: the client uses the leaf no more, and has no lease of it.
	Closed bool

	// Amounts since the limiter was opened.
	Allowed, Denied, Waited, Impossible uint64
}

// Refresh asks for leases. A client takes the answer to its last refresh alone.
type Refresh struct {
	Session, Epoch uint64     // as the connection has proved
	Seq            uint64     // rises with each refresh of the session for the tree
	Leadership     Leadership // the latest that the client has taken an answer of
	Open           uint64     // the first acquire that the client still wants something of
	Leaves         []LeafRefresh
}

// LeafReply is the answer for one leaf.
type LeafReply struct {
	State  LeafState
	Lease  Lease  // none: the session needs none at present, or is served remotely
	Length uint64 // of the lease, or of one that it would get, in ms
	Level  uint64 // amount that comes with the lease
	Most   uint64 // amount: a call for more can never be admitted
	Limit  uint64 // rate of the resource, in force
	Floor  uint64
	Shadow bool
	Why    Why
	At     string // the resource that Why is about, if any
}

// Reply is the answer to a refresh.
type Reply struct {
	Leadership Leadership
	Clock      uint64 // the time at which the refresh was confirmed
	Length     uint64 // of a lease of an old session, in ms
	Again      bool   // refresh again at once: the leader learns, or others wait for the rate that was given up
	Leaves     []LeafReply
}

// LeafState says how a leaf is served.
type LeafState uint8

// States of a leaf.
const (
	LeafLeased  LeafState = 0
	LeafRemote  LeafState = 1 // ask the leader for each acquire
	LeafMissing LeafState = 2 // there is no such resource
	LeafInner   LeafState = 3 // it has children: use one of them
)

// Why says why a session has the rate that it has.
type Why uint8

// Reasons.
const (
	WhyDemand    Why = 0  // it has what it asks for
	WhyWeight    Why = 1  // others share the resource with it, by weight
	WhyLearning  Why = 3  // the leader is new, and does not know yet who uses what
	WhyNone      Why = 5  // the resource cannot be used
	WhyCap       Why = 9  // it has all that the resource may have
	WhyBurst     Why = 10 // the burst of the resource is too small for its calls
	WhyElsewhere Why = 11 // its calls wait for another resource
	WhySilent    Why = 12 // it has a lease, and was not heard of for longer than that lasts
)

// member is a session that takes part, as this leadership knows it.
type member struct {
	session, epoch uint64
	seq            uint64
	reported       bool    // it knows this leadership: it takes no answer of an earlier one any more
	gone           bool    // it is no participant any more; its leases are counted until they end
	former         *member // under an earlier attach epoch, with what was not presented since
	known          bool    // the counters of all its leaves were reported before
	next           uint64
	joined         uint64 // log time
	holdings       []*holding
	byPath         map[string]*holding // of a member with many
	turns          []*turn
	waiting        int    // calls of these
	open           uint64 // it wants no acquire before this one any more
	grants         []*grant
}

// manyHoldings is from how many on a member has an index of its leaves.
const manyHoldings = 16

func (m *member) holding(path string) *holding {
	if m.byPath != nil {
		return m.byPath[path]
	}
	for _, h := range m.holdings {
		if h.path == path {
			return h
		}
	}
	return nil
}

func (m *member) add(h *holding) {
	m.holdings = append(m.holdings, h)
	if m.byPath != nil {
		m.byPath[h.path] = h
	} else if len(m.holdings) > manyHoldings {
		m.byPath = make(map[string]*holding, 2*len(m.holdings))
		for _, h := range m.holdings {
			m.byPath[h.path] = h
		}
	}
}

// keep drops the holdings that are not to be kept.
func (m *member) keep(keep func(*holding) bool) {
	m.holdings = slices.DeleteFunc(m.holdings, func(h *holding) bool {
		if keep(h) {
			return false
		}
		if m.byPath != nil {
			delete(m.byPath, h.path)
		}
		return true
	})
}

// holding is what a member has of one leaf.
//
// Invariant: countedRate and countedBurst are at least those of held and offered while these have
// not ended, and are part of the counts of the node and of all above it.
type holding struct {
	member *member
	path   string
	node   int  // of the path, or of the nearest resource above it that is there; -1: none
	at     int  // its place in the node's list
	leaf   bool // the path is a leaf

	refreshed                        uint64 // when it was last asked for
	liveUntil                        uint64 // its client is believed to want what it asked for until then
	demand, waiting, need, needUntil uint64
	left                             uint64 // amount that waited then, and was given up since
	fewSince, fewUntil               uint64
	lacksSince                       uint64 // since when it waits or is denied; 0: it does not

	held    Lease // the client has it
	offered Lease // it was sent last; the client may have it in place of held

	countedRate, countedBurst uint64
	unused                    uint64 // amount that is counted because it may not be used yet
	wanted                    uint64 // its demand as others have to leave it, of the last computation
	target                    uint64 // its share, of the last computation
	fair                      uint64 // its share if it asked for all
	leased, leasedBurst       uint64 // the part of it that it is to have as a lease
	remote                    bool   // its share is too small for a lease, or its calls are too large
	cramped                   bool   // bursts are too small for a lease, since others need theirs
	short                     bool   // it has less than its share
	blocked                   bool   // and there is no room for it until others have less
	notified                  bool   // to refresh at once; cleared by the refresh
	elsewhere                 bool   // its first call waits for another tree alone

	ahead  bucket // what its calls had beyond its share while others lacked units; it runs off by the share
	resume uint64 // its last units came back unused: its next call starts before the virtual time, but not before this tag

	known                                     bool   // its counters were reported before
	allowed, denied, waited, impossible, used uint64 // the last is a rate
}

// last is what the client has, or will have.
func (h *holding) last() *Lease {
	if h.offered.Number.Count != 0 {
		return &h.offered
	}
	return &h.held
}

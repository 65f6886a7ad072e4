package protocol

// Hello is the first frame of a connection, within 5 s of connecting.
type Hello struct {
	Magic    string
	Version  uint32
	Features uint64 // bit set of what the client understands; none is defined in version 1
	Client   string // name and version, for people
	Token    []byte // credentials; empty is the anonymous identity
}

// HelloReply accepts it.
type HelloReply struct {
	Version    uint32
	Features   uint64
	Server     string // name and version, for people
	Cluster    string // cluster id
	Instance   uint64
	MaxFrame   uint32 // largest frame length accepted from now on
	MaxData    uint32 // largest data accepted
	Window     uint32 // requests that may be unanswered at a time on this connection
	MapVersion uint64
	Identity   string // who the credentials say you are
}

// Failure is the body of every reply whose status is not OK.
type Failure struct {
	Message string // a sentence that says what to do

	// With WRONG_SHARD: the instance that leads the shard that was meant, as far as who answers knows, and since which raft term; 0 is not known.
	Master, Term uint64
}

// PresentTicket shows a ticket, so that this instance lets the session's requests in. Reply: Empty. Needed on every connection but the one the
// session is attached on.
type PresentTicket struct {
	Ticket      []byte
	Description string // what the session was last attached with; shown beside what it holds until its home says it
}

// Empty is the body of messages without fields.
type Empty struct{}

// MapRequest asks for the cluster map.
type MapRequest struct {
	Known uint64 // version the client has; an equal one is answered with that version and no lists
}

// MapReply is the routing table.
type MapReply struct {
	Version   uint64
	Cluster   string
	Instances []MapInstance
	Shards    []MapShard
	Tiers     []MapTier
}

// MapInstance is where an instance listens for clients.
type MapInstance struct {
	ID      uint64
	Name    string
	Address string
}

// MapShard is a data shard.
type MapShard struct {
	ID       uint64
	Master   uint64   // instance, 0 if none is known
	Term     uint64   // the raft term since which it is; 0: not known
	Replicas []uint64 // instances
}

// MapTier says which shard owns each bucket, as runs in bucket order.
type MapTier struct {
	ID      uint8
	Name    string
	Buckets uint32
	Runs    []MapRun
}

// MapRun is a run of buckets owned by one shard.
type MapRun struct {
	Count uint32
	Shard uint64
}

// Goodbye is sent before the server closes a connection on purpose.
type Goodbye struct {
	Status  Status
	Message string
}

// MapChanged says that there is a newer map, or that a shard has a new master, which does not
// change the map's version, or that a shard, whose master says so itself, serves buckets that it
// refused a moment ago.
type MapChanged struct {
	Version uint64

	Shard        uint64 // that has a new master, or serves more buckets; 0: it is about the map
	Master, Term uint64 // its master, an instance, and the raft term since which it is: of two words the one with the higher term is newer
}

package protocol

// ConsoleClient is the Client of the hello of signalbox's web console. Audit lines of its requests
// have via=console.
const ConsoleClient = "signalbox-console"

// HTTPClient is the Client of a gateway for locks by HTTP. Audit lines have via=http.
const HTTPClient = "signalbox-http"

// Hello is the first frame of a connection, within 5 s of connecting.
type Hello struct {
	Magic    string
	Version  uint32
	Features uint64 // bit set of the client's features beyond this page; 0: there are none yet
	Client   string // name and version, for people
	Token    []byte // credentials; empty is the anonymous identity
	Cluster  string // id or name of the cluster that is meant, which another one refuses; empty is any
}

func (m *Hello) fields(f *fields) {
	f.message("hello")
	if m.Magic != Magic {
		f.refuse("hello does not carry the magic %q; is this the port of another service?", Magic)
	}
	if f.checks() && m.Version != Version {
		f.in.err = Errorf(StatusUnsupported, "protocol version %d is not spoken here; this server speaks version %d",
			m.Version, Version)
	}
	f.str("magic", &m.Magic)
	f.uint32("version", &m.Version)
	f.uint("features", &m.Features)
	f.text("client", &m.Client, "client", MaxDescriptionLen)
	f.bytes("token", &m.Token)
	f.text("cluster", &m.Cluster, "cluster", MaxDescriptionLen)
}

// HelloReply accepts it.
type HelloReply struct {
	Version    uint32
	Features   uint64 // bit set of the server's features beyond this page; 0: there are none yet
	Server     string // name and version, for people
	Cluster    string // cluster id
	Instance   uint64
	MaxFrame   uint32 // largest frame length accepted from now on
	MaxData    uint32 // largest data accepted
	Window     uint32 // requests that may be unanswered at a time on this connection
	MapVersion uint64
	Identity   string // who the credentials say you are
}

func (m *HelloReply) fields(f *fields) {
	f.message("hello reply")
	f.uint32("version", &m.Version)
	f.uint("features", &m.Features)
	f.str("server", &m.Server)
	f.str("cluster", &m.Cluster)
	f.uint("instance", &m.Instance)
	f.uint32("max frame", &m.MaxFrame)
	f.uint32("max data", &m.MaxData)
	f.uint32("window", &m.Window)
	f.uint("map version", &m.MapVersion)
	f.str("identity", &m.Identity)
}

// Failure is the body of every reply whose status is not OK.
type Failure struct {
	Message string  // a sentence that says what to do
	Refusal Refusal // distinguishes refusals with one status; 0: the status says it all

	// With WRONG_SHARD: the instance that leads the shard, as far as the answering instance knows,
	// and since which raft term; 0 is not known.
	Master, Term uint64

	// With WRONG_SHARD: the shard that Master and Term are about, which owns the bucket as far as
	// the answering instance knows, and the version of its map; 0 is not said.
	//
	// With UNAVAILABLE: the shard that a change of the cluster or of its nodes waits for. It may
	// still happen. 0: nothing was applied.
	Shard, MapVersion uint64
}

func (m *Failure) fields(f *fields) {
	f.message("failure")
	f.str("message", &m.Message)
	small(f, "refusal", &m.Refusal)
	f.uint("master", &m.Master)
	f.uint("term", &m.Term)
	f.uint("shard", &m.Shard)
	f.uint("map version", &m.MapVersion)
}

// PresentTicket shows a ticket, so that this instance lets the session's requests in. Reply: Empty.
// Needed on every connection but the one the session is attached on.
type PresentTicket struct {
	Ticket      []byte
	Description string // of the session's last attach; shown with its units until its home has sent it
}

func (m *PresentTicket) fields(f *fields) {
	f.message("present ticket")
	f.bytes("ticket", &m.Ticket)
	if len(m.Ticket) == 0 {
		f.refuse("ticket is empty; give the one that the start or attach of the session answered")
	}
	f.text("description", &m.Description, "session description", MaxDescriptionLen)
}

// Empty is the body of messages without fields.
type Empty struct{}

func (m *Empty) fields(f *fields) { f.message("empty") }

// MapRequest asks for the cluster map.
type MapRequest struct {
	Known uint64 // version the client has; an equal one is answered with that version and no lists
}

func (m *MapRequest) fields(f *fields) {
	f.message("map")
	f.uint("known", &m.Known)
}

// MapReply is the routing table.
type MapReply struct {
	Version   uint64
	Cluster   string
	Instances []MapInstance
	Shards    []MapShard
	Tiers     []MapTier
}

func (m *MapReply) fields(f *fields) {
	f.message("map reply")
	f.uint("version", &m.Version)
	f.str("cluster", &m.Cluster)
	for l := list(f, "instances", 3, &m.Instances); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "shards", 4, &m.Shards); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "tiers", 4, &m.Tiers); l.next(f); {
		l.item().fields(f)
	}
}

// MapInstance is an instance's address for clients.
type MapInstance struct {
	ID      uint64
	Name    string
	Address string
}

func (m *MapInstance) fields(f *fields) {
	f.uint("instances.id", &m.ID)
	f.str("instances.name", &m.Name)
	f.str("instances.address", &m.Address)
}

// MapShard is a data shard.
type MapShard struct {
	ID       uint64
	Master   uint64   // instance, 0 if none is known
	Term     uint64   // the raft term since which it is; 0: not known
	Replicas []uint64 // instances
}

func (m *MapShard) fields(f *fields) {
	f.uint("shards.id", &m.ID)
	f.uint("shards.master", &m.Master)
	f.uint("shards.term", &m.Term)
	f.uints("shards.replicas", &m.Replicas)
}

// MapTier is the owner of each bucket of a tier, as runs in bucket order.
type MapTier struct {
	ID      uint8
	Name    string
	Buckets uint32
	Runs    []MapRun
}

func (m *MapTier) fields(f *fields) {
	small(f, "tiers.id", &m.ID)
	f.str("tiers.name", &m.Name)
	f.uint32("tiers.buckets", &m.Buckets)
	for l := list(f, "tiers.runs", 2, &m.Runs); l.next(f); {
		l.item().fields(f)
	}
}

// MapRun is a run of buckets owned by one shard.
type MapRun struct {
	Count uint32
	Shard uint64
}

func (m *MapRun) fields(f *fields) {
	f.uint32("tiers.runs.count", &m.Count)
	f.uint("tiers.runs.shard", &m.Shard)
}

// Goodbye is sent before the server closes a connection on purpose.
type Goodbye struct {
	Status  Status
	Message string
}

func (m *Goodbye) fields(f *fields) {
	f.message("goodbye")
	small(f, "status", &m.Status)
	f.str("message", &m.Message)
}

// MapChanged reports that there is a newer map. If Shard is set, it says instead that the shard has
// a new master, which does not change the map's version. From the master itself it may also say
// that the shard serves buckets that it refused a moment ago.
type MapChanged struct {
	Version uint64

	Shard uint64 // that has a new master, or serves more buckets; 0: it is about the map
	// its master, an instance, and the raft term since which it is: the statement with the higher term
	// is newer
	Master, Term uint64
}

func (m *MapChanged) fields(f *fields) {
	f.message("map changed")
	f.uint("version", &m.Version)
	f.uint("shard", &m.Shard)
	f.uint("master", &m.Master)
	f.uint("term", &m.Term)
}

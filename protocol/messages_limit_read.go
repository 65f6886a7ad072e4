package protocol

// MaxLimitSessions bounds the sessions of one LimitStatus.
const MaxLimitSessions = 10_000

// LimitDescribe reads a resource with all below it, at the shard's leader. Reply: LimitStatus.
type LimitDescribe struct {
	Node     uint64
	Path     []byte
	Sessions uint32 // bounds the list of the resources' sessions, up to MaxLimitSessions; 0: no list
	Cursor   []byte // the last path of the page before
}

func (m *LimitDescribe) fields(f *fields) {
	f.message("limit describe")
	f.uint("node", &m.Node)
	f.resource(&m.Path)
	f.uint32("sessions", &m.Sessions)
	if m.Sessions > MaxLimitSessions {
		f.refuse("%d sessions are asked for; at most %d are allowed", m.Sessions, uint64(MaxLimitSessions))
	}
	f.limited("cursor", &m.Cursor, "cursor", MaxLimitPath)
}

// LimitStatus is a page of a tree, in order of path. An empty cursor is the end.
type LimitStatus struct {
	Index        uint64 // log index of the shard it was read at
	Clock        uint64 // time of the tree, in ms
	Length       uint64 // of a lease, in ms
	Learning     bool   // the leader does not know the demand yet
	Learned      uint64 // ms that it took to know
	Participants uint64 // sessions that take part in the tree
	Resources    []LimitResource
	Sessions     []LimitSession // of the page's resources, those with the highest rates first
	Cursor       []byte
}

// LimitResource is a resource with its use, as far as the leader knows it. Rates are in thousandths
// of a unit per second, amounts in thousandths of a unit.
type LimitResource struct {
	Path         []byte
	Revision     uint64
	Config       LimitConfig
	Rate         uint64 // in force: the least of its own and its parents'
	Burst        uint64 // in force
	Demand       uint64
	Target       uint64 // its intended share of the parent
	Leased       uint64 // rate that leases count with
	LeasedBurst  uint64
	Remote       uint64 // rate of the leader's own bucket
	Level        uint64 // amount in that bucket
	Sessions     uint64 // that have it open
	Callers      uint64 // those of them that ask for something
	Waiting      uint64 // amount that callers wait for
	Allowed      uint64 // amounts since the leader began
	Denied       uint64
	Waited       uint64
	Impossible   uint64 // amounts of calls that can never be admitted
	Acquires     uint64 // remote ones
	Unconfirmed  uint64 // rate that clients have to confirm that they do not use any more
	ServedRemote bool   // some of the sessions are
}

// LimitSession is the share of a session in a leaf.
type LimitSession struct {
	Session uint64
	Path    []byte
	State   LimitState
	Rate    uint64
	Burst   uint64 // of its lease; of LimitBurst, without one, the burst of At that would do
	Demand  uint64
	Waiting uint64
	Used    uint64 // rate, of the time before the last refresh
	Share   uint64 // rate that it is to have
	Lacks   uint64 // ms since its calls wait or are denied; 0: they are not
	Age     uint64 // ms since the session joined
	Heard   uint64 // ms since its last refresh
	Why     LimitWhy
	At      []byte
}

func (m *LimitStatus) fields(f *fields) {
	f.message("limit status")
	f.uint("index", &m.Index)
	f.uint("clock", &m.Clock)
	f.uint("length", &m.Length)
	f.bool("learning", &m.Learning)
	f.uint("learned", &m.Learned)
	f.uint("participants", &m.Participants)
	for l := list(f, "resources", 21, &m.Resources); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "sessions", 14, &m.Sessions); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
}

func (m *LimitResource) fields(f *fields) {
	f.bytes("resources.path", &m.Path)
	f.uint("resources.revision", &m.Revision)
	o := f.enter("resources.config")
	m.Config.fields(f)
	f.leave(o)
	f.uint("resources.rate", &m.Rate)
	f.uint("resources.burst", &m.Burst)
	f.uint("resources.demand", &m.Demand)
	f.uint("resources.target", &m.Target)
	f.uint("resources.leased", &m.Leased)
	f.uint("resources.leased burst", &m.LeasedBurst)
	f.uint("resources.remote", &m.Remote)
	f.uint("resources.level", &m.Level)
	f.uint("resources.sessions", &m.Sessions)
	f.uint("resources.callers", &m.Callers)
	f.uint("resources.waiting", &m.Waiting)
	f.uint("resources.allowed", &m.Allowed)
	f.uint("resources.denied", &m.Denied)
	f.uint("resources.waited", &m.Waited)
	f.uint("resources.impossible", &m.Impossible)
	f.uint("resources.acquires", &m.Acquires)
	f.uint("resources.unconfirmed", &m.Unconfirmed)
	f.bool("resources.served remote", &m.ServedRemote)
}

func (m *LimitSession) fields(f *fields) {
	f.uint("sessions.session", &m.Session)
	f.bytes("sessions.path", &m.Path)
	small(f, "sessions.state", &m.State)
	f.uint("sessions.rate", &m.Rate)
	f.uint("sessions.burst", &m.Burst)
	f.uint("sessions.demand", &m.Demand)
	f.uint("sessions.waiting", &m.Waiting)
	f.uint("sessions.used", &m.Used)
	f.uint("sessions.share", &m.Share)
	f.uint("sessions.lacks", &m.Lacks)
	f.uint("sessions.age", &m.Age)
	f.uint("sessions.heard", &m.Heard)
	small(f, "sessions.why", &m.Why)
	f.bytes("sessions.at", &m.At)
}

// LimitList lists the trees of a node in one shard whose names begin with the prefix. Reply:
// LimitListReply.
type LimitList struct {
	Shard  uint64
	Node   uint64
	Prefix []byte
	Cursor []byte
	Limit  uint32 // trees in the page, 0 is the server's choice
}

func (m *LimitList) fields(f *fields) {
	f.message("limit list")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.limited("prefix", &m.Prefix, "prefix of rate limits", MaxLimitPath)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// LimitItem is a tree in a list.
type LimitItem struct {
	Name         []byte
	Revision     uint64
	Config       LimitConfig // of the root
	Resources    uint64
	Participants uint64
}

// LimitListReply is a page. An empty cursor is the end.
type LimitListReply struct {
	Index  uint64
	Limits []LimitItem
	Cursor []byte
	Runs   []BucketRun // which buckets the page is about
}

func (m *LimitListReply) fields(f *fields) {
	f.message("limit list reply")
	f.uint("index", &m.Index)
	for l := list(f, "limits", 5, &m.Limits); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	bucketRuns(f, &m.Runs)
}

func (m *LimitItem) fields(f *fields) {
	f.bytes("limits.name", &m.Name)
	f.uint("limits.revision", &m.Revision)
	o := f.enter("limits.config")
	m.Config.fields(f)
	f.leave(o)
	f.uint("limits.resources", &m.Resources)
	f.uint("limits.participants", &m.Participants)
}

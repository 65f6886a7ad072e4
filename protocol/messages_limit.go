package protocol

// MaxLimitLeaves bounds the leaves of one refresh, and MaxLimitStatement the bytes of a statement.
const (
	MaxLimitLeaves    = 1_000
	MaxLimitStatement = 256
)

// resource is the path of a resource.
func (f *fields) resource(v *[]byte) {
	f.bytes("path", v)
	if f.checks() {
		f.keep(ValidateLimitPath(*v))
	}
}

// LimitCreate makes a resource of a rate limit. Its parent must exist. Reply: LimitRevision.
type LimitCreate struct {
	Head
	Path   []byte
	Config LimitConfig
	Reason string // for the audit log; left out when it is empty
}

func (m *LimitCreate) fields(f *fields) {
	f.message("limit create")
	f.head(&m.Head)
	f.resource(&m.Path)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	f.trailingReason(&m.Reason)
}

func (m *LimitCreate) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitCreate) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitCreate) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitAlter replaces the configuration of a resource. Reply: LimitRevision.
type LimitAlter struct {
	Head
	Path     []byte
	Revision uint64 // that it has, else PRECONDITION_FAILED; 0: any
	Config   LimitConfig
	Reason   string // for the audit log; left out when it is empty
}

func (m *LimitAlter) fields(f *fields) {
	f.message("limit alter")
	f.head(&m.Head)
	f.resource(&m.Path)
	f.uint("revision", &m.Revision)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	f.trailingReason(&m.Reason)
}

func (m *LimitAlter) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitAlter) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitAlter) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitRevision is the revision of a resource. One that is created again begins above the former's.
type LimitRevision struct {
	Revision uint64
}

func (m *LimitRevision) fields(f *fields) {
	f.message("limit revision")
	f.uint("revision", &m.Revision)
}

func (m *LimitRevision) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitRevision) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }

// LimitDelete removes a resource that has no children. Reply: Empty.
type LimitDelete struct {
	Head
	Path     []byte
	Revision uint64 // as in LimitAlter
	Reason   string // for the audit log; left out when it is empty
}

func (m *LimitDelete) fields(f *fields) {
	f.message("limit delete")
	f.head(&m.Head)
	f.resource(&m.Path)
	f.uint("revision", &m.Revision)
	f.trailingReason(&m.Reason)
}

func (m *LimitDelete) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitDelete) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitDelete) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitJoin has the session take part in the tree of a resource, until it leaves or ends. Reply:
// Empty.
type LimitJoin struct {
	Head
	Path []byte // of any resource of the tree
	// Again: the program took part before, under an earlier attach epoch of the session:
	// it presents the leases that it has. Without it they are counted until they end.
	Again bool
}

func (m *LimitJoin) fields(f *fields) {
	f.message("limit join")
	f.head(&m.Head)
	f.resource(&m.Path)
	f.bool("again", &m.Again)
}

func (m *LimitJoin) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitJoin) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitJoin) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitLeave ends the session's part in a tree. Reply: Empty.
type LimitLeave struct {
	Head
	Path []byte
}

func (m *LimitLeave) fields(f *fields) {
	f.message("limit leave")
	f.head(&m.Head)
	f.resource(&m.Path)
}

func (m *LimitLeave) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitLeave) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitLeave) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitRefresh asks for leases of leaves of a tree. A client takes the reply to its last refresh
// alone, and believes a lease for 0.85 of its length from when it sent the refresh. Reply:
// LimitRefreshReply.
type LimitRefresh struct {
	Session uint64
	Path    []byte // of any resource of the tree
	Seq     uint64 // rises with each refresh of the session for the tree

	// The leadership of the latest reply that the client has taken; zero before the first.
	BucketEpoch, LeaderEpoch uint64
	Leaves                   []LimitLeaf
}

// LimitLeaf is what a client says of one leaf. Amounts are in thousandths of a unit.
type LimitLeaf struct {
	Path      []byte
	Demand    uint64 // rate that it wants, in thousandths of a unit per second
	Waiting   uint64 // amount that callers wait for
	Need      uint64 // the largest amount of one call since the last refresh
	Statement []byte // of the lease that the client uses; empty: it uses none
	Allowed   uint64 // amounts since the limiter was opened
	Denied    uint64
	Waited    uint64
	Closed    bool // the client uses the leaf no more, and has no lease of it
}

func (m *LimitRefresh) fields(f *fields) {
	f.message("limit refresh")
	f.uint("session", &m.Session)
	f.resource(&m.Path)
	f.positive("seq", &m.Seq, "seq is 0; number refreshes from 1 on")
	f.uint("bucket epoch", &m.BucketEpoch)
	f.uint("leader epoch", &m.LeaderEpoch)
	if n := len(m.Leaves); n > MaxLimitLeaves {
		f.refuse("refresh has %d leaves; at most %d are allowed", n, MaxLimitLeaves)
	}
	for l := list(f, "leaves", 8, &m.Leaves); l.next(f); {
		l.item().fields(f)
	}
}

func (m *LimitLeaf) fields(f *fields) {
	f.resource(&m.Path)
	f.uint("leaves.demand", &m.Demand)
	f.uint("leaves.waiting", &m.Waiting)
	f.uint("leaves.need", &m.Need)
	f.limited("leaves.statement", &m.Statement, "statement", MaxLimitStatement)
	f.uint("leaves.allowed", &m.Allowed)
	f.uint("leaves.denied", &m.Denied)
	f.uint("leaves.waited", &m.Waited)
	f.bool("leaves.closed", &m.Closed)
}

func (m *LimitRefresh) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitRefresh) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitRefresh) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitState says how a leaf is served.
type LimitState uint8

const (
	LimitLeased  LimitState = 0 // by the lease
	LimitRemote  LimitState = 1 // by limit_acquire
	LimitMissing LimitState = 2 // there is no such resource
	LimitInner   LimitState = 3 // it has children: use one of them
)

// LimitWhy says why a session has the rate that it has.
type LimitWhy uint8

const (
	LimitDemand   LimitWhy = 0 // it has what it asks for
	LimitShared   LimitWhy = 1 // the limit of a resource is shared
	LimitShrink   LimitWhy = 2 // others have to confirm first that they use less
	LimitLearning LimitWhy = 3 // the leader is new, and does not know yet who uses what
	LimitFew      LimitWhy = 4 // there are few units for many clients: it is served remotely
	LimitNone     LimitWhy = 5 // the resource cannot be used
)

// LimitRefreshReply has a lease for each leaf of the refresh, in its order.
type LimitRefreshReply struct {
	BucketEpoch, LeaderEpoch uint64
	Length                   uint64 // of a lease, in ms
	Again                    bool   // refresh again at once, naming this leadership
	Leaves                   []LimitLease
}

// LimitLease is the lease of one leaf. A bucket with another rate or burst than before keeps its
// level, up to the new burst; a new one is empty.
type LimitLease struct {
	State     LimitState
	Rate      uint64 // thousandths of a unit per second
	Burst     uint64 // thousandths of a unit
	Statement []byte // to be presented with the next refresh
	Most      uint64 // thousandths of a unit: a call for more can never be admitted
	Floor     uint64 // rate to use without a lease
	Shadow    bool   // admit all, and count what would be denied
	Why       LimitWhy
	At        []byte // the resource that Why is about, if any
}

func (m *LimitRefreshReply) fields(f *fields) {
	f.message("limit refresh reply")
	f.uint("bucket epoch", &m.BucketEpoch)
	f.uint("leader epoch", &m.LeaderEpoch)
	f.uint("length", &m.Length)
	f.bool("again", &m.Again)
	for l := list(f, "leaves", 9, &m.Leaves); l.next(f); {
		l.item().fields(f)
	}
}

func (m *LimitLease) fields(f *fields) {
	small(f, "leaves.state", &m.State)
	f.uint("leaves.rate", &m.Rate)
	f.uint("leaves.burst", &m.Burst)
	f.bytes("leaves.statement", &m.Statement)
	f.uint("leaves.most", &m.Most)
	f.uint("leaves.floor", &m.Floor)
	f.bool("leaves.shadow", &m.Shadow)
	small(f, "leaves.why", &m.Why)
	f.bytes("leaves.at", &m.At)
}

func (m *LimitRefreshReply) AppendBody(b []byte) []byte {
	f := encoder(b)
	m.fields(&f)
	return f.body()
}
func (m *LimitRefreshReply) DecodeBody(b []byte) error {
	f := decoder(b)
	m.fields(&f)
	return f.err()
}

// LimitAcquire takes units of a leaf that is served remotely. ABORTED: it is leased; refresh the
// lease. Reply: LimitAcquireReply.
type LimitAcquire struct {
	Session uint64
	Path    []byte
	Amount  uint64 // thousandths of a unit
	Wait    bool   // keep a place in the queue; else the amount is wanted now or not at all
}

func (m *LimitAcquire) fields(f *fields) {
	f.message("limit acquire")
	f.uint("session", &m.Session)
	f.resource(&m.Path)
	f.uint("amount", &m.Amount)
	if m.Amount > MaxLimitBurstSize {
		f.refuse("amount is %d thousandths of a unit; at most %d are allowed", m.Amount, uint64(MaxLimitBurstSize))
	}
	f.bool("wait", &m.Wait)
}

func (m *LimitAcquire) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitAcquire) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitAcquire) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitAcquireReply reports whether the amount was taken.
type LimitAcquireReply struct {
	Retry uint64 // 0: it was; else ask again after so many ms
}

func (m *LimitAcquireReply) fields(f *fields) {
	f.message("limit acquire reply")
	f.uint("retry", &m.Retry)
}

func (m *LimitAcquireReply) AppendBody(b []byte) []byte {
	f := encoder(b)
	m.fields(&f)
	return f.body()
}
func (m *LimitAcquireReply) DecodeBody(b []byte) error {
	f := decoder(b)
	m.fields(&f)
	return f.err()
}

// LimitWatch opens a stream over a tree for a session that takes part: limit_changed follows at
// once, and whenever the session is to refresh. Reply: Empty.
type LimitWatch struct {
	Node    uint64
	Path    []byte // of any resource of the tree
	Session uint64
}

func (m *LimitWatch) fields(f *fields) {
	f.message("limit watch")
	f.uint("node", &m.Node)
	f.resource(&m.Path)
	f.uint("session", &m.Session)
}

func (m *LimitWatch) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitWatch) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
func (m *LimitWatch) Validate() error            { f := checker(); m.fields(&f); return f.err() }

// LimitChanged has a client refresh at once.
type LimitChanged struct {
	Revision uint64 // of the tree
}

func (m *LimitChanged) fields(f *fields) {
	f.message("limit changed")
	f.uint("revision", &m.Revision)
}

func (m *LimitChanged) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LimitChanged) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }

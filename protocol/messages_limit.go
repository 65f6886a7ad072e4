package protocol

// Bounds of messages: the leaves of one refresh, those of one acquire, the acquires of a session that
// wait, the ms within which units are used, and the bytes of a statement. A client that uses more
// leaves sends more refreshes.
const (
	MaxLimitLeaves    = 1_000
	MaxLimitTogether  = 16
	MaxLimitHeld      = 1_024 // a share of a connection's window: withdrawals go behind the held acquires
	MaxLimitWithin    = 500
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
	Force  bool   // even if sessions use the parent, which is a leaf until then
	Reason string // for the audit log; left out when it is empty
}

func (m *LimitCreate) fields(f *fields) {
	f.message("limit create")
	f.head(&m.Head)
	f.resource(&m.Path)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	f.bool("force", &m.Force)
	f.trailingReason(&m.Reason)
}

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

// LimitRevision is the revision of a resource. One that is created again begins above the former's.
type LimitRevision struct {
	Revision uint64
}

func (m *LimitRevision) fields(f *fields) {
	f.message("limit revision")
	f.uint("revision", &m.Revision)
}

// LimitDelete removes a resource that has no children. Reply: Empty.
type LimitDelete struct {
	Head
	Path     []byte
	Revision uint64 // as in LimitAlter
	Force    bool   // even if sessions use it
	Reason   string // for the audit log; left out when it is empty
}

func (m *LimitDelete) fields(f *fields) {
	f.message("limit delete")
	f.head(&m.Head)
	f.resource(&m.Path)
	f.uint("revision", &m.Revision)
	f.bool("force", &m.Force)
	f.trailingReason(&m.Reason)
}

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

// LimitRefresh asks for leases of leaves of a tree. A client takes the reply to its last refresh
// alone, and believes a lease for 0.85 of its length from when it sent the refresh. Reply:
// LimitRefreshReply.
type LimitRefresh struct {
	Session uint64
	Path    []byte // of any resource of the tree
	Seq     uint64 // rises with each refresh of the session for the tree

	// The leadership of the latest reply that the client has taken; zero before the first.
	BucketEpoch, LeaderEpoch uint64

	// The first acquire that the client waits for, or whose units it may still use; it wants nothing of
	// those before.
	Open   uint64
	Leaves []LimitLeaf
}

// LimitLeaf is a client's report on one leaf. Amounts are in thousandths of a unit.
type LimitLeaf struct {
	Path      []byte
	Demand    uint64 // rate that it wants, in thousandths of a unit per second
	Waiting   uint64 // amount that callers wait for
	Need      uint64 // the largest amount of one call since the last refresh
	Statement []byte // of the lease that the client uses; empty: it uses none
	Allowed   uint64 // amounts since the limiter was opened
	Denied    uint64
	Waited    uint64

	Impossible uint64 // amounts of calls that can never be admitted
	Elsewhere  bool   // its first call waits for another limit alone
	Closed     bool   // the client uses the leaf no more, and has no lease of it
}

func (m *LimitRefresh) fields(f *fields) {
	f.message("limit refresh")
	f.uint("session", &m.Session)
	f.resource(&m.Path)
	f.positive("seq", &m.Seq, "seq is 0; number refreshes from 1 on")
	f.uint("bucket epoch", &m.BucketEpoch)
	f.uint("leader epoch", &m.LeaderEpoch)
	f.uint("open", &m.Open)
	if n := len(m.Leaves); n > MaxLimitLeaves {
		f.refuse("refresh has %d leaves; at most %d are allowed", n, MaxLimitLeaves)
	}
	for l := list(f, "leaves", 11, &m.Leaves); l.next(f); {
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
	f.uint("leaves.impossible", &m.Impossible)
	f.bool("leaves.elsewhere", &m.Elsewhere)
	f.bool("leaves.closed", &m.Closed)
}

// LimitState is how a leaf is served.
type LimitState uint8

const (
	LimitLeased  LimitState = 0 // by the lease
	LimitRemote  LimitState = 1 // by limit_acquire
	LimitMissing LimitState = 2 // the resource does not exist
	LimitInner   LimitState = 3 // it has children: use one of them
)

// LimitWhy is the reason for a session's rate.
type LimitWhy uint8

const (
	LimitDemand    LimitWhy = 0  // its demand is met
	LimitWeight    LimitWhy = 1  // others share the resource with it, by weight
	LimitLearning  LimitWhy = 3  // the leader is new, and does not know the demand yet
	LimitNone      LimitWhy = 5  // the resource cannot be used
	LimitCap       LimitWhy = 9  // it has all that the resource may have
	LimitBurst     LimitWhy = 10 // the burst of the resource is too small for its calls
	LimitElsewhere LimitWhy = 11 // its calls wait for another resource, or another tree
	LimitSilent    LimitWhy = 12 // it was not heard of for longer than its lease lasts
)

// LimitRefreshReply has a lease for each leaf of the refresh, in its order.
type LimitRefreshReply struct {
	BucketEpoch, LeaderEpoch uint64
	Length                   uint64 // of the lease of a session that began long ago, in ms
	Again                    bool   // refresh again at once: so the server knows which leases are in use
	Leaves                   []LimitLease
	Clock                    uint64 // the leader's, in ms: it was not later when the refresh was sent
}

// LimitLease is the lease of one leaf. A bucket with another rate or burst than before keeps its
// level, up to the new burst, and a new one is empty; then the level of the lease is added. One
// without a rate is for the units that it comes with.
type LimitLease struct {
	State     LimitState
	Rate      uint64 // thousandths of a unit per second
	Burst     uint64 // thousandths of a unit; 0: there is no lease
	Length    uint64 // ms
	Level     uint64 // thousandths of a unit
	Statement []byte // to be presented with the next refresh
	Most      uint64 // thousandths of a unit: a call for more can never be admitted
	Limit     uint64 // rate of the resource, in force
	Floor     uint64 // rate to use without a lease
	Shadow    bool   // admit all, and count the calls that would be denied
	Why       LimitWhy
	At        []byte // the resource that Why is about, if any
}

func (m *LimitRefreshReply) fields(f *fields) {
	f.message("limit refresh reply")
	f.uint("bucket epoch", &m.BucketEpoch)
	f.uint("leader epoch", &m.LeaderEpoch)
	f.uint("length", &m.Length)
	f.bool("again", &m.Again)
	for l := list(f, "leaves", 12, &m.Leaves); l.next(f); {
		l.item().fields(f)
	}
	f.uint("clock", &m.Clock)
}

func (m *LimitLease) fields(f *fields) {
	small(f, "leaves.state", &m.State)
	f.uint("leaves.rate", &m.Rate)
	f.uint("leaves.burst", &m.Burst)
	f.uint("leaves.length", &m.Length)
	f.uint("leaves.level", &m.Level)
	f.bytes("leaves.statement", &m.Statement)
	f.uint("leaves.most", &m.Most)
	f.uint("leaves.limit", &m.Limit)
	f.uint("leaves.floor", &m.Floor)
	f.bool("leaves.shadow", &m.Shadow)
	small(f, "leaves.why", &m.Why)
	f.bytes("leaves.at", &m.At)
}

// LimitAcquire takes units of leaves of a tree from the leader, to be used at once. Its call takes its
// amount of all the leaves, or of none. The leader holds it until the call is admitted. A client uses
// the units before the time of the leader's clock that the reply names, and only if it has taken no
// reply of a later leadership. It knows the clock by refreshes: this was not later when it sent one.
// Reply: LimitAcquireReply.
type LimitAcquire struct {
	Session uint64
	Path    []byte // of any resource of the tree
	Seq     uint64 // rises with each acquire of the session for the tree
	Leaves  []LimitNeed
	Amount  uint64 // of the call, in thousandths of a unit
	Hold    bool   // until the call is admitted; else it is answered at once

	// Back returns the units of the acquire with this number: the grant came too late, or another
	// tree refused its part of the call. An acquire that is still held is answered. The request
	// acquires nothing then; 0: it acquires.
	Back uint64
	Used uint64 // the units of the acquire with this number are used; without leaves it acquires nothing
}

// LimitNeed is a leaf with the wanted units.
type LimitNeed struct {
	Path   []byte
	Demand uint64 // rate that the client wants, in thousandths of a unit per second
}

func (m *LimitAcquire) fields(f *fields) {
	f.message("limit acquire")
	f.uint("session", &m.Session)
	f.resource(&m.Path)
	f.uint("seq", &m.Seq)
	asks := f.checks() && m.Back == 0 && (m.Used == 0 || len(m.Leaves) > 0)
	if asks && m.Seq == 0 {
		f.refuse("an acquire has no number; number acquires upwards, from 1 on")
	}
	if n := len(m.Leaves); n > MaxLimitTogether || n == 0 && asks {
		f.refuse("an acquire names %d leaves; 1 to %d are allowed", n, MaxLimitTogether)
	}
	for l := list(f, "leaves", 2, &m.Leaves); l.next(f); {
		x := l.item()
		f.resource(&x.Path)
		f.uint("leaves.demand", &x.Demand)
	}
	if f.uint("amount", &m.Amount); m.Amount > MaxLimitBurstSize {
		f.refuse("a call is for %s; at most %s are allowed", LimitUnits(m.Amount), LimitUnits(MaxLimitBurstSize))
	}
	f.bool("hold", &m.Hold)
	f.uint("back", &m.Back)
	f.uint("used", &m.Used)
}

// LimitAcquireReply answers a call that is admitted, or will not be.
type LimitAcquireReply struct {
	Granted bool   // the call is admitted
	Retry   uint64 // of one that is not: ms after which its units could be there

	BucketEpoch, LeaderEpoch uint64 // the leadership

	Until uint64 // time of the leader's clock until which the units are used, in ms
}

func (m *LimitAcquireReply) fields(f *fields) {
	f.message("limit acquire reply")
	f.bool("granted", &m.Granted)
	f.uint("retry", &m.Retry)
	f.uint("bucket epoch", &m.BucketEpoch)
	f.uint("leader epoch", &m.LeaderEpoch)
	f.uint("until", &m.Until)
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

// LimitChanged has a client refresh at once.
type LimitChanged struct {
	Revision uint64 // of the tree
}

func (m *LimitChanged) fields(f *fields) {
	f.message("limit changed")
	f.uint("revision", &m.Revision)
}

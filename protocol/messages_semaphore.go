package protocol

import "encoding/binary"

// Head starts the body of every request on a session that changes something. Seq rises by one with
// each such request of the session, over all buckets; Low is the lowest open number: it is neither
// answered (queued answers an acquire) nor given up. Requests are applied at most once: a number
// that was applied is answered as the first time.
type Head struct {
	Session uint64
	Seq     uint64
	Low     uint64
}

// ConfigPrefix begins the names of the semaphores that hold configurations, by a convention of
// clients. The audit log has a line of each request that changes one.
const ConfigPrefix = "$config/"

// Create makes a persistent semaphore. Reply: UpdateReply.
type Create struct {
	Head
	Name  []byte
	Limit uint64
	Data  []byte

	Options *SemaphoreOptions // left out of a plain semaphore
	Reason  string            // for the audit log; left out when it is empty
}

func (m *Create) fields(f *fields) {
	f.message("create")
	f.head(&m.Head)
	f.name(&m.Name)
	f.limit(&m.Limit)
	f.data("data", &m.Data)
	if o, ok := trailing(f, "options", &m.Options); ok {
		m.Options.fields(f)
		f.leave(o)
		if f.checks() {
			if wrong := m.Options.Fit(m.Limit); wrong != "" {
				f.refuse("%s", wrong)
			}
		}
	} else if m.Reason != "" {
		f.absent()
	}
	f.trailingReason(&m.Reason)
}

// Update replaces a semaphore's data. Reply: UpdateReply.
type Update struct {
	Head
	Name     []byte
	Data     []byte
	Expected uint64 // the version it must have, 0 for any; else PRECONDITION_FAILED
	Reason   string // for the audit log; left out when it is empty
}

func (m *Update) fields(f *fields) {
	f.message("update")
	f.head(&m.Head)
	f.name(&m.Name)
	f.data("data", &m.Data)
	f.uint("expected", &m.Expected)
	f.trailingReason(&m.Reason)
}

// UpdateReply says the version after a create or an update. It rises with each change of the bytes,
// and never repeats for a name, through deletions and restores.
type UpdateReply struct {
	Version uint64
}

func (m *UpdateReply) fields(f *fields) {
	f.message("update reply")
	f.uint("version", &m.Version)
}

// Resize changes a limit. Reply: Empty.
type Resize struct {
	Head
	Name     []byte
	Limit    uint64
	Reason   string // for the audit log; may be empty
	Expected uint64 // the version that its data must have, else PRECONDITION_FAILED; left out for any
}

func (m *Resize) fields(f *fields) {
	f.message("resize")
	f.head(&m.Head)
	f.name(&m.Name)
	f.limit(&m.Limit)
	f.text("reason", &m.Reason, "reason", MaxDescriptionLen)
	f.trailingUint("expected", &m.Expected)
}

// Delete removes a semaphore. Reply: Empty.
type Delete struct {
	Head
	Name     []byte
	Force    bool
	Reason   string // for the audit log; left out when it is empty and Expected is
	Expected uint64 // the version that its data must have, else PRECONDITION_FAILED; left out for any
}

func (m *Delete) fields(f *fields) {
	f.message("delete")
	f.head(&m.Head)
	f.name(&m.Name)
	f.bool("force", &m.Force)
	if m.Expected == 0 {
		f.trailingReason(&m.Reason)
	} else {
		f.text("reason", &m.Reason, "reason", MaxDescriptionLen)
	}
	f.trailingUint("expected", &m.Expected)
}

// Acquire sets the units that the session holds or waits for. Reply: AcquireReply; when queued, an
// AcquireResult follows later.
type Acquire struct {
	Head
	Name      []byte
	Count     uint64
	Timeout   uint64 // ms, or Forever
	Data      []byte
	Ephemeral bool

	Options *AcquireOptions // left out of a plain acquire
}

// AcquireState is an outcome of an acquire.
type AcquireState uint8

const (
	Acquired    AcquireState = 1
	NotAcquired AcquireState = 2 // the timeout ended
	Queued      AcquireState = 3 // it waits; the result comes as an event
)

// AcquireReply answers an acquire.
type AcquireReply struct {
	State   AcquireState
	OrderID uint64 // fencing token when acquired, place in the queue when queued
	Grant   *Grant // left out for units of a plain semaphore, and for a plain place in a queue
}

// AcquireResult ends a queued acquire: the request with this number.
type AcquireResult struct {
	Session uint64
	Seq     uint64
	Status  Status // OK, or ABORTED, or SESSION_EXPIRED
	State   AcquireState
	OrderID uint64
	Message string
	Grant   *Grant // when acquired; left out for units of a plain semaphore
}

// Release gives the units back, or leaves the queue. Reply: ReleaseReply.
type Release struct {
	Head
	Name    []byte
	OrderID uint64 // only if this is the entry's order id; 0 for any

	// To is the session that gets the units, past all ahead of it in the queue: if it waits there
	// for no more than is given back, and for slots that are free then. Otherwise the release is an
	// ordinary one. 0, left out: no session.
	To uint64

	// Bound is the bound that ended the hold at its owner, HoldMaxHold or HoldPreempted, for the
	// history. 0, left out: the owner gives the units back by itself.
	Bound HoldEnd
}

// ReleaseReply reports whether there was anything to release.
type ReleaseReply struct {
	Released    bool
	Transferred bool // to the session that the release named; left out if not
}

// ForceRelease takes leases away from owners while their sessions live: an operator's request,
// which needs the right admin. It is about the owners whose order ids are First to Last, both
// included. Order ids rise with each grant, so a late copy of it frees no later grant. Waiters are
// granted the freed units at once: an owner that cannot be notified goes on believing until it is
// heard of again or its session's timeout is over. Reply: ForceReleaseReply.
type ForceRelease struct {
	Node   uint64
	Name   []byte
	First  uint64 // at least 1
	Last   uint64
	Reason string // for the owners and the records; not empty
}

func (m *ForceRelease) fields(f *fields) {
	f.message("force release")
	f.uint("node", &m.Node)
	f.name(&m.Name)
	f.uint("first", &m.First)
	f.uint("last", &m.Last)
	if m.First == 0 || m.First > m.Last {
		f.refuse("order ids %d to %d are none; give the token of the lease as first and last, and tokens begin at 1",
			m.First, m.Last)
	}
	f.reason(&m.Reason)
}

// ForceReleaseReply is how many owners lost their leases by this copy of the request. 0: no owner
// had such an order id, or not any more: an earlier copy may have taken all.
type ForceReleaseReply struct {
	Released uint64
}

func (m *ForceReleaseReply) fields(f *fields) {
	f.message("force release reply")
	f.uint("released", &m.Released)
}

// DeletedByForce is the message of a LeaseLost whose semaphore was deleted.
const DeletedByForce = "semaphore was deleted by force; create it again before the next acquire"

// LeaseLost notifies an owner that its lease ended while the session lives: it was taken away, or
// it reached its bound.
type LeaseLost struct {
	Session uint64
	Name    []byte
	OrderID uint64
	Message string
	Cause   HoldEnd // HoldMaxHold or HoldPreempted; left out when it was taken away by force
}

func (m *LeaseLost) fields(f *fields) {
	f.message("lease lost")
	f.uint("session", &m.Session)
	f.bytes("name", &m.Name)
	f.uint("order id", &m.OrderID)
	f.str("message", &m.Message)
	if f.pass == decode {
		m.Cause = 0
	}
	if m.Cause != 0 || f.in.left > 0 {
		small(f, "cause", &m.Cause)
	}
}

// Flags of Describe and Watch.
const (
	WithOwners uint8 = 1 << iota
	WithWaiters
	WatchData
	WatchOwners
	WithSlots // of a semaphore that has slots, on the first page
)

// Describe reads a semaphore, a page at a time. With WatchData or WatchOwners, on the first page,
// it arms the session's one-shot watch on it, atomically with the read. Reply: DescribeReply.
type Describe struct {
	Session     uint64 // whose watch; may be 0 without watch flags
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte // of the page before, or of DescribeCursor
	Limit       uint32 // entries in the page, 0 is the server's choice; the server also bounds its bytes
	WatchID     uint64 // chosen by the client; comes back in WatchFired
}

func (m *Describe) fields(f *fields) {
	f.message("describe")
	f.uint("session", &m.Session)
	f.uint("node", &m.Node)
	f.name(&m.Name)
	f.flags(&m.Flags, WithOwners|WithWaiters|WatchData|WatchOwners|WithSlots, "describe")
	if m.Flags&(WatchData|WatchOwners) != 0 && m.Session == 0 {
		f.refuse("describe asks for a watch without a session; name the session that watches")
	}
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
	f.uint("watch id", &m.WatchID)
}

// DescribeCursor is the cursor of a page that begins behind an order id: with the owners behind it,
// if owners is set and the request includes them, and then the waiters; else with the waiters
// behind it.
func DescribeCursor(owners bool, after uint64) []byte {
	list := byte(2)
	if owners {
		list = 1
	}
	return binary.BigEndian.AppendUint64([]byte{list}, after)
}

// DescribeReply is a page of a description.
type DescribeReply struct {
	Index      uint64 // log index of the shard the page was read at
	Revision   uint64 // log index of the last change to the semaphore; pages with equal revisions fit together
	Name       []byte
	Data       []byte // first page only
	Version    uint64
	Used       uint64
	Limit      uint64
	Ephemeral  bool
	CreatedAt  uint64
	NumOwners  uint64
	NumWaiters uint64
	Owners     []Owner
	Waiters    []Waiter
	Cursor     []byte
	Details    *SemaphoreDetails // left out of a plain semaphore
}

func (m *DescribeReply) fields(f *fields) {
	f.message("describe reply")
	f.uint("index", &m.Index)
	f.uint("revision", &m.Revision)
	f.bytes("name", &m.Name)
	f.bytes("data", &m.Data)
	f.uint("version", &m.Version)
	f.uint("used", &m.Used)
	f.uint("limit", &m.Limit)
	f.bool("ephemeral", &m.Ephemeral)
	f.uint("created at", &m.CreatedAt)
	f.uint("num owners", &m.NumOwners)
	f.uint("num waiters", &m.NumWaiters)
	for l := list(f, "owners", 6, &m.Owners); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "waiters", 7, &m.Waiters); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	if o, ok := trailing(f, "details", &m.Details); ok {
		m.Details.fields(f)
		f.leave(o)
	}
}

// Owner holds units.
type Owner struct {
	OrderID     uint64
	Session     uint64
	Count       uint64
	Data        []byte
	Description string
	Since       uint64 // wall clock of the grant, ms since 1970
	Options     *OwnerOptions
}

func (m *Owner) fields(f *fields) {
	f.uint("owner.order id", &m.OrderID)
	f.uint("owner.session", &m.Session)
	f.uint("owner.count", &m.Count)
	f.bytes("owner.data", &m.Data)
	f.str("owner.description", &m.Description)
	f.uint("owner.since", &m.Since)
	if o, ok := trailing(f, "owner.options", &m.Options); ok {
		m.Options.fields(f)
		f.leave(o)
	}
}

// Waiter waits for units, in queue order.
type Waiter struct {
	OrderID     uint64
	Session     uint64
	Count       uint64
	Data        []byte
	Description string
	Since       uint64 // wall clock of the request
	Timeout     uint64 // ms, as requested
	Options     *WaiterOptions
}

func (m *Waiter) fields(f *fields) {
	f.uint("waiter.order id", &m.OrderID)
	f.uint("waiter.session", &m.Session)
	f.uint("waiter.count", &m.Count)
	f.bytes("waiter.data", &m.Data)
	f.str("waiter.description", &m.Description)
	f.uint("waiter.since", &m.Since)
	f.uint("waiter.timeout", &m.Timeout)
	if o, ok := trailing(f, "waiter.options", &m.Options); ok {
		m.Options.fields(f)
		f.leave(o)
	}
}

// WatchFired is the end of a one-shot watch. Neither flag set means: something may have been
// missed, or a newer watch replaced it.
type WatchFired struct {
	Session       uint64
	WatchID       uint64
	DataChanged   bool
	OwnersChanged bool
}

func (m *WatchFired) fields(f *fields) {
	f.message("watch fired")
	f.uint("session", &m.Session)
	f.uint("watch id", &m.WatchID)
	f.bool("data changed", &m.DataChanged)
	f.bool("owners changed", &m.OwnersChanged)
}

// List lists semaphores of a node in one shard, by name prefix, in order of name. Reply: ListReply.
type List struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Session     uint64 // if not 0: only those this session owns or waits for, with its entry
	Cursor      []byte // the name that the page begins behind; empty: the first page
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
}

func (m *List) fields(f *fields) {
	f.message("list")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.limited("prefix", &m.Prefix, "semaphore name", MaxNameLen)
	f.uint("session", &m.Session)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
}

// ListReply is a page. An empty cursor is the end. The last fields are the node's use of its
// quotas in this shard.
type ListReply struct {
	Index          uint64
	Semaphores     []ListItem
	Cursor         []byte
	UsedSessions   uint64 // at home in this shard
	UsedSemaphores uint64 // processes and tracks too
	UsedBytes      uint64
	UsedWaiters    uint64
	Runs           []BucketRun // which buckets the page is about
}

func (m *ListReply) fields(f *fields) {
	f.message("list reply")
	f.uint("index", &m.Index)
	for l := list(f, "semaphores", 11, &m.Semaphores); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	f.uint("used sessions", &m.UsedSessions)
	f.uint("used semaphores", &m.UsedSemaphores)
	f.uint("used bytes", &m.UsedBytes)
	f.uint("used waiters", &m.UsedWaiters)
	bucketRuns(f, &m.Runs)
}

// ListItem is a semaphore in a list.
type ListItem struct {
	Name       []byte
	Limit      uint64
	Used       uint64
	Ephemeral  bool
	Version    uint64
	DataLen    uint64
	NumOwners  uint64
	NumWaiters uint64
	OrderID    uint64 // of the asked session's entry
	Count      uint64 // of the asked session's entry
	Waiting    bool   // the asked session waits
}

func (m *ListItem) fields(f *fields) {
	f.bytes("semaphores.name", &m.Name)
	f.uint("semaphores.limit", &m.Limit)
	f.uint("semaphores.used", &m.Used)
	f.bool("semaphores.ephemeral", &m.Ephemeral)
	f.uint("semaphores.version", &m.Version)
	f.uint("semaphores.data len", &m.DataLen)
	f.uint("semaphores.num owners", &m.NumOwners)
	f.uint("semaphores.num waiters", &m.NumWaiters)
	f.uint("semaphores.order id", &m.OrderID)
	f.uint("semaphores.count", &m.Count)
	f.bool("semaphores.waiting", &m.Waiting)
}

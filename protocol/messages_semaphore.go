package protocol

// Head starts the body of every request on a session that changes something. Seq rises by one with each such request of the session, over all
// buckets; Low is the lowest number whose answer the client has not got (accepted answers an acquire). Requests are applied at most once: a number that was
// applied is answered as the first time.
type Head struct {
	Session uint64
	Seq     uint64
	Low     uint64
}

// Create makes a persistent semaphore. Reply: Empty.
type Create struct {
	Head
	Name  []byte
	Limit uint64
	Data  []byte
}

// Update replaces a semaphore's data. Reply: UpdateReply.
type Update struct {
	Head
	Name     []byte
	Data     []byte
	Expected uint64 // the version it must have, 0 for any; else PRECONDITION_FAILED
}

// UpdateReply says the version after the update. The version starts at 1 and rises with each change of the bytes.
type UpdateReply struct {
	Version uint64
}

// Resize changes a limit. Reply: Empty.
type Resize struct {
	Head
	Name  []byte
	Limit uint64
}

// Delete removes a semaphore. Reply: Empty.
type Delete struct {
	Head
	Name  []byte
	Force bool
}

// Acquire sets what the session holds or waits for. Reply: AcquireReply; when accepted, an AcquireResult follows later.
type Acquire struct {
	Head
	Name      []byte
	Count     uint64
	Timeout   uint64 // ms, or Forever
	Data      []byte
	Ephemeral bool
}

// AcquireState is an outcome of an acquire.
type AcquireState uint8

const (
	Acquired    AcquireState = 1
	NotAcquired AcquireState = 2 // the timeout ended
	Accepted    AcquireState = 3 // queued; the result comes as an event
)

// AcquireReply answers an acquire.
type AcquireReply struct {
	State   AcquireState
	OrderID uint64 // fencing token when acquired, place in the queue when accepted
}

// AcquireResult ends an accepted acquire: the request with this number.
type AcquireResult struct {
	Session uint64
	Seq     uint64
	Status  Status // OK, or ABORTED, or SESSION_EXPIRED
	State   AcquireState
	OrderID uint64
	Message string
}

// Release gives back what is held, or leaves the queue. Reply: ReleaseReply.
type Release struct {
	Head
	Name    []byte
	OrderID uint64 // only if this is the entry's order id; 0 for any
}

// ReleaseReply says whether there was anything to release.
type ReleaseReply struct {
	Released bool
}

// ForceRelease takes leases away from owners while their sessions live: an operator's, and it needs the right admin. It is about the owners whose order ids are First
// to Last, both included. Order ids rise with each grant, so a copy of it that comes late frees nothing that was granted since. Who waits is granted what became free at
// once: an owner that cannot be told goes on believing until it is heard of again or its session's timeout is over. Reply: ForceReleaseReply.
type ForceRelease struct {
	Node   uint64
	Name   []byte
	First  uint64 // at least 1
	Last   uint64
	Reason string // for the owners and the records; not empty
}

// ForceReleaseReply says how many owners lost their leases. 0: there was none with such an order id, or not any more.
type ForceReleaseReply struct {
	Released uint64
}

// LeaseLost tells an owner that its lease was taken away while the session lives.
type LeaseLost struct {
	Session uint64
	Name    []byte
	OrderID uint64
	Message string
}

// Flags of Describe and Watch.
const (
	WithOwners uint8 = 1 << iota
	WithWaiters
	WatchData
	WatchOwners
)

// Describe reads a semaphore, a page at a time. With WatchData or WatchOwners, on the first page, it arms the session's one-shot watch
// on it, atomically with the read. Reply: DescribeReply.
type Describe struct {
	Session     uint64 // whose watch; may be 0 without watch flags
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte
	Limit       uint32 // entries in the page, 0 is the server's choice; the server also bounds its bytes
	WatchID     uint64 // chosen by the client; comes back in WatchFired
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
}

// Owner holds units.
type Owner struct {
	OrderID     uint64
	Session     uint64
	Count       uint64
	Data        []byte
	Description string
	Since       uint64 // wall clock of the grant, ms since 1970
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
}

// WatchFired is the end of a one-shot watch. Neither flag set means: something may have been missed, or a newer watch replaced it.
type WatchFired struct {
	Session       uint64
	WatchID       uint64
	DataChanged   bool
	OwnersChanged bool
}

// List lists semaphores of a node in one shard, by name prefix, in order of name. Reply: ListReply.
type List struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Session     uint64 // if not 0: only those this session owns or waits for, with its entry
	Cursor      []byte
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
}

// ListReply is a page. An empty cursor is the end.
type ListReply struct {
	Index      uint64
	Semaphores []ListItem
	Cursor     []byte
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

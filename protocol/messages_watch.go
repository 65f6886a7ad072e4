package protocol

// Watch opens a stream over one name or all names with a prefix, of one shard. Reply: Empty; then
// Snapshot pages with the request's id as watch id, the last one marked, then Deltas. A client with
// several streams of a shard on one connection gets each Delta once and hands it to all that match.
type Watch struct {
	Shard  uint64
	Node   uint64
	Name   []byte // or the prefix; may be empty with Prefix
	Prefix bool

	// Known and Epoch let the stream of one name resume: the state that the client knows from an
	// earlier stream of this shard. Known is the index of the last Delta of the name, or of the
	// first page of the snapshot if no Delta has come since; Epoch is that of the first page. 0: no
	// state.
	Known uint64
	Epoch uint64
}

func (m *Watch) fields(f *fields) {
	f.message("watch")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.limited("name", &m.Name, "semaphore name", MaxNameLen)
	f.bool("prefix", &m.Prefix)
	f.uint("known", &m.Known)
	f.uint("epoch", &m.Epoch)
	if !m.Prefix && len(m.Name) == 0 {
		f.refuse("semaphore name is empty; it must be 1 to %d bytes long", MaxNameLen)
	}
}

// Unwatch closes a stream. Reply: Empty.
type Unwatch struct {
	WatchID uint64 // the request id of its Watch
}

func (m *Unwatch) fields(f *fields) {
	f.message("unwatch")
	f.uint("watch id", &m.WatchID)
}

// Snapshot is a page of the state. First resets all that the stream knew: it starts a stream, and
// starts it again when the connection had fallen behind or the server had to. Pages come in order
// of name, each read at its own Index, and each covers the names after the last name of the page
// before it up to its own last name; the last page covers all that follow. A name that is covered
// and not in the page does not exist.
//
// Deltas arrive between the pages. The rule for a stream: a Delta of a name that its pages have
// covered is applied, in the order of arrival; a Delta of a name beyond the last page's last name
// is ignored, for a later page has it. Nothing is missed that way. A Delta that arrives after the
// page that covered its name may repeat what the page has; then it repeats the newest of it too,
// and applying it is right. (One whose Index is not above that page's, the first of them for a
// semaphore whose owners go over several pages, holds nothing new.)
//
// The first page of a prefix says in Runs which buckets the shard serves, and under which epochs.
// That is all the snapshot and the deltas behind it speak for: a name that they do not have, of a
// bucket that the shard does not serve, may be there in another shard, before or after its bucket
// has moved. Of two shards that serve a bucket, by what they have told, the one with the higher
// epoch is right. When the runs change, the stream starts again.
//
// The first page of one name says in Epoch under which epoch its bucket is served. A lower one than
// that of an earlier stream is from a replica that has not heard of later moves: open elsewhere.
//
// A stream that was opened with Known may be answered with Resumed: the only page then has no
// semaphores, resets nothing, and has in Deltas all that happened to the name since, as frames of
// Deltas. They are applied in order, to this stream alone; other Deltas follow them. A replica that
// has not applied Known yet cuts the stream with UNAVAILABLE: open elsewhere, or a moment later.
type Snapshot struct {
	Index      uint64
	First      bool
	Last       bool
	Semaphores []SnapshotItem
	Runs       []BucketRun // of all buckets from 0, in order; empty in other pages, and in the stream of one name
	Epoch      uint64      // of the name's bucket; 0 in other pages, and in the stream of a prefix
	Resumed    bool        // the client has the state before Deltas
	Deltas     []byte      // of a page with Resumed: frames, each with its length
}

// snapshotFields is how many fields a Snapshot has.
const snapshotFields = 8

func (m *Snapshot) fields(f *fields) {
	f.message("snapshot")
	f.uint("index", &m.Index)
	f.bool("first", &m.First)
	f.bool("last", &m.Last)
	for l := list(f, "semaphores", 6, &m.Semaphores); l.next(f); {
		l.item().fields(f)
	}
	bucketRuns(f, &m.Runs)
	f.uint("epoch", &m.Epoch)
	f.bool("resumed", &m.Resumed)
	f.bytes("deltas", &m.Deltas)
}

// BucketRun is the Count buckets of the tier that follow the run before. All runs of a shard, from
// bucket 0 on, say which buckets the shard serves. A page of a list has only semaphores in those.
// So pages of all shards are complete if their runs together have every bucket, and the runs of a
// shard were the same in all its pages. A list without runs is from a server that does not know
// them.
type BucketRun struct {
	Count uint32
	Epoch uint64 // of the buckets; 0: the shard does not serve them
}

func bucketRuns(f *fields, runs *[]BucketRun) {
	for l := list(f, "runs", 2, runs); l.next(f); {
		l.item().fields(f)
	}
}

func (m *BucketRun) fields(f *fields) {
	f.uint32("runs.count", &m.Count)
	f.uint("runs.epoch", &m.Epoch)
}

// SnapshotItem is a semaphore. A semaphore with many owners comes as several items with the same
// name in a row, also from one page to the next. Only the first has its data; the others add to its
// owners and say nothing else that is to be used. (One whose first was undone by a delta since is
// followed by a delta that makes it again.)
type SnapshotItem struct {
	Name      []byte
	Limit     uint64
	Ephemeral bool
	Version   uint64
	Data      []byte
	Owners    []Owner
}

func (m *SnapshotItem) fields(f *fields) {
	f.bytes("semaphores.name", &m.Name)
	f.uint("semaphores.limit", &m.Limit)
	f.bool("semaphores.ephemeral", &m.Ephemeral)
	f.uint("semaphores.version", &m.Version)
	f.bytes("semaphores.data", &m.Data)
	for l := list(f, "semaphores.owners", 6, &m.Owners); l.next(f); {
		l.item().fields(f)
	}
}

// SemaphoreChangeKind of a delta.
type SemaphoreChangeKind uint8

const (
	ChangeCreated      SemaphoreChangeKind = 1 // Limit, Ephemeral, Version, Data
	ChangeDeleted      SemaphoreChangeKind = 2
	ChangeData         SemaphoreChangeKind = 3 // Version, Data
	ChangeLimit        SemaphoreChangeKind = 4 // Limit
	ChangeOwnerAdded   SemaphoreChangeKind = 5 // Owner
	ChangeOwnerChanged SemaphoreChangeKind = 6 // Owner
	ChangeOwnerRemoved SemaphoreChangeKind = 7 // Owner.OrderID, Owner.Session
	ChangeOptions      SemaphoreChangeKind = 8 // options or slots, which a describe has
)

// SemaphoreChange is one step of a delta. Data is always sent in deltas.
type SemaphoreChange struct {
	Kind      SemaphoreChangeKind
	Limit     uint64
	Ephemeral bool
	Version   uint64
	Data      []byte
	Owner     Owner
}

func (m *SemaphoreChange) fields(f *fields) {
	small(f, "changes.kind", &m.Kind)
	f.uint("changes.limit", &m.Limit)
	f.bool("changes.ephemeral", &m.Ephemeral)
	f.uint("changes.version", &m.Version)
	f.bytes("changes.data", &m.Data)
	o := f.enter("changes.owner")
	m.Owner.fields(f)
	f.leave(o)
}

// Delta is the changes of one semaphore, coalesced up to the log index Index. Applied in order to
// any state of the semaphore between its first change and Index, the changes give the state at
// Index: Created replaces the whole state, a change of a missing semaphore and the removal of a
// missing owner do nothing, the addition of an existing owner replaces it. A delta with much data
// comes as several with the same Index.
type Delta struct {
	Node    uint64
	Name    []byte
	Index   uint64
	Changes []SemaphoreChange
}

func (m *Delta) fields(f *fields) {
	f.message("delta")
	f.uint("node", &m.Node)
	f.bytes("name", &m.Name)
	f.uint("index", &m.Index)
	for l := list(f, "changes", 6, &m.Changes); l.next(f); {
		l.item().fields(f)
	}
}

// DecodeBodyAgain is DecodeBody into the memory of the changes that were decoded before, which
// nothing may use any more.
func (m *Delta) DecodeBodyAgain(b []byte) error {
	f := decoder(b)
	f.reuse = true
	m.fields(&f)
	return f.err()
}

// StreamCut ends a stream that the server cannot go on serving: bucket moved, leader lost, replica
// cut off from the others, too slow a reader, node dropped.
type StreamCut struct {
	Status  Status
	Message string
}

func (m *StreamCut) fields(f *fields) {
	f.message("stream cut")
	small(f, "status", &m.Status)
	f.str("message", &m.Message)
}

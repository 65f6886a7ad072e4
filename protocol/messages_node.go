package protocol

import "fmt"

// Consistency of reads and attaches of a node.
type Consistency uint8

const (
	ConsistencyDefault Consistency = 0 // in a request: the node's setting; in an alter: back to the default
	Strict             Consistency = 1
	Relaxed            Consistency = 2
)

// CountersMode of a node.
type CountersMode uint8

const (
	CountersDefault    CountersMode = 0
	CountersAggregated CountersMode = 1
	CountersDetailed   CountersMode = 2
)

// Field bits of NodeConfig: which fields an alter gives.
const (
	FieldSelfCheckPeriod uint32 = 1 << iota
	FieldGracePeriod
	FieldReadConsistency
	FieldAttachConsistency
	FieldCountersMode
	FieldMaxPriority
	FieldMaxSessions
	FieldMaxSemaphores
	FieldMaxBytes
	FieldMaxWaiters
	FieldMaxWatchers
	FieldMaxRequests
	FieldSlowWait
	FieldForeign
)

// NodeConfig is a node's configuration. Fields names those given; a given zero sets a field back to
// its default. A described config is effective and complete.
//
// Quotas keep one node's clients from exhausting the resources of all nodes. They are for the node
// in all shards together, and each shard admits its share; all but MaxRequests are refused with
// PRECONDITION_FAILED or, where the resource frees up by itself, OVERLOADED.
type NodeConfig struct {
	Fields            uint32
	SelfCheckPeriod   uint64       // ms, 500..10,000, default 1,000
	GracePeriod       uint64       // ms, at least the self-check period + 1,000, at most 30,000, default 10,000
	ReadConsistency   Consistency  // default Relaxed
	AttachConsistency Consistency  // default Strict
	CountersMode      CountersMode // default aggregated
	MaxPriority       uint8        // highest level that an acquire may ask for, 5 to 9, default 0: any; BAD_REQUEST
	MaxSessions       uint64       // quota, at least 1, default 1,000,000; PRECONDITION_FAILED
	// quota of semaphores, processes and tracks, at least 1, default 1,000,000; PRECONDITION_FAILED
	MaxSemaphores uint64
	// quota of names, data, descriptions and payloads in bytes, at least 1, default 4 GiB;
	// PRECONDITION_FAILED
	MaxBytes    uint64
	MaxWaiters  uint64 // quota of waiting acquires, at least 1, default 2,000,000; OVERLOADED
	MaxWatchers uint64 // quota of streams and one-shot watches, at least 1, default 1,000,000; OVERLOADED
	MaxRequests uint64 // requests a second at each instance, 1..10,000,000, default 0: no limit; OVERLOADED
	SlowWait    uint64 // ms, at most 86,400,000, default 0: off; a longer wait of an acquire is logged when it ends
	// the original settings of a gateway of another protocol, in its own form; at most
	// MaxForeignLen bytes, default empty. The cluster keeps it and does not read it.
	Foreign string
}

func (m *NodeConfig) fields(f *fields) {
	f.message("node config")
	f.uint32("config.fields", &m.Fields)
	f.uint("config.self check period", &m.SelfCheckPeriod)
	f.uint("config.grace period", &m.GracePeriod)
	small(f, "config.read consistency", &m.ReadConsistency)
	small(f, "config.attach consistency", &m.AttachConsistency)
	small(f, "config.counters mode", &m.CountersMode)
	small(f, "config.max priority", &m.MaxPriority)
	f.uint("config.max sessions", &m.MaxSessions)
	f.uint("config.max semaphores", &m.MaxSemaphores)
	f.uint("config.max bytes", &m.MaxBytes)
	f.uint("config.max waiters", &m.MaxWaiters)
	f.uint("config.max watchers", &m.MaxWatchers)
	f.uint("config.max requests", &m.MaxRequests)
	f.uint("config.slow wait", &m.SlowWait)
	f.text("config.foreign", &m.Foreign, "foreign settings", MaxForeignLen)
}

// NodeCreate makes a node and its missing parents. Reply: NodeInfo.
type NodeCreate struct {
	Path   string
	Config NodeConfig
	// Tier is the name of the tier that has the node's data, empty for the first with
	// buckets.
	Tier string
}

func (m *NodeCreate) fields(f *fields) {
	f.message("node create")
	f.path(&m.Path)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	f.text("tier", &m.Tier, "tier", MaxTierLen)
}

// NodeAlter replaces the fields that are given. Reply: NodeInfo.
type NodeAlter struct {
	Path   string
	Config NodeConfig
}

func (m *NodeAlter) fields(f *fields) {
	f.message("node alter")
	f.path(&m.Path)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
}

// NodeDescribe resolves a path. Reply: NodeInfo.
type NodeDescribe struct {
	Path string
}

func (m *NodeDescribe) fields(f *fields) {
	f.message("node describe")
	f.path(&m.Path)
}

// NodeDelete deletes a node with all that it has. PRECONDITION_FAILED: without Force, a node that
// has sessions, semaphores, processes, rollouts or rate limits; in any case one with nodes below
// it. Reply: NodeContents.
type NodeDelete struct {
	Path   string
	Force  bool
	DryRun bool   // only count the contents that would be deleted
	Reason string // for the records; not empty with Force
}

func (m *NodeDelete) fields(f *fields) {
	f.message("node delete")
	f.path(&m.Path)
	f.bool("force", &m.Force)
	f.bool("dry run", &m.DryRun)
	if m.Force && f.checks() {
		f.reason(&m.Reason)
		return
	}
	f.text("reason", &m.Reason, "reason", MaxDescriptionLen)
}

// NodeContents counts the contents of a node, or those it had when it was deleted, over all shards.
type NodeContents struct {
	Sessions   uint64
	Semaphores uint64 // those of configurations too
	Owners     uint64
	Waiters    uint64
	Processes  uint64
	Tracks     uint64
	Limits     uint64
}

func (m *NodeContents) fields(f *fields) {
	f.message("node contents")
	f.uint("sessions", &m.Sessions)
	f.uint("semaphores", &m.Semaphores)
	f.uint("owners", &m.Owners)
	f.uint("waiters", &m.Waiters)
	f.uint("processes", &m.Processes)
	f.uint("tracks", &m.Tracks)
	f.uint("limits", &m.Limits)
}

// InUse reports whether the node has contents that a user may miss.
func (m *NodeContents) InUse() bool {
	return m.Sessions+m.Semaphores+m.Processes+m.Tracks+m.Limits > 0
}

// String lists the contents, such as "2 sessions, 1 semaphore, 1 owner".
func (m *NodeContents) String() string {
	out := ""
	for _, x := range []struct {
		n    uint64
		noun string
	}{
		{m.Sessions, "session"}, {m.Semaphores, "semaphore"}, {m.Owners, "owner"}, {m.Waiters, "waiter"},
		{m.Processes, "process"}, {m.Tracks, "rollout"}, {m.Limits, "rate limit"},
	} {
		if x.n == 0 {
			continue
		}
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%d %s", x.n, x.noun)
		switch {
		case x.n == 1:
		case x.noun == "process":
			out += "es"
		default:
			out += "s"
		}
	}
	if out == "" {
		return "nothing"
	}
	return out
}

// NodeInfo describes a node. Reply of create, alter and describe.
type NodeInfo struct {
	ID        uint64 // never reused
	Path      string
	Tier      uint8
	Revision  uint64 // of the config
	Config    NodeConfig
	CreatedAt uint64 // wall clock, ms since 1970, for people
	TierName  string // for people
}

func (m *NodeInfo) fields(f *fields) {
	f.message("node info")
	f.uint("id", &m.ID)
	f.str("path", &m.Path)
	small(f, "tier", &m.Tier)
	f.uint("revision", &m.Revision)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	f.uint("created at", &m.CreatedAt)
	f.str("tier name", &m.TierName)
}

// NodeList lists nodes by path prefix. Reply: NodeListReply.
type NodeList struct {
	Prefix string
	Cursor []byte
	Limit  uint32 // at most this many, 0 is the server's choice
}

func (m *NodeList) fields(f *fields) {
	f.message("node list")
	f.str("prefix", &m.Prefix)
	if f.checks() {
		f.keep(validatePathPrefix(m.Prefix))
	}
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// NodeListReply is a page. An empty cursor is the end.
type NodeListReply struct {
	Nodes  []NodeInfo
	Cursor []byte
}

func (m *NodeListReply) fields(f *fields) {
	f.message("node list reply")
	for l := list(f, "nodes", 6, &m.Nodes); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
}

package protocol

// Consistency of reads and attaches of a node.
type Consistency uint8

const (
	ConsistencyDefault Consistency = 0 // in a request: what the node says; in an alter: back to the default
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
	FieldMaxSessions
	FieldMaxSemaphores
	FieldMaxBytes
	FieldMaxWaiters
	FieldMaxWatchers
	FieldMaxRequests
)

// NodeConfig is a node's configuration. Fields names those given; a given zero sets a field back to its default. A described config is
// effective and complete.
//
// Quotas keep one node's clients from exhausting what all nodes share. They are for the node in all shards together, and each shard admits its share; all
// but MaxRequests are refused with PRECONDITION_FAILED or, where what is full empties by itself, OVERLOADED.
type NodeConfig struct {
	Fields            uint32
	SelfCheckPeriod   uint64       // ms, 500..10,000, default 1,000
	GracePeriod       uint64       // ms, at least the self-check period + 1,000, at most 30,000, default 10,000
	ReadConsistency   Consistency  // default Relaxed
	AttachConsistency Consistency  // default Strict
	CountersMode      CountersMode // default aggregated
	MaxSessions       uint64       // quota, at least 1, default 1,000,000; PRECONDITION_FAILED
	MaxSemaphores     uint64       // quota of semaphores, processes and tracks, at least 1, default 1,000,000; PRECONDITION_FAILED
	MaxBytes          uint64       // quota of names, data, descriptions and payloads in bytes, at least 1, default 4 GiB; PRECONDITION_FAILED
	MaxWaiters        uint64       // quota of waiting acquires, at least 1, default 2,000,000; OVERLOADED
	MaxWatchers       uint64       // quota of streams and one-shot watches, at least 1, default 1,000,000; OVERLOADED
	MaxRequests       uint64       // requests a second at each instance, 1..10,000,000, default 0: no limit; OVERLOADED
}

// NodeCreate makes a node and its missing parents. Reply: NodeInfo.
type NodeCreate struct {
	Path   string
	Config NodeConfig
}

// NodeAlter replaces the fields that are given. Reply: NodeInfo.
type NodeAlter struct {
	Path   string
	Config NodeConfig
}

// NodeDescribe resolves a path. Reply: NodeInfo.
type NodeDescribe struct {
	Path string
}

// NodeDrop drops a node, with live sessions and owned semaphores; nodes below it keep it from being dropped (PRECONDITION_FAILED). Reply: Empty.
type NodeDrop struct {
	Path string
}

// NodeInfo describes a node. Reply of create, alter and describe.
type NodeInfo struct {
	ID        uint64 // never reused
	Path      string
	Tier      uint8
	Revision  uint64 // of the config
	Config    NodeConfig
	CreatedAt uint64 // wall clock, ms since 1970, for people
}

// NodeList lists nodes by path prefix. Reply: NodeListReply.
type NodeList struct {
	Prefix string
	Cursor []byte
	Limit  uint32 // at most this many, 0 is the server's choice
}

// NodeListReply is a page. An empty cursor is the end.
type NodeListReply struct {
	Nodes  []NodeInfo
	Cursor []byte
}

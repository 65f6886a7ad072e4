package cluster

import (
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Methods of calls between instances. Numbers are stable, for mixed versions.
const (
	methodDiscover       uint8 = 1
	methodJoin           uint8 = 2
	methodPropose        uint8 = 3
	methodRegisters      uint8 = 4
	methodExport         uint8 = 5
	methodMembers        uint8 = 6
	methodChangeMembers  uint8 = 7
	methodTransfer       uint8 = 8
	methodPlan           uint8 = 9
	methodInstanceStatus uint8 = 10
	methodSetTarget      uint8 = 11
	methodBackup         uint8 = 12
	methodProcessExited  uint8 = 13
	methodCopyBuckets    uint8 = 14
	methodCheckApplicant uint8 = 15
	methodFetchKeys      uint8 = 16
)

// Kinds of one-way messages.
const (
	kindHeartbeat     uint8 = 1
	kindLeaderMessage uint8 = 2 // from the leader of one shard to that of another
)

// discoverRequest is discovery's question; see package discovery.
type discoverRequest struct {
	// AddressedAs is the address that the question was sent to.
	AddressedAs string
	ID          string
	Voter       bool
	Peers       []string
	Votable     []string
}

type discoverReply struct {
	Leader    string
	Undecided bool
	Peers     []string
	Votable   []string
}

// JoinRequest asks to join. It may be repeated: the UUID identifies the instance.
type JoinRequest struct {
	Cluster             string // as the joiner was configured; empty matches any
	UUID                string
	Name                string // empty: the cluster gives one
	Replicaset          string // empty: the cluster chooses
	Tier                string
	Address             string
	RaftAddress         string
	Domain              []meta.Label
	Version             meta.Version
	LastOfPreviousMajor meta.Version // see [meta.Join]
	Restores            uint64       // digest of the backup that it restores its tier from; 0: none
}

// JoinReply is the data that a new instance needs before it has the map.
type JoinReply struct {
	Cluster     string
	Instance    uint64
	MetaReplica uint64
	Name        string
}

// instanceStatusRequest asks for the present status of an instance after a restart.
type instanceStatusRequest struct {
	UUID string
}

type instanceStatusReply struct {
	Instance    uint64
	MetaReplica uint64 // 0: none at the moment
	Expelled    bool
	Unreached   string // why the instance that answers does not reach the one that asks; empty: it does
}

// applicantRequest asks the leader of the meta shard to reach a process that wants to join.
type applicantRequest struct {
	Name    string // empty: the cluster gives one
	Address string
}

type applicantReply struct {
	Why string // it is not reached; empty: it is
}

// fetchKeysRequest asks the leader of the meta shard to fetch the keys of a trust.
type fetchKeysRequest struct {
	Trust string
}

type proposeRequest struct {
	Shard  uint64
	Kind   uint8
	Node   uint64
	Epoch  uint64
	Client string
	Body   []byte
}

type shardRequest struct {
	Shard uint64
}

type registersRequest struct {
	Shard uint64
	Node  uint64
}

type exportRequest struct {
	Shard  uint64
	Tier   uint8
	First  uint32
	Count  uint32
	Epoch  uint64
	Cursor []byte
}

type exportReply struct {
	Chunk []byte
	Next  []byte
}

// copyRequest asks the leader of Shard to import a run of buckets from the shard Source.
type copyRequest struct {
	Shard  uint64
	Source uint64
	Tier   uint8
	Total  uint32
	First  uint32
	Count  uint32
	Epoch  uint64
}

type copyReply struct {
	Done bool
}

type memberAddress struct {
	Replica uint64
	Address string
}

type membersReply struct {
	ConfigChange uint64
	Voters       []memberAddress
	NonVotings   []memberAddress
	Removed      []uint64
}

// Kinds of changes in a changeMembersRequest.
const (
	changeAdd     uint8 = 1
	changePromote uint8 = 2
	changeRemove  uint8 = 3
)

type changeMembersRequest struct {
	Shard        uint64
	What         uint8
	Replica      uint64
	Address      string
	ConfigChange uint64
}

type transferRequest struct {
	Shard   uint64
	Replica uint64
	After   uint64 // the new leadership must have a later term
}

// heartbeat is an instance's report of itself, twice a second and after changes.
type heartbeat struct {
	Instance    uint64
	Incarnation uint64 // of its process
	Seq         uint64 // rises with each heartbeat of a process
	Shards      []shardHeartbeat
	Refusals    []string `msgpack:",omitempty"` // see [governor.Heartbeat]
}

type shardHeartbeat struct {
	Shard   uint64
	Replica uint64
	Leader  uint64
	Term    uint64
	Applied uint64
	Members uint64
	Sizes   *governor.ShardSizes `msgpack:",omitempty"`
}

type leaderMessage struct {
	To    uint64
	From  uint64
	Bytes []byte
}

// setTargetRequest asks the leader of the meta shard to set the target of an instance.
type setTargetRequest struct {
	Instance uint64
	Target   uint8
	Reason   string
	// IfNotNeeded: see [meta.InstanceUpdate].
	IfNotNeeded bool
}

// processExitedRequest asks whether the process of the instance at a raft address has ended, by the
// other instance's knowledge.
type processExitedRequest struct {
	Address string
}

type processExitedReply struct {
	Ended bool
}

// encode cannot fail for the structs above.
func encode(v any) []byte {
	b, err := peer.Encode(v)
	if err != nil {
		panic("cluster: " + err.Error())
	}
	return b
}

// decode checks the structure before decoding.
func decode(b []byte, v any) error { return peer.Decode(b, v) }

package protocol

// MaxMethodLen bounds a method's name in bytes.
const MaxMethodLen = 64

// Methods of Cluster. Each is listed with its request and its answer, which are JSON objects; {}
// where none is named. Fields are only ever added. A refusal is a Failure as everywhere, and where
// the method has a way around it, its sentence says so.
const (
	MethodStatus            = "status"             // -> ClusterStatus
	MethodPlan              = "plan"               // -> ClusterPlan
	MethodHealth            = "health"             // -> ClusterHealth
	MethodTop               = "top"                // TopRequest -> Top, of the answering instance alone
	MethodAuditLog          = "audit_log"          // AuditLogRequest -> AuditLog, of the answering instance alone
	MethodDrain             = "drain"              // DrainRequest -> ClusterInstance; decided, not done, when it is answered
	MethodExpel             = "expel"              // ExpelRequest -> ClusterInstance; decided, not done, when it is answered
	MethodTransfer          = "transfer"           // TransferRequest -> ClusterShard; decided, not done, when it is answered
	MethodWeight            = "weight"             // WeightRequest -> ClusterReplicaset
	MethodReplicationFactor = "replication_factor" // ReplicationFactorRequest -> ClusterTier
	MethodShards            = "shards"             // ShardsRequest -> ClusterShards; changes nothing
	MethodSetShards         = "set_shards"         // ShardsRequest -> ClusterShards; decided, not done, when it is answered
	// TicketKeyRequest -> TicketKey, the present one; tickets that the one before signed are good
	// until the next time
	MethodRotateKeys = "rotate_keys"
	// UpgradeRequest -> Upgrade
	MethodUpgrade = "upgrade"
	// BackupRequest -> BackupPart; needs the right admin, as the answer has the keys that sign
	// tickets
	MethodBackup = "backup"
)

// DrainRequest asks that an instance transfer its leaderships, and its vote, and be given neither
// again: before it is stopped for long, or expelled. With Undo it may have them again.
type DrainRequest struct {
	Instance string `json:"instance"` // name, or uuid
	Undo     bool   `json:"undo,omitempty"`
	Reason   string `json:"reason,omitempty"` // for the audit log
}

// ExpelRequest asks that an instance leave for good. It goes on until it is done, also when
// the operator who asked is gone.
type ExpelRequest struct {
	Instance string `json:"instance"`         // name, or uuid
	Force    bool   `json:"force,omitempty"`  // also if it is not Offline, or leads shards. It never loses data
	Reason   string `json:"reason,omitempty"` // for the records; needed with Force
}

// UpgradeRequest asks that the cluster's version stay as it is though all instances may be newer,
// or that it follow them again.
type UpgradeRequest struct {
	Hold   bool   `json:"hold"`
	Reason string `json:"reason,omitempty"` // for the audit log
}

// Upgrade is the progress of an UpgradeRequest.
type Upgrade struct {
	Version string `json:"version"` // of the cluster
	Held    bool   `json:"held"`
}

// TransferRequest asks that a shard be led by another instance that has it.
type TransferRequest struct {
	Shard    uint64 `json:"shard"`
	Instance string `json:"instance"` // name, or uuid
}

// WeightRequest gives a replicaset a share of its tier's buckets beside the other replicasets; 0
// takes all away.
type WeightRequest struct {
	Replicaset string  `json:"replicaset"` // name, or uuid
	Weight     float64 `json:"weight"`     // to the thousandth; a replicaset starts with 1
}

// TicketKeyRequest names the key to replace, so that a repeated request replaces no other. 0: the
// reply names the present key, and nothing is changed.
type TicketKeyRequest struct {
	Current uint64 `json:"current,omitempty"`
}

// TicketKey names a key that signs sessions' tickets; the key itself is never shown.
type TicketKey struct {
	ID uint64 `json:"id"` // 1 above the one before
}

// ReplicationFactorRequest changes how many instances the replicasets of a tier are filled up to.
type ReplicationFactorRequest struct {
	Tier   string `json:"tier"`
	Factor uint32 `json:"factor"`
	Force  bool   `json:"force,omitempty"`  // also if it is lower than before
	Reason string `json:"reason,omitempty"` // for the records; needed with Force
}

// ShardsRequest names a tier, and the wanted number of data shards of each of its replicasets.
type ShardsRequest struct {
	Tier   string `json:"tier,omitempty"`   // empty: the tier of new coordination nodes
	Shards uint32 `json:"shards,omitempty"` // 0, with MethodShards: the present number of the tier
}

// BackupRequest asks for a part of a snapshot of a shard, as its leader has it behind a read
// barrier. The first request names no snapshot and begins one; those that follow name the one that
// was answered. NotFound: it is gone, since nobody asked for a minute or its instance was stopped;
// begin another one.
type BackupRequest struct {
	Shard    uint64 `json:"shard"` // 0 is the meta shard
	Snapshot string `json:"snapshot,omitempty"`
	Offset   uint64 `json:"offset,omitempty"`
}

// BackupPart is a part of a snapshot. While Ready is false, it is being written: ask again in a
// moment.
type BackupPart struct {
	Snapshot string `json:"snapshot"`
	Ready    bool   `json:"ready"`
	Size     uint64 `json:"size,omitempty"`  // of the snapshot, in bytes
	Index    uint64 `json:"index,omitempty"` // of the last log entry that it has
	Bytes    []byte `json:"bytes,omitempty"` // from the offset on; none at the end
}

// ClusterStatus is the cluster as the map of one instance has it, which may be old, and, in Health,
// as that instance sees it now. Instances, replicasets and tiers are referred to by name, shards by
// id.
type ClusterStatus struct {
	ID          string              `json:"id"`
	Name        string              `json:"name,omitempty"`
	Version     string              `json:"version,omitempty"`      // whose rules the cluster goes by
	UpgradeHeld bool                `json:"upgrade_held,omitempty"` // Version stays though all instances may be newer
	Revision    uint64              `json:"revision"`               // of the meta state that this was made from
	MapVersion  uint64              `json:"map_version"`
	AnsweredBy  string              `json:"asked_of"` // the instance that answers
	Health      ClusterHealth       `json:"health"`   // the present state; everything below is from the map
	Meta        ClusterMeta         `json:"meta"`
	Tiers       []ClusterTier       `json:"tiers"`
	Replicasets []ClusterReplicaset `json:"replicasets"`
	Instances   []ClusterInstance   `json:"instances"` // expelled ones too, as long as the cluster remembers them
	Shards      []ClusterShard      `json:"shards"`
	Moves       []ClusterMove       `json:"moves"` // under way
}

// ClusterMeta is the meta shard.
type ClusterMeta struct {
	Leader    string   `json:"leader,omitempty"` // as far as the answering instance knows; absent while it follows none
	Voters    []string `json:"voters"`
	NonVoting []string `json:"non_voting"`
}

// ClusterTier is a tier.
type ClusterTier struct {
	Name                string `json:"name"`
	Buckets             uint32 `json:"buckets"`
	ReplicationFactor   uint32 `json:"replication_factor"`
	ShardsPerReplicaset uint32 `json:"shards_per_replicaset"`
	CanVote             bool   `json:"can_vote"`
	Bootstrapped        bool   `json:"bootstrapped"` // its buckets were assigned
	// ToBeRestored is the digest of the backup that its data is still in; empty: none.
	ToBeRestored string `json:"to_be_restored,omitempty"`
}

// ClusterReplicaset is a replicaset.
type ClusterReplicaset struct {
	Name         string  `json:"name"`
	UUID         string  `json:"uuid"`
	Tier         string  `json:"tier"`
	Phase        string  `json:"phase"` // not ready, ready, to be expelled, expelled
	Weight       float64 `json:"weight"`
	WeightByUser bool    `json:"weight_by_user"`
	Buckets      uint32  `json:"buckets"` // that its shards own
}

// ClusterInstance is an instance.
type ClusterInstance struct {
	ID          uint64            `json:"id"`
	Name        string            `json:"name"`
	UUID        string            `json:"uuid"`
	Tier        string            `json:"tier"`
	Replicaset  string            `json:"replicaset"`
	Domain      map[string]string `json:"failure_domain,omitempty"`
	Version     string            `json:"version"`
	Address     string            `json:"address"`
	RaftAddress string            `json:"raft_address"`
	Current     string            `json:"current"` // Offline, Online, Expelled
	Target      string            `json:"target"`
	// CurrentIncarnation and TargetIncarnation differ while an instance that was started again is
	// not up yet.
	CurrentIncarnation uint64   `json:"current_incarnation"`
	TargetIncarnation  uint64   `json:"target_incarnation"`
	Reason             string   `json:"reason,omitempty"`        // of the target
	ChangedAt          uint64   `json:"changed_at_ms,omitempty"` // when the target was set: wall clock in ms since 1970, for people
	Draining           bool     `json:"draining,omitempty"`      // see DrainRequest
	Reachable          *bool    `json:"reachable,omitempty"`     // the answering instance hears it; absent of one that is expelled
	Leads              []uint64 `json:"leads,omitempty"`         // shards
	Revision           uint64   `json:"revision"`                // of the last change to this: a status with a lower one is older
}

// AtTarget reports whether the instance has the state that it is to have.
func (i *ClusterInstance) AtTarget() bool {
	return i.Current == i.Target && i.CurrentIncarnation == i.TargetIncarnation
}

// ClusterShard is a data shard.
type ClusterShard struct {
	ID           uint64           `json:"id"`
	Tier         string           `json:"tier"`
	Replicaset   string           `json:"replicaset"`
	Master       string           `json:"master,omitempty"` // leads, as far as the cluster has seen
	TargetMaster string           `json:"target_master,omitempty"`
	Replicas     []ClusterReplica `json:"replicas"`
	Buckets      uint32           `json:"buckets"` // that it owns
	Ready        bool             `json:"ready"`
	Revision     uint64           `json:"revision"` // of the last change to this: a status with a lower one is older
}

// ClusterShards is a tier's data shards, and the changes that give each replicaset as many as the
// tier, or a request, names.
type ClusterShards struct {
	Tier                string                    `json:"tier"`
	ShardsPerReplicaset uint32                    `json:"shards_per_replicaset"`
	Revision            uint64                    `json:"revision"`     // of the meta state that this was made from
	BucketsLeft         uint32                    `json:"buckets_left"` // still to move
	Done                bool                      `json:"done"`         // nothing is left to do
	Replicasets         []ClusterReplicasetShards `json:"replicasets"`
	Shards              []ClusterShardLoad        `json:"shards"` // the existing ones
}

// ClusterReplicasetShards is the number of a replicaset's shards, and its planned change.
type ClusterReplicasetShards struct {
	Replicaset string   `json:"replicaset"`
	Shards     int      `json:"shards"`          // that it has
	Missing    int      `json:"missing"`         // that it gets
	Remove     []uint64 `json:"remove"`          // that are removed when their buckets have moved
	Waits      string   `json:"waits,omitempty"` // why the change waits: it has no shards yet, or is being expelled
}

// ClusterShardLoad is a shard with its contents. Sessions, RemoteSessions, Semaphores and Bytes
// are from its leader's last report, which may be some seconds old; absent without one.
type ClusterShardLoad struct {
	ID             uint64  `json:"id"`
	Replicaset     string  `json:"replicaset"`
	Master         string  `json:"master,omitempty"`
	Ready          bool    `json:"ready"`
	Buckets        uint32  `json:"buckets"`        // that it owns
	BucketsTarget  uint32  `json:"buckets_target"` // that it is to own
	Sessions       *uint64 `json:"sessions,omitempty"`
	RemoteSessions *uint64 `json:"remote_sessions,omitempty"` // of sessions at home in other shards
	Semaphores     *uint64 `json:"semaphores,omitempty"`
	Bytes          *uint64 `json:"bytes,omitempty"` // as quotas of bytes count them
}

// ClusterReplica is an instance's copy of a shard.
type ClusterReplica struct {
	Instance   string `json:"instance"`
	Replica    uint64 `json:"replica"`
	Role       string `json:"role"` // none, non-voting, voter
	TargetRole string `json:"target_role"`
}

// ClusterMove is a move of buckets.
type ClusterMove struct {
	Tier  string `json:"tier"`
	First uint32 `json:"first"`
	Count uint32 `json:"count"`
	From  uint64 `json:"from"` // shards
	To    uint64 `json:"to"`
	Epoch uint64 `json:"epoch"`
	Phase string `json:"phase"` // moving, committed, aborted
}

// ClusterPlan names every deviation of the cluster from its configuration: the steps that the
// governor takes next, and those that wait, with the reason. While nobody governs there are no
// steps, and the deviations are those that the answering instance sees.
type ClusterPlan struct {
	AnsweredBy string        `json:"asked_of"`
	Leader     string        `json:"leader,omitempty"` // the instance whose governor acts; empty: none does
	Steps      []string      `json:"steps"`
	Waits      []ClusterWait `json:"waits"`
	Health     ClusterHealth `json:"health"` // as the instance sees it whose governor acts
}

// Kinds of ClusterWait.
const (
	WaitInProgress = "underway" // the instances that are there work on it
	WaitDependent  = "follows"  // it comes about with something else in the plan
	WaitExternal   = "outside"  // an instance that is not there, or an operator, has to do something
)

// ClusterWait is a deviation that no step is taken about now, and why.
type ClusterWait struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Kind string `json:"kind"`
}

// States of ClusterHealth.
const (
	HealthHealthy  = "healthy"  // all works, and all that the configuration promises may be lost
	HealthDegraded = "degraded" // all works, and less may be lost than the configuration promises
	HealthBroken   = "broken"   // something does not work
)

// ClusterHealth is the cluster's state and its risks, from the view of one instance. Nothing in it
// is remembered from earlier: an instance that is not heard now does not count.
type ClusterHealth struct {
	AnsweredBy  string                    `json:"asked_of"` // the instance whose view it is
	State       string                    `json:"state"`
	Confirmed   bool                      `json:"confirmed"` // a majority of the meta shard has confirmed the map for this answer
	AgeMS       uint64                    `json:"age_ms"`    // how long ago that was so last; 0 if Confirmed
	Problems    []string                  `json:"problems"`  // why State is not healthy, in sentences, the worst first
	Meta        ClusterGroup              `json:"meta"`
	Shards      []ClusterGroup            `json:"shards"`
	Replicasets []ClusterReplicasetCopies `json:"replicasets"`
	Unreachable []ClusterUnreachable      `json:"unheard"`
	Domains     []string                  `json:"failure_domains,omitempty"` // that are configured, as KEY=VALUE
	// whose loss alone would stop something; empty: any one may be lost
	NextLoss []ClusterLoss `json:"next_loss"`
	Losses   []string      `json:"losses"` // NextLoss in sentences
	// Drained are the instances that lead nothing and vote only where they must, until their next
	// start or until that is undone.
	Drained []string `json:"drained,omitempty"`
	// Upgrade is the next step of an upgrade that is under way or held.
	Upgrade string `json:"upgrade,omitempty"`
}

// ClusterGroup is the raft group of a shard. It works while it has a majority and a leader.
type ClusterGroup struct {
	Shard               uint64 `json:"shard,omitempty"` // absent for the meta shard
	Replicaset          string `json:"replicaset,omitempty"`
	Leader              string `json:"leader,omitempty"` // heard leading it now
	Voters              int    `json:"voters"`
	Reachable           int    `json:"heard"` // of the voters
	Majority            bool   `json:"majority"`
	FaultTolerance      int    `json:"may_lose"`       // voters, before it stops
	ConfiguredTolerance int    `json:"promised"`       // that FaultTolerance is by the configuration
	Idle                bool   `json:"idle,omitempty"` // it owns no buckets, so no client waits for it
	// UnsafeDomains are failure domains that may be lost by the configuration, and whose loss would
	// stop it. While FaultTolerance is 0 none is named: then the loss of any voter stops it.
	UnsafeDomains []string `json:"unsafe_domains,omitempty"`
}

// AtRisk reports whether less may be lost than the configuration promises.
func (g *ClusterGroup) AtRisk() bool {
	return g.FaultTolerance < g.ConfiguredTolerance || len(g.UnsafeDomains) > 0
}

// ClusterReplicasetCopies is a replicaset and how many instances have a whole copy of its shards
// and are heard.
type ClusterReplicasetCopies struct {
	Replicaset string `json:"replicaset"`
	Tier       string `json:"tier"`
	Copies     int    `json:"copies"`
	Configured int    `json:"configured"`
	Buckets    uint32 `json:"buckets"`
	SinceMS    uint64 `json:"since_ms,omitempty"` // wall clock in ms since 1970; absent: no copy is missing, or it is not known
	ForMS      uint64 `json:"for_ms,omitempty"`
}

// ClusterUnreachable is an instance that is not heard.
type ClusterUnreachable struct {
	Instance string `json:"instance"`
	State    string `json:"state"`              // that the map gives it
	Reason   string `json:"reason,omitempty"`   // of that state
	SinceMS  uint64 `json:"since_ms,omitempty"` // wall clock in ms since 1970; absent: the answering instance has never heard it
	ForMS    uint64 `json:"for_ms,omitempty"`
	// Unreached is why the answering instance does not reach it at its raft address; absent if it
	// does, or if no process runs there.
	Unreached string `json:"unreached,omitempty"`
}

// ClusterLoss is the effect of the loss of an instance, or of a failure domain with all its
// instances. A domain is listed if its loss would stop more than the loss of one of its instances.
type ClusterLoss struct {
	Instance  string   `json:"instance,omitempty"`
	Domain    string   `json:"failure_domain,omitempty"` // KEY=VALUE, in place of Instance
	Instances []string `json:"instances,omitempty"`      // of the domain, without those that are not heard
	Meta      bool     `json:"meta"`                     // the meta shard: no change of the cluster or of nodes is decided
	Shards    []uint64 `json:"shards"`                   // with their buckets
}

// AuditLogRequest asks one instance for the end of its audit log.
type AuditLogRequest struct {
	Lines int `json:"lines,omitempty"` // at most MaxAuditLines; absent: DefaultAuditLines
}

// AuditLog is the end of an instance's audit log.
type AuditLog struct {
	ID    uint64   `json:"id"`    // of the instance
	Lines []string `json:"lines"` // of its last 256 KiB, as it has them: each is a JSON object; the newest last
}

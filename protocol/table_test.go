package protocol

import (
	"bytes"
	"reflect"
	"slices"
)

// messageCase is one message of the protocol: where it is sent and a sample of it. All tests over
// "every message" go through this table, and laws_test.go holds it complete.
type messageCase struct {
	kind   Kind
	sample Message
}

// fresh makes an empty message of the entry's type.
func (e messageCase) fresh() Message {
	return reflect.New(reflect.TypeOf(e.sample).Elem()).Interface().(Message)
}

// typeName is the name of the message's struct.
func (e messageCase) typeName() string { return reflect.TypeOf(e.sample).Elem().Name() }

var (
	sampleKey   = []byte("0123456789abcdef")
	sampleHead  = Head{Session: MakeSessionID(0, 1234, 7), Seq: 300, Low: 298}
	sampleLimit = LimitConfig{Rate: 200_000, Burst: 2_000, Weight: 3, Min: 10_000, Lease: 3_000, Shadow: true, Floor: 500, Foreign: "ydb 200"}
	sampleOwner = Owner{OrderID: 41, Session: sampleHead.Session, Count: 2, Data: []byte("10.0.0.1:80"),
		Description: "billing-1", Since: 1_700_000_000_000}
	sampleWaiter = Waiter{OrderID: 42, Session: sampleHead.Session + 1, Count: 1, Data: []byte("10.0.0.2:80"), Description: "billing-2",
		Since: 1_700_000_000_500, Timeout: 30_000}
	sampleNode = NodeInfo{TierName: "default",
		ID: 2, Path: "/services/billing", Revision: 3, Config: DefaultNodeConfig(), CreatedAt: 1_700_000_000_000}
	sampleInfo = SessionInfo{Session: sampleHead.Session, Node: 2, State: SessionDetached, Epoch: 3, Timeout: 10_000, Remaining: 4_500,
		Description: "billing-1", Client: "192.0.2.7:40312", CreatedAt: 1_700_000_000_000, Parent: 1}
	sampleRuns = []BucketRun{{Count: 2048}, {Count: 2048, Epoch: 3}}
)

// Samples of tracks.
var (
	sampleGate        = GateConfig{Name: "smoke", Kind: GateCommand, Spec: "./smoke.sh", Timeout: 60_000, Retry: 30_000}
	sampleTrackConfig = TrackConfig{Source: SourcePublished, DelayFrom: FromConverged, Locations: []LocationConfig{{Name: "SAS"},
		{Name: "MAN", Delay: 5_000, Bake: 1_000, Share: 20, ShareBake: 2_000, Gates: []GateConfig{sampleGate}}}, ExplicitCodes: []string{"TimestampOutOfRange"},
		ImplicitAfter: 60_000, ImplicitAttempts: 3, StallTimeout: 600_000, AutoDemote: true, SkipEmptyAfter: 900_000,
		ReelectMinInterval: 1_000,
		MinAdvanceInterval: 100, Retention: 3_600_000, KeepRemoved: true}
	sampleReport      = UpdateReport{Seq: 9, Current: 41, Target: 42, Code: "SOURCE_ERROR", Message: "connection refused", Attempts: 2}
	sampleTrackStatus = TrackStatus{Index: 70_001, Revision: 69_990, ConfigRevision: 2, Name: []byte("geo/base"),
		Clock: 88_000, Last: 42, Paused: true,
		SourceError: "no route", NumInstances: 9, Config: sampleTrackConfig,
		Locations: []TrackLocationStatus{{Name: "SAS", State: StateConverging, Until: 680_000, Target: 42,
			Stable: 41, Since: 80_000, Generation: 7, Reason: ReasonAdvance, Members: 4, Leaders: 3, Counted: 3,
			Reached: 2, BlockedBy: []string{"sas-1.example"},
			BlockedSince: 80_000, Paused: true, Excluded: true, Rollback: true, Gate: "smoke", GateVersion: 43}},
		Gates: []GateRun{{Location: "MAN", Version: 42, Attempt: 2, Deadline: 140_000, Gate: sampleGate}},
		Instances: []TrackInstanceStatus{{ID: "sas-1.example", Location: "SAS", Meta: "rack 7",
			Session: sampleHead.Session, Incarnation: 5, Role: InstanceLeader,
			Demoted: true, InShare: true, Due: 42, Sent: 42, SentAt: 80_100, Registered: 10_000, ReportAt: 80_200,
			Report: sampleReport, Reached: true,
			HoldsUp: true, SaysBad: true, CannotLoad: true}}, Cursor: []byte("sas-1.example")}
)

// Samples of processes.
var (
	sampleOptions = ProcessOptions{Election: ElectPreferred, Debounce: 200, RoundTimeout: 30_000, BackoffMin: 100,
		BackoffMax: 2_000, Return: 10_000}
	sampleMember = ProcessMember{Session: sampleHead.Session, Order: 3, Key: "worker-7", Identity: "billing",
		Data: []byte("10.0.0.1:80"), Weight: 5}
	sampleProcess = ProcessStatus{Index: 70_001, Revision: 69_990, Name: []byte("work-queue"), Clock: 88_000,
		Phase: PhasePreparing, Epoch: 12, Topology: 9,
		Coordinator: sampleHead.Session, Attempt: 1, Started: 1_700_000_000_000, Start: 88_100, NumMembers: 1, Options: sampleOptions,
		Counters: ProcessCounters{Changes: 9, Started: 11, Completed: 8, Cancelled: 2, Failed: 1, Returned: 3,
			Stale: 4}, Members: []ProcessMemberInfo{{Member: sampleMember,
			Status: MemberPreparing, Until: 98_000, Token: 12,
			Joined: 1_700_000_000_000}}, History: []ProcessHistoryRound{{Epoch: 11, Topology: 9,
			Coordinator: sampleHead.Session, Size: 1, Attempt: 2, Wall: 1_700_000_000_000, Prepared: 20, Decided: 35,
			Duration: 41, Outcome: RoundFailed,
			Text: "a member failed: no connection"}}, Cursor: []byte{0, 3}}
)

// Samples of a semaphore with options.
var (
	sampleSemaphoreOptions = SemaphoreOptions{Policy: PolicyFair, Weights: []Weight{{[]byte("training"), 3}},
		Slots: []Slot{{"gpu0", []string{"mem=80"}}, {Name: "gpu1"}}, History: 32,
		MaxHold: 3_600_000, Extend: true, Preempt: PreemptAny, Grace: 10_000, MinHold: 30_000}
	sampleGrant = Grant{Slots: []string{"gpu0"}, Now: 70_000, Until: 100_000, Preemption: 57}
)

// messages lists every message by kind. A kind of a reply has KindReply set and stands for the body
// of a reply with status OK.
var messages = []messageCase{
	{KindHello, &Hello{Magic: Magic, Version: Version, Client: "signalbox-go/1.0.0", Token: []byte("secret"), Cluster: "c-7f3a"}},
	{KindHello | KindReply, &HelloReply{Version: Version, Server: "signalbox/1.0.0", Cluster: "c-7f3a", Instance: 1, MaxFrame: MaxFrameLen,
		MaxData: MaxDataLen, Window: 4096, MapVersion: 12, Identity: "anonymous"}},
	{KindPing, &Empty{}},
	{KindPresentTicket, &PresentTicket{Ticket: []byte{1, 2, 3, 0xfe}, Description: "billing@host1"}},
	{KindPresentTicket | KindReply, &Empty{}},
	{KindMap, &MapRequest{Known: 11}},
	{KindMap | KindReply, &MapReply{Version: 12, Cluster: "c-7f3a",
		Instances: []MapInstance{{ID: 1, Name: "a", Address: "10.0.0.1:7070"}, {ID: 2, Name: "b", Address: "10.0.0.2:7070"}},
		Shards:    []MapShard{{ID: 1, Master: 1, Term: 7, Replicas: []uint64{1, 2}}, {ID: 2, Replicas: []uint64{2}}},
		Tiers:     []MapTier{{Name: "default", Buckets: 4096, Runs: []MapRun{{Count: 2048, Shard: 1}, {Count: 2048, Shard: 2}}}}}},

	{KindNodeCreate, &NodeCreate{Path: "/services/billing", Config: NodeConfig{Fields: FieldGracePeriod, GracePeriod: 15_000}, Tier: "default"}},
	{KindNodeCreate | KindReply, &sampleNode},
	{KindNodeAlter, &NodeAlter{Path: "/services/billing", Config: NodeConfig{Fields: FieldReadConsistency | FieldMaxPriority, ReadConsistency: Strict, MaxPriority: 7}}},
	{KindNodeAlter | KindReply, &sampleNode},
	{KindNodeDescribe, &NodeDescribe{Path: "/services/billing"}},
	{KindNodeDescribe | KindReply, &sampleNode},
	{KindNodeDelete, &NodeDelete{Path: "/services/billing", Force: true, DryRun: true, Reason: "not used any more"}},
	{KindNodeDelete | KindReply, &NodeContents{Sessions: 13, Semaphores: 4, Owners: 3, Waiters: 2, Processes: 1, Tracks: 5, Limits: 6}},
	{KindNodeList, &NodeList{Prefix: "/services/", Cursor: []byte("/services/a"), Limit: 100}},
	{KindNodeList | KindReply, &NodeListReply{Nodes: []NodeInfo{sampleNode}, Cursor: []byte("/services/billing")}},

	{KindCluster, &Cluster{Method: MethodExpel, Body: []byte(`{"instance":"b"}`)}},
	{KindCluster | KindReply, &ClusterReply{Body: []byte(`{"state":"to be expelled"}`)}},

	{KindSessionStart, &SessionStart{Node: 2, CreateID: []byte("fedcba9876543210"), Key: sampleKey, Timeout: 10_000, Description: "billing-1", Nonce: 7, Parent: sampleHead.Session}},
	{KindSessionStart | KindReply, &SessionReply{Session: sampleHead.Session, Epoch: 1, Shard: 1, Timeout: 10_000, Grace: 10_000, Ticket: []byte{1, 2, 3}}},
	{KindSessionAttach, &SessionAttach{Session: sampleHead.Session, Node: 2, Epoch: 2, Key: sampleKey, Timeout: 10_000, Description: "billing-1", Nonce: 7}},
	{KindSessionAttach | KindReply, &SessionReply{Session: sampleHead.Session, Epoch: 2, Shard: 1, Timeout: 10_000, Grace: 10_000, Ticket: []byte{4, 5, 6}}},
	{KindSessionStop, &SessionStop{Session: sampleHead.Session, Epoch: 2}},
	{KindSessionStop | KindReply, &Empty{}},
	{KindSessionDescribe, &SessionDescribe{Session: sampleHead.Session, Node: 2}},
	{KindSessionDescribe | KindReply, &sampleInfo},
	{KindSessionList, &SessionList{Shard: 1, Node: 2, Cursor: []byte{0, 1}, Limit: 50}},
	{KindSessionList | KindReply, &SessionListReply{Sessions: []SessionInfo{sampleInfo}, Cursor: []byte{0, 2}, Runs: sampleRuns}},
	{KindSessionKill, &SessionKill{Session: sampleHead.Session, Node: 2, Reason: "stuck deployment"}},
	{KindSessionKill | KindReply, &Empty{}},
	{KindSessionObjects, &SessionObjects{Shard: 1, Node: 2, Session: sampleHead.Session, Cursor: []byte{1, 'q'}, Limit: 50}},
	{KindSessionObjects | KindReply, &SessionObjectsReply{Objects: []SessionObject{{Type: ObjectProcess, Name: []byte("work-queue"), Label: "worker-7", Count: 1},
		{Type: ObjectTrack, Name: []byte("geo/base"), Label: "sas-1.example", Count: 2}}, Cursor: []byte{2, 'g'}, Runs: sampleRuns}},
	{KindForceRelease, &ForceRelease{Node: 2, Name: []byte("leader"), First: 41, Last: 41, Reason: "its host hangs"}},
	{KindForceRelease | KindReply, &ForceReleaseReply{Released: 1}},

	{KindCreate, &Create{Head: sampleHead, Name: []byte("slots"), Limit: 10, Data: []byte("v1")}},
	{KindCreate | KindReply, &UpdateReply{1}},
	{KindAlter, &Alter{Head: sampleHead, Name: []byte("gpu"), Fields: AlterPolicy | AlterWeights | AlterSlots | AlterMaxHold, Options: SemaphoreOptions{
		Policy: PolicyFair, Weights: []Weight{{[]byte("training"), 3}}, Slots: []Slot{{"gpu0", []string{"mem=80"}}}, History: 32,
		MaxHold: 3_600_000, Extend: true, Preempt: PreemptAny, Grace: 10_000, MinHold: 30_000},
		Drain: []string{"gpu0"}, Undrain: []string{"gpu1"}, Reason: "its fan is broken"}},
	{KindAlter | KindReply, &Empty{}},
	{KindSemaphoreHistory, &SemaphoreHistory{Node: 2, Name: []byte("gpu"), Consistency: Strict, MinIndex: 70_000}},
	{KindSemaphoreHistory | KindReply, &SemaphoreHistoryReply{Index: 70_001, Holds: []HistoryHold{{Token: 41,
		Session: sampleHead.Session, Description: "billing-1", Count: 1, Slots: []string{"gpu0"},
		Since: 1_700_000_000_000, Until: 1_700_000_000_500, Cause: HoldSessionEnded,
		Ending: &Ending{Reason: EndExpired, Link: LinkSilent, Silent: 10_250, Stood: 1_200, Steady: true}}}}},
	{KindUpdate, &Update{Head: sampleHead, Name: []byte("slots"), Data: []byte("v2"), Expected: 1}},
	{KindUpdate | KindReply, &UpdateReply{Version: 2}},
	{KindResize, &Resize{Head: sampleHead, Name: []byte("slots"), Limit: 20, Reason: "more hosts", Expected: 3}},
	{KindResize | KindReply, &Empty{}},
	{KindDelete, &Delete{Head: sampleHead, Name: []byte("slots"), Force: true, Expected: 3}},
	{KindDelete | KindReply, &Empty{}},
	{KindAcquire, &Acquire{Head: sampleHead, Name: []byte("leader"), Count: Forever, Timeout: 30_000, Data: []byte("10.0.0.1:80"), Ephemeral: true}},
	{KindAcquire | KindReply, &AcquireReply{State: Acquired, OrderID: 41}},
	{KindRelease, &Release{Head: sampleHead, Name: []byte("leader"), OrderID: 41}},
	{KindRelease | KindReply, &ReleaseReply{Released: true}},
	{KindDescribe, &Describe{Session: sampleHead.Session, Node: 2, Name: []byte("leader"),
		Flags: WithOwners | WatchOwners, Consistency: Strict,
		MinIndex: 70_000, Cursor: []byte{0, 41}, Limit: 500, WatchID: 9}},
	{KindDescribe | KindReply, &DescribeReply{Index: 70_001, Revision: 69_990, Name: []byte("leader"),
		Data: []byte("v1"), Version: 1, Used: 2, Limit: Forever,
		Ephemeral: true, CreatedAt: 1_700_000_000_000, NumOwners: 1, NumWaiters: 1, Owners: []Owner{sampleOwner},
		Waiters: []Waiter{sampleWaiter},
		Cursor:  []byte{0, 42}}},
	{KindList, &List{Shard: 1, Node: 2, Prefix: []byte("lead"), Session: sampleHead.Session, Cursor: []byte("leader"), Limit: 100, Consistency: Relaxed, MinIndex: 70_001}},
	{KindList | KindReply, &ListReply{Index: 70_001, Semaphores: []ListItem{{Name: []byte("leader"), Limit: Forever,
		Used: 2, Ephemeral: true, Version: 1, DataLen: 2,
		NumOwners: 1, NumWaiters: 1, OrderID: 42, Count: 1, Waiting: true}}, Cursor: []byte("leader"),
		UsedSessions: 3, UsedSemaphores: 4, UsedBytes: 5_000, UsedWaiters: 6, Runs: sampleRuns}},
	{KindWatch, &Watch{Shard: 1, Node: 2, Name: []byte("services/"), Prefix: true, Known: 70_000, Epoch: 3}},
	{KindWatch | KindReply, &Empty{}},
	{KindUnwatch, &Unwatch{WatchID: 7}},
	{KindUnwatch | KindReply, &Empty{}},

	{KindProcessJoin, &ProcessJoin{Head: sampleHead, Name: []byte("work-queue"), Key: "worker-7", Data: []byte("10.0.0.1:80"), Weight: 5, Options: sampleOptions}},
	{KindProcessJoin | KindReply, &ProcessJoinReply{Order: 3, Topology: 9, Returned: true, AlreadyMember: true}},
	{KindProcessLeave, &ProcessLeave{Head: sampleHead, Name: []byte("work-queue")}},
	{KindProcessLeave | KindReply, &ProcessLeaveReply{CompletedEpoch: 12}},
	{KindProcessConfirm, &ProcessConfirm{Session: sampleHead.Session, Name: []byte("work-queue"), Epoch: 12, Step: StepCompleted}},
	{KindProcessConfirm | KindReply, &Empty{}},
	{KindProcessFail, &ProcessFail{Session: sampleHead.Session, Name: []byte("work-queue"), Epoch: 12, Text: "no connection"}},
	{KindProcessFail | KindReply, &Empty{}},
	{KindProcessComplete, &ProcessComplete{Head: sampleHead, Name: []byte("work-queue"), Epoch: 12, Result: []byte("v1")}},
	{KindProcessComplete | KindReply, &Empty{}},
	{KindProcessForceRound, &ProcessForceRound{Node: 2, Name: []byte("work-queue"), Text: "a new version of the rules"}},
	{KindProcessForceRound | KindReply, &Empty{}},
	{KindProcessEvict, &ProcessEvict{Node: 2, Name: []byte("work-queue"), Session: sampleHead.Session, Text: "it hangs"}},
	{KindProcessEvict | KindReply, &Empty{}},
	{KindProcessAlter, &ProcessAlter{Node: 2, Name: []byte("work-queue"), Options: sampleOptions}},
	{KindProcessAlter | KindReply, &Empty{}},
	{KindProcessDescribe, &ProcessDescribe{Node: 2, Name: []byte("work-queue"),
		Flags: WithProcessMembers | WithProcessHistory, Consistency: Strict, MinIndex: 70_000,
		Cursor: []byte{0, 2}, Limit: 100}},
	{KindProcessDescribe | KindReply, &sampleProcess},
	{KindProcessList, &ProcessList{Shard: 1, Node: 2, Prefix: []byte("work"), Cursor: []byte("work-a"), Limit: 100, Consistency: Relaxed, MinIndex: 70_000}},
	{KindProcessList | KindReply, &ProcessListReply{Index: 70_001,
		Processes: []ProcessItem{{Name: []byte("work-queue"), Phase: PhaseCompleted, Epoch: 12, Topology: 9,
			Coordinator: sampleHead.Session, NumMembers: 5}}, Cursor: []byte("work-queue"), Runs: sampleRuns}},
	{KindProcessSync, &ProcessSync{Session: sampleHead.Session, Name: []byte("work-queue"), Epoch: 12}},
	{KindProcessSync | KindReply, &Empty{}},
	{KindProcessRequest, &ProcessRequest{Session: sampleHead.Session, Name: []byte("work-queue"), Epoch: 12, Number: 300, Low: 298,
		To: []uint64{sampleHead.Session, sampleHead.Session + 1}, Payload: []byte("lock")}},
	{KindProcessRequest | KindReply, &Empty{}},
	{KindProcessReply, &ProcessReply{Session: sampleHead.Session, Name: []byte("work-queue"), Epoch: 12,
		To: sampleHead.Session + 1, Number: 300, Refused: true,
		Payload: []byte("locked")}},
	{KindProcessReply | KindReply, &Empty{}},
	{KindProcessWatch, &ProcessWatch{Node: 2, Name: []byte("work-queue")}},
	{KindProcessWatch | KindReply, &Empty{}},

	{KindTrackCreate, &TrackCreate{Head: sampleHead, Name: []byte("geo/base"), Config: sampleTrackConfig}},
	{KindTrackCreate | KindReply, &TrackRevision{Revision: 1}},
	{KindTrackAlter, &TrackAlter{Head: sampleHead, Name: []byte("geo/base"), Revision: 1, Config: sampleTrackConfig}},
	{KindTrackAlter | KindReply, &TrackRevision{Revision: 2}},
	{KindTrackDelete, &TrackDelete{Head: sampleHead, Name: []byte("geo/base"), Force: true}},
	{KindTrackDelete | KindReply, &Empty{}},
	{KindTrackRegister, &TrackRegister{Head: sampleHead, Name: []byte("geo/base"), ID: "sas-1.example",
		Location: "SAS", Role: InstanceFollower, Meta: "rack 7",
		Takeover: true}},
	{KindTrackRegister | KindReply, &TrackRegisterReply{Incarnation: 5}},
	{KindTrackUnregister, &TrackUnregister{Head: sampleHead, Name: []byte("geo/base"), ID: "sas-1.example", Incarnation: 5}},
	{KindTrackUnregister | KindReply, &Empty{}},
	{KindTrackPoll, &TrackPoll{Session: sampleHead.Session, Name: []byte("geo/base"), ID: "sas-1.example",
		Incarnation: 5, Report: sampleReport,
		WithPayload: true}},
	{KindTrackPoll | KindReply, &TrackPollReply{Version: 42, Status: PollPaused, State: StateWaitingDelay,
		Until: 90_000, RetryAfter: 3_000, Generation: 7,
		HasPayload: true, Payload: []byte("v42")}},
	{KindTrackReport, &TrackReport{Session: sampleHead.Session, Name: []byte("geo/base"), ID: "sas-1.example", Incarnation: 5, Report: sampleReport}},
	{KindTrackReport | KindReply, &Empty{}},
	{KindTrackSetRole, &TrackSetRole{Head: sampleHead, Name: []byte("geo/base"), ID: "sas-1.example", Incarnation: 5, Role: InstanceLeader}},
	{KindTrackSetRole | KindReply, &Empty{}},
	{KindTrackPublish, &TrackPublish{Head: sampleHead, Name: []byte("geo/base"), Version: 42, Payload: []byte("v42")}},
	{KindTrackPublish | KindReply, &TrackVersion{Version: 42}},
	{KindTrackWithdraw, &TrackWithdraw{Head: sampleHead, Name: []byte("geo/base"), Version: 42}},
	{KindTrackWithdraw | KindReply, &Empty{}},
	{KindTrackAdmin, &TrackAdmin{Head: sampleHead, Name: []byte("geo/base"), Verb: TrackRollback,
		Locations: []string{"SAS", "MAN"}, Version: 41,
		ID: "sas-1.example", Hard: true, Reason: "host is broken"}},
	{KindTrackAdmin | KindReply, &Empty{}},
	{KindTrackGateReport, &TrackGateReport{Head: sampleHead, Name: []byte("geo/base"), Location: "MAN", Version: 42,
		Gate: "smoke", Attempt: 2, Outcome: GateFailure,
		Text: "3 of 10 requests failed"}},
	{KindTrackGateReport | KindReply, &Empty{}},
	{KindTrackAdvance, &TrackAdvance{Head: sampleHead, Name: []byte("geo/base"), Expected: 41, Version: 42}},
	{KindTrackAdvance | KindReply, &Empty{}},
	{KindTrackDescribe, &TrackDescribe{Node: 2, Name: []byte("geo/base"), Flags: WithTrackConfig | WithTrackInstances,
		Consistency: Strict, MinIndex: 70_000,
		Cursor: []byte("sas-1"), Limit: 100}},
	{KindTrackDescribe | KindReply, &sampleTrackStatus},
	{KindTrackHistory, &TrackHistory{Node: 2, Name: []byte("geo/base"), Location: "SAS", Consistency: Relaxed, MinIndex: 70_000}},
	{KindTrackHistory | KindReply, &TrackHistoryReply{Index: 70_001, Clock: 88_000,
		Rows: []TrackHistoryRow{{Version: 42, At: 80_000, Wall: 1_700_000_000_000,
			Converged: 81_000, Reason: ReasonAdvance, Skip: true}}}},
	{KindTrackList, &TrackList{Shard: 1, Node: 2, Prefix: []byte("geo/"), Cursor: []byte("geo/a"), Limit: 100, Consistency: Relaxed, MinIndex: 70_000}},
	{KindTrackList | KindReply, &TrackListReply{Index: 70_001,
		Tracks: []TrackItem{{Name: []byte("geo/base"), Last: 42, NumLocations: 3, NumInstances: 9,
			Paused: true, States: []byte{byte(StateStalled), byte(StateConverged), byte(StateWaitingDelay)}}},
		Cursor: []byte("geo/base"), Runs: sampleRuns}},
	{KindTrackWatch, &TrackWatch{Node: 2, Name: []byte("geo/base"), Location: "SAS", Targets: true}},
	{KindTrackWatch | KindReply, &Empty{}},
	{KindLimitCreate, &LimitCreate{Head: sampleHead, Path: []byte("api/tenant-a"), Config: sampleLimit, Force: true, Reason: "a new tenant"}},
	{KindLimitCreate | KindReply, &LimitRevision{Revision: 4}},
	{KindLimitAlter, &LimitAlter{Head: sampleHead, Path: []byte("api/tenant-a"), Revision: 4, Config: sampleLimit, Reason: "the API takes more"}},
	{KindLimitAlter | KindReply, &LimitRevision{Revision: 5}},
	{KindLimitDelete, &LimitDelete{Head: sampleHead, Path: []byte("api/tenant-a"), Revision: 5, Force: true, Reason: "the tenant has gone"}},
	{KindLimitDelete | KindReply, &Empty{}},
	{KindLimitJoin, &LimitJoin{Head: sampleHead, Path: []byte("api"), Again: true}},
	{KindLimitJoin | KindReply, &Empty{}},
	{KindLimitLeave, &LimitLeave{Head: sampleHead, Path: []byte("api")}},
	{KindLimitLeave | KindReply, &Empty{}},
	{KindLimitRefresh, &LimitRefresh{Session: sampleHead.Session, Path: []byte("api"), Seq: 300, BucketEpoch: 2, LeaderEpoch: 7 << 16, Open: 290,
		Leaves: []LimitLeaf{{Path: []byte("api/tenant-a"), Demand: 120_000, Waiting: 5_000, Need: 2_000, Statement: []byte("signed"),
			Allowed: 900_000, Denied: 3_000, Waited: 70_000, Impossible: 4_000, Elsewhere: true, Closed: true}}}},
	{KindLimitRefresh | KindReply, &LimitRefreshReply{BucketEpoch: 2, LeaderEpoch: 7 << 16, Length: 3_000, Again: true, Clock: 88_000,
		Leaves: []LimitLease{{State: LimitRemote, Rate: 110_000, Burst: 90_000, Length: 500, Level: 1_000, Statement: []byte("signed"), Most: 1_000_000, Limit: 200_000,
			Floor: 500, Shadow: true, Why: LimitWeight, At: []byte("api")}}}},
	{KindLimitAcquire, &LimitAcquire{Session: sampleHead.Session, Path: []byte("api"), Seq: 900,
		Leaves: []LimitNeed{{Path: []byte("api/tenant-a"), Demand: 7_000}}, Amount: 2_000, Hold: true, Back: 7, Used: 890}},
	{KindLimitAcquire | KindReply, &LimitAcquireReply{Granted: true, Retry: 250, BucketEpoch: 2, LeaderEpoch: 7 << 16, Until: 89_000}},
	{KindLimitDescribe, &LimitDescribe{Node: 2, Path: []byte("api"), Sessions: 100, Cursor: []byte("api/b")}},
	{KindLimitDescribe | KindReply, &LimitStatus{Index: 70_001, Clock: 88_000, Length: 3_000, Learning: true, Learned: 12, Participants: 2,
		Resources: []LimitResource{{Path: []byte("api/tenant-a"), Revision: 4, Config: sampleLimit, Rate: 200_000, Burst: 400_000,
			Demand: 120_000, Target: 110_000, Leased: 100_000, LeasedBurst: 90_000, Remote: 10_000, Level: 6_000, Sessions: 2, Callers: 1, Waiting: 5_000,
			Allowed: 900_000, Denied: 3_000, Waited: 70_000, Impossible: 2_000, Acquires: 8, Unconfirmed: 1_000, ServedRemote: true}},
		Sessions: []LimitSession{{Session: sampleHead.Session, Path: []byte("api/tenant-a"), State: LimitRemote, Rate: 50_000, Burst: 45_000,
			Demand: 60_000, Waiting: 5_000, Used: 49_000, Share: 55_000, Lacks: 300, Age: 60_000, Heard: 700, Why: LimitBurst, At: []byte("api")}},
		Cursor: []byte("api/tenant-a")}},
	{KindLimitList, &LimitList{Shard: 1, Node: 2, Prefix: []byte("a"), Cursor: []byte("aa"), Limit: 100}},
	{KindLimitList | KindReply, &LimitListReply{Index: 70_001, Limits: []LimitItem{{Name: []byte("api"), Revision: 9, Config: sampleLimit,
		Resources: 3, Participants: 2}}, Cursor: []byte("api"), Runs: sampleRuns}},
	{KindLimitWatch, &LimitWatch{Node: 2, Path: []byte("api"), Session: sampleHead.Session}},
	{KindLimitWatch | KindReply, &Empty{}},

	{KindProcessRound, &ProcessRound{Session: sampleHead.Session, Name: []byte("work-queue"), Kind: RoundResume,
		Removal: RemovedByOperator, Epoch: 12, Topology: 9,
		Coordinator: sampleHead.Session, Attempt: 1, Token: 13, CompletedEpoch: 11, Result: []byte("v1"),
		Text:    "a member failed: no connection",
		Members: []ProcessMember{sampleMember}}},
	{KindProcessMessage, &ProcessMessage{Session: sampleHead.Session, Name: []byte("work-queue"),
		Kind: MessageRequest, From: sampleHead.Session + 1, Epoch: 12,
		Number: 300, Low: 298, Payload: []byte("lock")}},
	{KindProcessState, &ProcessState{First: true, Last: true, Exists: true, Status: sampleProcess}},
	{KindProcessChanges, &ProcessChanges{Revision: 70_002, Wall: 1_700_000_000_000,
		Changes: []ProcessChange{{Kind: ProcessRoundEnded, Phase: PhaseWaiting,
			Outcome: RoundFailed, Epoch: 12, Topology: 9, Session: sampleHead.Session, Text: "a member failed: no connection"}}}},

	{KindPong, &Empty{}},
	{KindGoodbye, &Goodbye{Status: StatusUnavailable, Message: "the server is shutting down; connect to another instance"}},
	{KindMapChanged, &MapChanged{Version: 13, Shard: 4, Master: 2, Term: 7}},
	{KindSessionEnded, &SessionEnded{Session: sampleHead.Session, Reason: EndNodeDropped, Message: "node dropped"}},
	{KindTakenOver, &TakenOver{Session: sampleHead.Session, Epoch: 3}},
	{KindAcquireResult, &AcquireResult{Session: sampleHead.Session, Seq: 300, Status: StatusAborted, State: NotAcquired, OrderID: 41, Message: "the semaphore was deleted"}},
	{KindLeaseLost, &LeaseLost{Session: sampleHead.Session, Name: []byte("slots"), OrderID: 41, Message: "the semaphore was deleted by force"}},
	{KindWatchFired, &WatchFired{Session: sampleHead.Session, WatchID: 9, OwnersChanged: true}},
	{KindSnapshot, &Snapshot{Index: 70_001, First: true, Last: true,
		Semaphores: []SnapshotItem{{Name: []byte("leader"), Limit: Forever, Ephemeral: true,
			Version: 1, Data: []byte("v1"), Owners: []Owner{sampleOwner}}}, Runs: sampleRuns, Epoch: 3, Resumed: true,
		Deltas: AppendFrame(nil, KindDelta, 0, 1, &Delta{Node: 2, Name: []byte("leader"), Index: 70_001})}},
	{KindDelta, &Delta{Node: 2, Name: []byte("leader"), Index: 70_002, Changes: []SemaphoreChange{
		{Kind: ChangeOwnerRemoved, Owner: Owner{OrderID: 41, Session: sampleHead.Session}},
		{Kind: ChangeOwnerAdded, Owner: sampleOwner}}}},
	{KindStreamCut, &StreamCut{Status: StatusOverloaded, Message: "the reader is too slow; open the stream again"}},
	{KindDetached, &Detached{Session: sampleHead.Session, Epoch: 3}},
	{KindLimitChanged, &LimitChanged{Revision: 9}},
	{KindLeasePreempted, &LeasePreempted{Session: sampleHead.Session, Name: []byte("gpu"), OrderID: 41, Preemption: 57, Now: 70_000, Until: 100_000,
		By: sampleHead.Session + 1}},
	{KindTrackStatus, &sampleTrackStatus},
	{KindTrackEvents, &TrackEvents{Revision: 70_002,
		Events: []TrackEvent{{Kind: TrackEventTarget, Reason: ReasonAdvance, State: StateConverging, Share: true,
			Location: "SAS", Instance: "sas-1.example", Gate: "smoke", Version: 42, From: 41, Generation: 7,
			Until: 90_000, Attempt: 2, Log: 88_000,
			Wall: 1_700_000_000_000, Text: "all 3 leaders have the version; the next one is from the source"}}}},
}

// extraMessages are messages that belong to no single kind: the body of a failed reply, and a
// config by itself.
var extraMessages = []messageCase{
	{KindReply, &Failure{Message: "semaphore slots does not exist; create it first", Refusal: RefusalNoSemaphore, Master: 3, Term: 7, Shard: 4, MapVersion: 13}},
	{0, &sampleNode.Config},
}

// optionMessages are messages of the table again, with the trailing fields that plain use leaves out.
var optionMessages = []messageCase{
	{KindSessionDescribe, &SessionDescribe{Node: 2, CreateID: []byte("fedcba9876543210")}},
	{KindCreate, &Create{Head: sampleHead, Name: []byte("gpu"), Limit: 2, Data: []byte("v1"), Options: &sampleSemaphoreOptions, Reason: "a rack more"}},
	{KindAcquire, &Acquire{Head: sampleHead, Name: []byte("gpu"), Count: 1, Timeout: 30_000, Options: &AcquireOptions{Priority: 8,
		Key: []byte("training"), Labels: []string{"mem=80"}, Hold: 3_600_000, Flags: KnowsBounds | AskDeadlock}}},
	{KindAcquire, &Acquire{Head: sampleHead, Name: []byte("gpu"), Count: 1, Options: &AcquireOptions{Names: []string{"gpu0"}, Known: 57,
		Flags: KnowsBounds}}},
	{KindAcquire | KindReply, &AcquireReply{State: Acquired, OrderID: 41, Grant: &sampleGrant}},
	{KindAcquireResult, &AcquireResult{Session: sampleHead.Session, Seq: 300, State: Acquired, OrderID: 41, Grant: &sampleGrant}},
	{KindRelease, &Release{Head: sampleHead, Name: []byte("gpu"), OrderID: 41, To: sampleHead.Session + 1}},
	{KindRelease, &Release{Head: sampleHead, Name: []byte("gpu"), OrderID: 41, Bound: HoldMaxHold}},
	{KindRelease | KindReply, &ReleaseReply{Released: true, Transferred: true}},
	{KindDescribe | KindReply, &DescribeReply{Index: 70_001, Revision: 69_990, Name: []byte("gpu"), Version: 1, Used: 1, Limit: 2,
		CreatedAt: 1_700_000_000_000, NumOwners: 1, NumWaiters: 1,
		Owners: []Owner{{OrderID: 41, Session: sampleHead.Session, Count: 1, Options: &OwnerOptions{Slots: []string{"gpu0"}, Priority: 6,
			Key: []byte("training"), Left: 29_000, Preempted: true, Silent: true}}},
		Waiters: []Waiter{{OrderID: 42, Session: sampleHead.Session + 1, Count: 1, Timeout: 30_000, Options: &WaiterOptions{Priority: 8,
			Key: []byte("research"), Labels: []string{"mem=80"}, Flags: KnowsBounds | AskDeadlock, Rank: 1}}},
		Details: &SemaphoreDetails{Options: sampleSemaphoreOptions, Slots: []SlotInfo{{Name: "gpu0", Labels: []string{"mem=80"},
			State: SlotHeld, Token: 41, Session: sampleHead.Session, Since: 1_700_000_000_000}, {Name: "gpu1", State: SlotDrained}}}}},
}

// allMessages is all of them.
func allMessages() []messageCase {
	return slices.Concat(messages, extraMessages, optionMessages)
}

// filled is a message with every field, at every depth, set to something large; lists have two
// items.
func filled(e messageCase) Message {
	m := e.fresh()
	fill(reflect.ValueOf(m).Elem())
	return m
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(bytes.Repeat([]byte{0xff}, 300))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("semáforo \x00 \x1b[31m ✋ " + string(bytes.Repeat([]byte("x"), 40)))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetUint(1<<v.Type().Bits() - 1) // shifts to 0-1 at 64 bits
	}
}

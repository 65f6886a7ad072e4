package protocol

import "strconv"

// Kind names a message. A frame is a 4-byte big-endian length followed by one msgpack array of
// exactly four elements, [kind, id, arg, body], body being an array of the message's fields in the
// order of its struct.
//
//	request  [kind, request id, bucket, body]           client to server
//	reply    [kind|KindReply, request id, status, body] exactly one for each request except Ping
//	event    [kind, 0 or watch id, shard, body]         server to client, unasked
//
// The bucket routes a request; it is 0 where the message says so. The body of a reply is [message]
// unless the status is OK.
//
// Fields may be added at the end of a body: a reader skips unknown fields, and takes zero for
// missing ones.
type Kind uint16

// KindReply is set in the kind of a reply.
const KindReply Kind = 0x80

const (
	// Connection. Bucket is 0.
	KindHello         Kind = 1
	KindPing          Kind = 2 // answered by one KindPong with shard 0 at once, and one per home shard behind its barrier
	KindPresentTicket Kind = 3 // presents a session's ticket to this instance
	KindMap           Kind = 4

	// Coordination nodes. Bucket is 0: served by the meta shard.
	KindNodeCreate   Kind = 10
	KindNodeAlter    Kind = 11
	KindNodeDescribe Kind = 12
	KindNodeDelete   Kind = 13
	KindNodeList     Kind = 14

	// Operators. Bucket is 0: any instance answers.
	KindCluster Kind = 15

	// Sessions. Bucket is the home bucket.
	KindSessionStart    Kind = 20
	KindSessionAttach   Kind = 21
	KindSessionStop     Kind = 22
	KindSessionDescribe Kind = 23
	KindSessionList     Kind = 24 // bucket is any bucket of the shard that is asked
	KindSessionKill     Kind = 25
	KindSessionObjects  Kind = 26 // bucket is any bucket of the shard that is asked

	// Options of a semaphore. Bucket is Bucket(node, name).
	KindAlter            Kind = 27
	KindSemaphoreHistory Kind = 28

	// A semaphore, for operators. Bucket is Bucket(node, name).
	KindForceRelease Kind = 29

	// Semaphores. Bucket is Bucket(node, name).
	KindCreate   Kind = 30
	KindUpdate   Kind = 31
	KindResize   Kind = 32
	KindDelete   Kind = 33
	KindAcquire  Kind = 34
	KindRelease  Kind = 35
	KindDescribe Kind = 36
	KindList     Kind = 37 // bucket is any bucket of the shard that is asked
	KindWatch    Kind = 38 // opens a stream; for a prefix the bucket is any bucket of the shard that is asked
	KindUnwatch  Kind = 39 // bucket as in the watch

	// Coordination processes. Bucket is ProcessBucket(node, name).
	KindProcessJoin       Kind = 40
	KindProcessLeave      Kind = 41
	KindProcessConfirm    Kind = 42
	KindProcessFail       Kind = 43
	KindProcessComplete   Kind = 44
	KindProcessForceRound Kind = 45
	KindProcessEvict      Kind = 46
	KindProcessAlter      Kind = 47
	KindProcessDescribe   Kind = 48
	KindProcessList       Kind = 49 // bucket is any bucket of the shard that is asked
	KindProcessSync       Kind = 50
	KindProcessRequest    Kind = 51
	KindProcessReply      Kind = 52
	KindProcessWatch      Kind = 53 // opens a stream; unwatch closes it

	// Tracks, which are staged rollouts. Bucket is Bucket(node, name). Unwatch closes a track_watch
	// too.
	KindTrackCreate     Kind = 80
	KindTrackAlter      Kind = 81
	KindTrackDelete     Kind = 82
	KindTrackRegister   Kind = 83
	KindTrackUnregister Kind = 84
	KindTrackPoll       Kind = 85
	KindTrackReport     Kind = 86
	KindTrackSetRole    Kind = 87
	KindTrackPublish    Kind = 88
	KindTrackWithdraw   Kind = 89
	KindTrackAdmin      Kind = 90
	KindTrackGateReport Kind = 91
	KindTrackDescribe   Kind = 92
	KindTrackHistory    Kind = 93
	KindTrackList       Kind = 94 // bucket is any bucket of the shard that is asked
	KindTrackWatch      Kind = 95
	KindTrackAdvance    Kind = 96

	// Rate limits. Bucket is Bucket(node, LimitRoot(path)). Unwatch closes a limit_watch too.
	KindLimitCreate   Kind = 100
	KindLimitAlter    Kind = 101
	KindLimitDelete   Kind = 102
	KindLimitJoin     Kind = 103
	KindLimitLeave    Kind = 104
	KindLimitRefresh  Kind = 105
	KindLimitAcquire  Kind = 106
	KindLimitDescribe Kind = 107
	KindLimitList     Kind = 108 // bucket is any bucket of the shard that is asked
	KindLimitWatch    Kind = 109

	// Events of processes.
	KindProcessRound   Kind = 56 // to a member, about a round
	KindProcessMessage Kind = 57 // to a member, from another
	KindProcessState   Kind = 58 // the state that a process's stream starts from; id is the watch's
	KindProcessChanges Kind = 59 // id is the watch's

	// Events.
	KindPong           Kind = 64 // id is the ping's; arg is the shard whose sessions are renewed, or 0
	KindGoodbye        Kind = 65
	KindMapChanged     Kind = 66
	KindSessionEnded   Kind = 67 // arg is the home shard
	KindTakenOver      Kind = 68
	KindAcquireResult  Kind = 69 // the end of a queued acquire
	KindLeaseLost      Kind = 70 // an owner lost its units: by force, or at its bound
	KindWatchFired     Kind = 71 // a one-shot watch fired
	KindSnapshot       Kind = 72 // a page of a stream's snapshot; id is the watch's
	KindDelta          Kind = 73 // changes, once per connection for all its streams
	KindStreamCut      Kind = 74 // a stream ended; id is the watch's; open it again
	KindDetached       Kind = 75 // arg is the former home shard
	KindTrackStatus    Kind = 76 // the state that a track's stream starts from; id is the watch's
	KindTrackEvents    Kind = 77 // id is the watch's
	KindLimitChanged   Kind = 78 // id is the watch's
	KindLeasePreempted Kind = 79 // a waiter preempts an owner, or not any more
)

// kindNames are the names used in logs and metrics, by number.
var kindNames = [...]string{
	KindHello: "hello", KindPing: "ping", KindPresentTicket: "present_ticket", KindMap: "map",
	KindNodeCreate: "node_create", KindNodeAlter: "node_alter", KindNodeDescribe: "node_describe",
	KindNodeDelete: "node_delete",
	KindNodeList:   "node_list", KindCluster: "cluster",
	KindSessionStart: "session_start", KindSessionAttach: "session_attach", KindSessionStop: "session_stop",
	KindSessionDescribe: "session_describe", KindSessionList: "session_list", KindSessionKill: "session_kill",
	KindSessionObjects: "session_objects",
	KindAlter:          "alter", KindSemaphoreHistory: "semaphore_history",
	KindForceRelease: "force_release",
	KindCreate:       "create", KindUpdate: "update", KindResize: "resize", KindDelete: "delete", KindAcquire: "acquire",
	KindRelease: "release", KindDescribe: "describe", KindList: "list", KindWatch: "watch", KindUnwatch: "unwatch",
	KindPong: "pong", KindGoodbye: "goodbye", KindMapChanged: "map_changed", KindSessionEnded: "session_ended",
	KindTakenOver: "taken_over", KindAcquireResult: "acquire_result", KindLeaseLost: "lease_lost",
	KindWatchFired: "watch_fired",
	KindSnapshot:   "snapshot", KindDelta: "delta", KindStreamCut: "stream_cut", KindDetached: "detached",
	KindTrackStatus: "track_status", KindTrackEvents: "track_events",
	KindProcessJoin: "process_join", KindProcessLeave: "process_leave", KindProcessConfirm: "process_confirm",
	KindProcessFail:     "process_fail",
	KindProcessComplete: "process_complete", KindProcessForceRound: "process_force_round",
	KindProcessEvict: "process_evict", KindProcessAlter: "process_alter",
	KindProcessDescribe: "process_describe", KindProcessList: "process_list", KindProcessSync: "process_sync",
	KindProcessRequest: "process_request",
	KindProcessReply:   "process_reply", KindProcessWatch: "process_watch", KindProcessRound: "process_round",
	KindProcessMessage: "process_message",
	KindProcessState:   "process_state", KindProcessChanges: "process_changes",
	KindTrackCreate: "track_create", KindTrackAlter: "track_alter",
	KindTrackDelete: "track_delete", KindTrackRegister: "track_register",
	KindTrackUnregister: "track_unregister", KindTrackPoll: "track_poll", KindTrackReport: "track_report",
	KindTrackSetRole: "track_set_role",
	KindTrackPublish: "track_publish", KindTrackWithdraw: "track_withdraw", KindTrackAdmin: "track_admin",
	KindTrackGateReport: "track_gate_report",
	KindTrackDescribe:   "track_describe", KindTrackHistory: "track_history",
	KindTrackList: "track_list", KindTrackWatch: "track_watch",
	KindTrackAdvance: "track_advance",
	KindLimitCreate:  "limit_create", KindLimitAlter: "limit_alter", KindLimitDelete: "limit_delete",
	KindLimitJoin: "limit_join", KindLimitLeave: "limit_leave",
	KindLimitRefresh: "limit_refresh", KindLimitAcquire: "limit_acquire",
	KindLimitDescribe: "limit_describe", KindLimitList: "limit_list", KindLimitWatch: "limit_watch",
	KindLimitChanged: "limit_changed", KindLeasePreempted: "lease_preempted",
}

// NumKinds is above every kind that is known here, replies aside: the length of a table by kind.
const NumKinds = len(kindNames)

// String is a name for logs and metrics: acquire, acquire_reply, kind_77 for an unknown kind. Known
// kinds do not allocate unless they are replies.
func (k Kind) String() string {
	if k.IsReply() {
		return (k &^ KindReply).String() + "_reply"
	}
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "kind_" + strconv.Itoa(int(k))
}

// Events have the kinds from firstEvent to lastEvent, and those of processes the four below 60;
// requests lie around them, and all below KindReply.
const (
	firstEvent Kind = 64
	lastEvent  Kind = 79
)

func (k Kind) event() bool {
	return k >= firstEvent && k <= lastEvent || k >= KindProcessRound && k <= KindProcessChanges
}

// IsRequest reports whether a client may send this kind: it is known and neither a reply nor an
// event.
func (k Kind) IsRequest() bool { return k.known() && !k.event() }

// IsReply reports whether the kind is a reply's.
func (k Kind) IsReply() bool { return k&KindReply != 0 }

// IsEvent reports whether a server sends this kind unasked.
func (k Kind) IsEvent() bool { return k.known() && k.event() }

func (k Kind) known() bool { return int(k) < len(kindNames) && kindNames[k] != "" }

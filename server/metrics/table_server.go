package metrics

// The caps on series of labels that are no names of clients' choice.
const (
	mostListeners    = 2
	mostCertificates = 4
	mostTrusts       = 64
	mostReasons      = 16
	mostShards       = 4096 // replicas that one instance hosts
	mostInstances    = 64
	mostStates       = 8
	mostActions      = 9 // three kinds, three outcomes
)

var instance = section("Instance")

var (
	Ready = instance.gauge("signalbox_ready",
		"1 while clients are served, as /readyz says.")
	BuildInfo = instance.gauge("signalbox_build_info",
		"1, with the version of the binary, the revision of its source, and the version of Go.",
		"version", "revision", "go_version")

	MemoryLive = instance.gauge("signalbox_memory_live_bytes",
		"Live heap after the last collection, and stacks: what the limit on memory counts.")
	MemoryLimit = instance.gauge("signalbox_memory_limit_bytes",
		"The limit on memory; 0 without one.")
	MemoryRefusals = instance.counter("signalbox_memory_refusals_total",
		"Requests refused with OVERLOADED because the limit on memory was near.")
	Panics = instance.counter("signalbox_panics_total",
		"Panics that were contained: defects of the server. The log has their stacks.")
	LogDropped = instance.counter("signalbox_log_dropped_total",
		"Lines of the log that were dropped, because standard error was not read or took no more.")
	AuditDropped = instance.counter("signalbox_audit_events_dropped_total",
		"Events that the audit log lost because they could not be written.")

	LogWriteSeconds = instance.histogram("signalbox_log_write_seconds",
		"Duration of a write to the log that was synced, with its fsync. "+
			"A commit index alone is not synced.",
		latencies)
	LogWriteWaiting = instance.gauge("signalbox_log_write_waiting_seconds",
		"How long the write that is under way has taken so far; 0 without one.")
	LogBytes = instance.gauge("signalbox_log_bytes",
		"Length of the log's files.")
	LogSegments = instance.gauge("signalbox_log_segments",
		"Files of the log that have records.")
	DiskFree = instance.gauge("signalbox_disk_free_bytes",
		"Free space on the disk of the data folder.")
	DiskSize = instance.gauge("signalbox_disk_bytes",
		"Size of the disk of the data folder.")
	DiskFilesFree = instance.gauge("signalbox_disk_files_free",
		"Free inodes on the disk of the data folder, where the file system counts them.")
	DiskFiles = instance.gauge("signalbox_disk_files",
		"Inodes of the disk of the data folder, where the file system counts them.")

	CertificateExpiry = instance.gauge("signalbox_certificate_expiry_timestamp_seconds",
		"When the certificate in use expires, in seconds since 1970.", "certificate").most(mostCertificates)
	TokenExpiry = instance.gauge("signalbox_token_expiry_timestamp_seconds",
		"When the first of the tokens expires that do, in seconds since 1970; in the past until that token is revoked.")
	TrustKeysAge = instance.gauge("signalbox_trust_keys_age_seconds",
		"Time since the issuer of a trust confirmed its keys, by the instance that leads the meta shard.", "trust").most(mostTrusts)
	TrustFetchFailures = instance.counter("signalbox_trust_key_fetch_failures_total",
		"Fetches of a trust's keys that failed; the former keys count.", "trust").most(mostTrusts)
	CertificateReloadsFailed = instance.counter("signalbox_certificate_reloads_failed_total",
		"Changed certificate files that could not be used at two looks in a row; the former ones stay in use.",
		"certificate").most(mostCertificates)
	BackupAge = instance.gauge("signalbox_backup_age_seconds",
		"Time since a backup read the whole shard from this instance. If none has and this instance leads "+
			"the shard: how long the shard has had a leader, or infinite for the meta shard. Take the least over "+
			"all instances.",
		"shard").most(mostShards)
)

var clients = section("Clients and requests")

var (
	Connections = clients.gauge("signalbox_connections",
		"Open connections of clients.", "listener").most(mostListeners)
	ConnectionsLimit = clients.gauge("signalbox_connections_limit",
		"The most connections of clients; one more is rejected.")
	ConnectionsAccepted = clients.counter("signalbox_connections_accepted_total",
		"Connections of clients that were accepted.")
	ConnectionsRejected = clients.counter("signalbox_connections_rejected_total",
		"Connections of clients that were closed at once, over a limit.")
	ConnectionsClosed = clients.counter("signalbox_connections_closed_total",
		"Connections that the server closed, by the reason.", "reason").most(mostReasons)
	AcceptErrors = clients.counter("signalbox_accept_errors_total",
		"Errors of accepting a connection, such as too many open files.")
	HandshakesFailed = clients.counter("signalbox_tls_handshakes_failed_total",
		"TLS handshakes of clients that failed.")
	ReceivedBytes = clients.counter("signalbox_received_bytes_total",
		"Bytes received from clients.")
	SentBytes = clients.counter("signalbox_sent_bytes_total",
		"Bytes sent to clients.")
	SocketWrites = clients.counter("signalbox_writes_total",
		"Writes to clients' sockets. Bytes for a write rise with the load.")
	UnfinishedBytes = clients.gauge("signalbox_unfinished_frame_bytes",
		"Bytes of frames that have not arrived whole.")
	UnreadBytes = clients.gauge("signalbox_unread_bytes",
		"Bytes that wait for slow readers.")
	UnreadPageBytes = clients.gauge("signalbox_unread_page_bytes",
		"Bytes of watches' snapshots that wait to be read. From 32 MiB on, further ones wait until these are read.")
	LoopLag = clients.histogram("signalbox_loop_lag_seconds",
		"How late an event loop runs. It rises when the processor is full.", lags)

	AuthFailures = clients.counter("signalbox_auth_failures_total",
		"Attempts to connect with wrong credentials.")
	Requests = clients.counter("signalbox_requests_total",
		"Replies, by kind of request and status.", "kind", "status").most(countedKinds * countedStatuses)
	RequestSeconds = clients.histogram("signalbox_request_seconds",
		"Time from the read of a request to its reply. A queued acquire is answered when it is queued.",
		latencies, "kind").most(countedKinds)
	RepliesDropped = clients.counter("signalbox_replies_dropped_total",
		"Replies whose connection was gone.")
	BatchCommands = clients.histogram("signalbox_batch_commands",
		"Commands that shared an entry of the log.", sizes)
	BatchSeconds = clients.histogram("signalbox_batch_seconds",
		"Time from the read of the first request of an entry to the entry's replies.", latencies)
	RelaxedAttaches = clients.counter("signalbox_relaxed_attaches_total",
		"Attaches that were answered before they were logged.")
)

var peers = section("Connections between instances")

var (
	PeerConnections = peers.gauge("signalbox_peer_connections",
		"Connections with other instances, by who opened them.", "way").most(mostListeners)
	PeerHandshaking = peers.gauge("signalbox_peer_handshaking",
		"Connections from other instances whose handshake is not over.")
	PeerSentBytes = peers.counter("signalbox_peer_sent_bytes_total",
		"Bytes sent to other instances.")
	PeerReceivedBytes = peers.counter("signalbox_peer_received_bytes_total",
		"Bytes received from other instances.")
	PeerBatches = peers.counter("signalbox_peer_batches_total",
		"Batches of raft messages, by what became of them.", "what").most(mostStates)
	PeerChunks = peers.counter("signalbox_peer_chunks_total",
		"Pieces of snapshots, by what became of them.", "what").most(mostStates)
	PeerMessages = peers.counter("signalbox_peer_messages_total",
		"Messages between shards, by what became of them.", "what").most(mostStates)
	PeerCalls = peers.counter("signalbox_peer_calls_total",
		"Calls between instances, by what became of them.", "what").most(mostStates)
	PeerDials = peers.counter("signalbox_peer_dials_total",
		"Attempts to connect to another instance.")
	PeerDialsFailed = peers.counter("signalbox_peer_dials_failed_total",
		"Attempts to connect to another instance that failed.")
	PeerAccepted = peers.counter("signalbox_peer_accepted_total",
		"Connections accepted at the raft address.")
	PeerAcceptErrors = peers.counter("signalbox_peer_accept_errors_total",
		"Errors of accepting a connection at the raft address.")
	PeerRefused = peers.counter("signalbox_peer_refused_total",
		"Connections refused at the raft address, by the reason.", "reason").most(mostReasons)
	PeerBadFrames = peers.counter("signalbox_peer_bad_frames_total",
		"Frames from other instances that could not be read.")
	PeerSilent = peers.counter("signalbox_peer_silent_total",
		"Connections that were closed because the other instance was silent.")
	PeerPanics = peers.counter("signalbox_peer_panics_total",
		"Panics that were contained while another instance was served.")
	ShardMessagesDropped = peers.counter("signalbox_shard_messages_dropped_total",
		"Messages of other shards' leaders that were dropped over a limit; they are sent again.")
)

var process = section("Process")

var (
	ProcessCPU = process.counter("process_cpu_seconds_total",
		"Processor time of the process.")
	ProcessResident = process.gauge("process_resident_memory_bytes",
		"Resident memory of the process.")
	ProcessVirtual = process.gauge("process_virtual_memory_bytes",
		"Virtual memory of the process.")
	ProcessOpenFiles = process.gauge("process_open_fds",
		"Open file descriptors.")
	ProcessMaxFiles = process.gauge("process_max_fds",
		"The limit on open file descriptors.")
	ProcessStart = process.gauge("process_start_time_seconds",
		"When the process started, in seconds since 1970.")
	GoGoroutines = process.gauge("go_goroutines",
		"Goroutines.")
	GoThreads = process.gauge("go_sched_gomaxprocs_threads",
		"Threads that run Go code at a time, at most.")
	GoHeapObjects = process.gauge("go_memory_classes_heap_objects_bytes",
		"Memory of live objects, and of dead ones that are not swept yet.")
	GoHeapUnused = process.gauge("go_memory_classes_heap_unused_bytes",
		"Memory set aside for objects that has none yet.")
	GoStacks = process.gauge("go_memory_classes_heap_stacks_bytes",
		"Memory of the stacks of goroutines.")
	GoMemory = process.gauge("go_memory_classes_total_bytes",
		"Memory that the Go runtime has mapped.")
	GoHeapGoal = process.gauge("go_gc_heap_goal_bytes",
		"Size of the heap at which the next collection ends.")
	GoAllocatedBytes = process.counter("go_gc_heap_allocs_bytes_total",
		"Bytes allocated on the heap.")
	GoAllocatedObjects = process.counter("go_gc_heap_allocs_objects_total",
		"Objects allocated on the heap.")
	GoCollections = process.counter("go_gc_cycles_total_gc_cycles_total",
		"Garbage collections.")
	GoCollectorCPU = process.counter("go_cpu_classes_gc_total_cpu_seconds_total",
		"Processor time of the garbage collector, as the runtime estimates it.")
	GoMutexWait = process.counter("go_sync_mutex_wait_total_seconds_total",
		"Time that goroutines waited for locks of the process.")
)

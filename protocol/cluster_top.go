package protocol

// Bounds of the lists of Top.
const (
	DefaultTopRows = 50
	MaxTopRows     = 100
)

// TopRequest asks one instance for its busiest semaphores and sessions.
type TopRequest struct {
	Path     string   `json:"path,omitempty"`     // only coordination nodes at this path and below it; absent: all
	Rows     int      `json:"rows,omitempty"`     // of each list, at most MaxTopRows; absent: DefaultTopRows
	Sessions []uint64 `json:"sessions,omitempty"` // also listed, even if they hold little; at most MaxTopRows
	History  bool     `json:"history,omitempty"`  // the activity comes with its history
}

// Top lists the busiest semaphores and sessions of the answering instance: it covers the shards
// that the instance leads, and the nodes that the asking identity may read.
type Top struct {
	Instance   TopInstance    `json:"instance"`
	NowMS      uint64         `json:"now_ms"`     // the instance's wall clock, ms since 1970
	Semaphores []TopSemaphore `json:"semaphores"` // the first Rows by grants, by waiters and by the oldest wait, in no order
	Sessions   []TopSession   `json:"sessions"`   // most entries first, then the requested ones
}

// TopInstance is the instance that answers.
type TopInstance struct {
	ID       uint64       `json:"id"`
	Name     string       `json:"name"`
	Activity *TopActivity `json:"activity,omitempty"` // absent without the right read on "/"
}

// TopActivity has an instance's rates over about the last 5 s.
type TopActivity struct {
	UptimeMS    uint64   `json:"uptime_ms"`
	Leads       []uint64 `json:"leads"` // shards
	Connections int      `json:"connections"`
	Sessions    int      `json:"sessions"`   // at home in the shards that it leads
	Semaphores  int      `json:"semaphores"` // in the shards that it leads
	Requests    float64  `json:"requests_per_second"`
	Rejected    float64  `json:"rejected_per_second"` // of the requests, those with another status than OK
	// requests that change something, from the first byte to the reply; 0: there were none
	ChangeP50US uint64 `json:"change_p50_us"`
	ChangeP99US uint64 `json:"change_p99_us"`
	WriteP50US  uint64 `json:"log_write_p50_us"` // writes to the log, their sync included; 0: there were none
	WriteP99US  uint64 `json:"log_write_p99_us"`
	// of the last 15 minutes, while the process has run, one for each TopPointMS, the oldest first
	History []TopPoint `json:"history,omitempty"`
}

// TopPointMS is the time from one point of a history to the next.
const TopPointMS = 15_000

// TopPoint is the load that an instance led at one moment.
type TopPoint struct {
	Grants   float64 `json:"grants_per_second"` // since the point before
	Waiters  int     `json:"waiters"`
	Sessions int     `json:"sessions"` // at home
	WaitMS   uint64  `json:"longest_wait_ms"`
}

// TopSemaphore is a semaphore that is much used or much wanted.
type TopSemaphore struct {
	Path string `json:"path"` // of its coordination node
	Name []byte `json:"name"`
	// over about the last 15 s, at least; 0 also of a semaphore that others exceed by far
	GrantsPerSecond float64 `json:"grants_per_second"`
	Limit           uint64  `json:"limit"` // 0: it does not exist now, since no session holds it
	Used            uint64  `json:"used"`
	Owners          int     `json:"owners"`
	Waiters         int     `json:"waiters"`
	// when the first waiter asked, wall clock, ms since 1970; absent: there is no waiter
	WaitingSinceMS uint64 `json:"waiting_since_ms,omitempty"`
	Ephemeral      bool   `json:"ephemeral"`
	Stuck          bool   `json:"stuck,omitempty"` // the next waiter, by the policy, wants more than the limit
	// level of the first waiter plus 1; absent: there is no waiter, or the policy is not priority
	WaitingPriority uint8 `json:"waiting_priority,omitempty"`
	DrainedSlots    int   `json:"drained_slots,omitempty"` // draining ones too
	// until the hold of the first owner ends by itself; absent: it does not
	LeftMS          uint64 `json:"left_ms,omitempty"`
	PreemptedOwners int    `json:"preempted_owners,omitempty"` // that waiters preempt
}

// TopSession is a session with its ownerships and waits in the shards that the instance leads.
type TopSession struct {
	Path        string `json:"path"` // of its coordination node
	Session     uint64 `json:"session"`
	Held        int    `json:"held"`    // semaphores
	Waiting     int    `json:"waiting"` // semaphores
	Description string `json:"description,omitempty"`
	Client      string `json:"client,omitempty"` // address; known at the session's home alone
	Detached    bool   `json:"detached,omitempty"`
}

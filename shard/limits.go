package shard

// Bounds of the format version: every replica applies the same ones, so they are constants of the
// log's format and no instance can be configured to differ.
const (
	// MaxWaitersPerSemaphore bounds a queue. Beyond it an acquire that would wait is OVERLOADED.
	MaxWaitersPerSemaphore = 1 << 20
	// MaxSemaphoresPerSession bounds what one session owns and waits for in one shard. Beyond it a
	// new acquire is OVERLOADED.
	MaxSemaphoresPerSession = 1 << 20
	// MaxAnswers bounds the answers remembered for one session in one shard: a client must not run
	// further ahead of its lowest unanswered request. Beyond it a request is OVERLOADED.
	MaxAnswers = 1 << 14
	// Retention is how long of log time a gone session's id, an idle remote session's record and an
	// ended session's create id are remembered, in ms.
	Retention = 10 * 60 * 1000

	maxBuckets = 1 << 16 // a session id has 16 bits for its bucket

	maxDescription = 1024 // bytes
)

// Limits are the bounds above as the machine holds them, so that tests can lower them. They are
// part of the state: a snapshot carries them.
type Limits struct {
	Waiters    int // per semaphore
	Semaphores int // per session
	Answers    int // per session
}

// workLimits is what one Apply may do beyond its commands. What is left goes on in the next, and
// NextDeadline says that one is due. It is part of the state for the same reason as Limits.
type workLimits struct {
	deadlines int // deadlines looked at
	sweeps    int // sessions looked at after a take-over
	releases  int // entries and records removed for ended sessions, dropped nodes and overdue waiters
}

func defaultWorkLimits() workLimits {
	return workLimits{deadlines: 1_000, sweeps: 1_000, releases: 10_000}
}

func defaultLimits() Limits {
	return Limits{Waiters: MaxWaitersPerSemaphore, Semaphores: MaxSemaphoresPerSession, Answers: MaxAnswers}
}

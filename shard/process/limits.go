package process

// Bounds of the log's format, beside those of the protocol. Every replica applies the same ones.
const (
	// MaxIdentity is the longest identity (the user a session belongs to), in bytes.
	MaxIdentity = 255
	// MaxHistory is how many ended rounds are remembered.
	MaxHistory = 32
	// MaxFormer is how many sessions that were members, and live on, are remembered.
	MaxFormer = 256
	// Retention is how long a process without members is kept, and a session that was a member
	// remembered, in ms of log time.
	Retention = 10 * 60 * 1000

	// maxCounter bounds the counters of a record that is read, so that they never overflow.
	maxCounter = 1 << 62
)

package process

import "github.com/signalbox-dev/signalbox/protocol"

// Bounds are constants of the log's format: every replica applies the same ones.
const (
	// MaxMembers of a process. Beyond it a join is OVERLOADED.
	MaxMembers = 1_000
	// MaxName is the longest process name, in bytes.
	MaxName = 128
	// MaxKey is the longest member key, in bytes.
	MaxKey = 128
	// MaxIdentity is the longest identity (the user a session belongs to), in bytes.
	MaxIdentity = 255
	// MaxData is the most that a member shows the others of itself, in bytes.
	MaxData = 512
	// MaxResult is the most that a coordinator leaves with a completed round, in bytes.
	MaxResult = 32 << 10
	// MaxText is how much of a reason is kept, in bytes.
	MaxText = 256
	// MaxHistory is how many ended rounds are remembered.
	MaxHistory = 32
	// MaxFormer is how many sessions that were members, and live on, are remembered.
	MaxFormer = 256
	// Retention is how long a process without members is kept, and a session that was a member
	// remembered, in ms of log time.
	Retention = 10 * 60 * 1000
	// MaxDuration bounds every duration of the options, in ms: a day.
	MaxDuration = 24 * 60 * 60 * 1000

	// maxCounter is where records stop being believed, so that counters of those that are never
	// overflow.
	maxCounter = 1 << 62
)

// ValidateName checks the name of a process: parts of a-z, A-Z and 0-9, with single dashes or dots
// between them, at most MaxName bytes in all.
func ValidateName(name []byte) error {
	if len(name) == 0 || len(name) > MaxName {
		return protocol.Errorf(protocol.StatusBadRequest, "process name is %d bytes long; it must be 1 to %d", len(name), MaxName)
	}
	inner := false // the byte before was a letter or digit
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
			inner = true
		case (c == '-' || c == '.') && inner:
			inner = false
		default:
			return nameError()
		}
	}
	if !inner {
		return nameError()
	}
	return nil
}

func nameError() error {
	return protocol.Errorf(protocol.StatusBadRequest, "process name must be letters and digits, with single dashes or dots between them")
}

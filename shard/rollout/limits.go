package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// Bounds of the format, beside those of the protocol. Every replica has the same ones, so they are
// constants.
const (
	MaxInstances   = 1 << 14 // of a track
	MaxPublished   = 256     // published versions kept
	MaxHistory     = 1024    // rows kept of a location; beyond it they are thinned out
	minHistoryRows = 10      // rows kept whatever their age
	maxTime        = 1 << 62 // log time is cut to this, so that no sum overflows
	maxRemoved     = protocol.MaxTrackLocations
	tsoLogicalBits = 18

	attemptsPerBegin = 1000 // a gate that begins again counts attempts from the next multiple
)

// Defaults of a Config's zero fields, in ms where they are times.
const (
	DefaultImplicitAfter      = 60_000
	DefaultImplicitAttempts   = 3
	DefaultStallTimeout       = 600_000
	DefaultReelectMinInterval = 1_000
	DefaultRetention          = 3_600_000
	DefaultGateTimeout        = 60_000
	DefaultGateRetry          = 30_000
	DefaultExplicitCode       = "TimestampOutOfRange"
)

// Codes of reports that have a meaning of their own; any other is the user's, and explicit when the
// config lists it.
const (
	CodeNone        = ""             // nothing to say yet
	CodeOK          = "OK"           // the version is loaded
	CodeSourceError = "SOURCE_ERROR" // the source did not give the version
)

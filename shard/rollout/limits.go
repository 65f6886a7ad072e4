package rollout

// Bounds of the format: every replica has the same ones, so they are constants.
const (
	MaxLocations   = 64        // of an order
	MaxInstances   = 1 << 14   // of a track
	MaxGates       = 8         // before a location
	MaxCodes       = 32        // explicit codes
	MaxName        = 128       // bytes of a location's, gate's or code's name
	MaxInstance    = 255       // bytes of an instance's id
	MaxMeta        = 1024      // bytes of an instance's meta
	MaxMessage     = 256       // bytes of a reported message, a gate's text, a source's error
	MaxGateSpec    = 2048      // bytes of a gate's command or address
	MaxPayload     = 64 << 10  // bytes of a published version's payload
	MaxPublished   = 256       // published versions kept
	MaxHistory     = 1024      // rows kept of a location; where more would be needed they are thinned out
	MaxVersion     = 1<<63 - 1 // versions are from 1 to this
	MaxDuration    = 1 << 32   // ms, about 49 days: the longest delay
	minHistoryRows = 10        // rows kept whatever their age
	maxTime        = 1 << 62   // log time is cut to this, so that no sum overflows
	maxRemoved     = MaxLocations
	tsoLogicalBits = 18
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

// Codes of reports that have a meaning of their own; any other is the user's, and explicit when the config lists it.
const (
	CodeNone        = ""             // nothing to say yet
	CodeOK          = "OK"           // the version is loaded
	CodeSourceError = "SOURCE_ERROR" // the source did not give the version
)

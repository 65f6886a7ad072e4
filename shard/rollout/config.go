package rollout

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Normalize checks a config and fills in defaults. The result is a copy. The error is a BAD_REQUEST
// that names the fault: a field outside its limits, which the protocol has, or fields that
// contradict each other.
func Normalize(c protocol.TrackConfig) (protocol.TrackConfig, error) {
	if err := protocol.Validate(&c); err != nil {
		return c, err
	}
	c.ExplicitCodes = slices.Clone(c.ExplicitCodes)
	if len(c.ExplicitCodes) == 0 {
		c.ExplicitCodes = []string{DefaultExplicitCode}
	}
	slices.Sort(c.ExplicitCodes)
	c.ExplicitCodes = slices.Compact(c.ExplicitCodes)
	if isExplicit(&c, CodeOK) || isExplicit(&c, CodeSourceError) {
		return c, badRequest("config: OK and SOURCE_ERROR have meanings of their own: take other explicit codes")
	}
	c.ImplicitAfter = cmp.Or(c.ImplicitAfter, DefaultImplicitAfter)
	c.ImplicitAttempts = cmp.Or(c.ImplicitAttempts, DefaultImplicitAttempts)
	c.StallTimeout = cmp.Or(c.StallTimeout, DefaultStallTimeout)
	c.ReelectMinInterval = cmp.Or(c.ReelectMinInterval, DefaultReelectMinInterval)
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.Locations = slices.Clone(c.Locations)
	locations := make(map[string]bool, len(c.Locations))
	for i := range c.Locations {
		l := &c.Locations[i]
		if locations[l.Name] {
			return c, badRequest("config: location " + l.Name +
				" is named twice: an order must not come back to a location")
		}
		locations[l.Name] = true
		l.Gates = slices.Clone(l.Gates)
		for j := range l.Gates {
			g := &l.Gates[j]
			if slices.ContainsFunc(l.Gates[:j], func(o protocol.GateConfig) bool { return o.Name == g.Name }) {
				return c, badRequest("config: location " + l.Name + " has two gates named " +
					g.Name + ": give each its own name")
			}
			g.Timeout, g.Retry = cmp.Or(g.Timeout, DefaultGateTimeout), cmp.Or(g.Retry, DefaultGateRetry)
		}
	}
	return c, nil
}

// isExplicit reports whether the config lists a reported code as one that says that the version is
// bad.
func isExplicit(c *protocol.TrackConfig, code string) bool {
	_, ok := slices.BinarySearch(c.ExplicitCodes, code)
	return ok
}

// validName: 1 to most bytes of UTF-8 without control bytes.
func validName(s string, most int) bool {
	return s != "" && validText(s, most)
}

func validText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// What counts in Bytes beside texts: about the memory it takes.
const (
	instanceOverhead = 512
	versionOverhead  = 64
	locationOverhead = 256
	gateOverhead     = 64
)

// ConfigBytes returns the bytes that a config counts.
func ConfigBytes(c *protocol.TrackConfig) uint64 {
	sum := uint64(0)
	for i := range c.Locations {
		l := &c.Locations[i]
		sum += locationOverhead + uint64(len(l.Name))
		for j := range l.Gates {
			sum += gateOverhead + uint64(len(l.Gates[j].Name)+len(l.Gates[j].Spec))
		}
	}
	for _, code := range c.ExplicitCodes {
		sum += uint64(len(code))
	}
	return sum
}

// InstanceBytes returns the bytes that an instance counts with an id and meta of these lengths.
func InstanceBytes(id, meta int) uint64 { return instanceOverhead + uint64(id+meta) }

// VersionBytes returns the bytes that a published version counts with a payload of this length.
func VersionBytes(payload int) uint64 { return versionOverhead + uint64(payload) }

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

package rollout

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Source says where the first location's versions come from.
type Source uint8

const (
	SourceTSO       Source = 1 // built in: the batch's wall time in ms << 18, made strictly increasing
	SourceExternal  Source = 2 // a generator that the coordinator asks before it writes [Track.Advance] to the log
	SourcePublished Source = 3 // the newest of the versions given to [Track.Publish]
)

// DelayFrom says what a location's delay counts from.
type DelayFrom uint8

const (
	FromSelected  DelayFrom = 0 // from when the predecessor's target was set; the default
	FromConverged DelayFrom = 1 // from when all of the predecessor's leaders had it: what could not be loaded there is never passed on
)

// GateKind says how a gate is run; the machine only keeps it.
type GateKind uint8

const (
	GateCommand GateKind = 1
	GateWebhook GateKind = 2
)

// Config of a track. Times are in ms. A zero time or count is the default; Normalize fills it in.
type Config struct {
	Source             Source
	DelayFrom          DelayFrom
	Locations          []Location // in order; 1 to MaxLocations
	ExplicitCodes      []string   // reported codes that say the version itself is bad; empty: TimestampOutOfRange
	ImplicitAfter      uint64     // a SOURCE_ERROR re-elects strictly later than this after the version was first sent; 60,000
	ImplicitAttempts   uint64     // and after strictly more attempts than this; 3
	StallTimeout       uint64     // a location whose leaders have not all loaded the target is STALLED after this; 600,000
	AutoDemote         bool       // leaders that stall without an error count as followers from then on
	SkipEmptyAfter     uint64     // a location without instances is passed over after this; 0 never, and everything behind it waits
	ReelectMinInterval uint64     // between two re-elections of a location; 1,000
	MinAdvanceInterval uint64     // between two advances of the first location; 0: with every poll that finds all at the target
	Retention          uint64     // of history rows; 3,600,000
	KeepRemoved        bool       // instances of a location that left the order get its last target instead of UNKNOWN_LOCATION
}

// Location of the order.
type Location struct {
	Name      string
	Delay     uint64 // behind its predecessor; not used by the first one
	Bake      uint64 // a version goes on to the next location only this long after this one converged on it; 0 no condition
	Share     uint8  // percent of its leaders that get a new target first; 0 or 100 all at once
	ShareBake uint64 // how long the share must have had it before the others get it
	Gates     []Gate // run in order before the location takes a version
}

// Gate is a check by someone else: its outcome is told by [Track.ReportGate].
type Gate struct {
	Name    string
	Kind    GateKind
	Spec    string // the command or address
	Timeout uint64 // a run without an outcome is inconclusive after this; 60,000
	Retry   uint64 // an inconclusive gate is run again after this; 30,000
}

// Normalize fills in defaults and checks bounds. The config is copied; the error is a BAD_REQUEST that names what is wrong.
func (c Config) Normalize() (Config, error) {
	if c.Source < SourceTSO || c.Source > SourcePublished {
		return c, badRequest("config: source must be tso, external or published")
	}
	if c.DelayFrom > FromConverged {
		return c, badRequest("config: delays count from selected or converged")
	}
	if len(c.Locations) == 0 || len(c.Locations) > MaxLocations {
		return c, badRequest("config: name 1 to 64 locations")
	}
	c.ExplicitCodes = slices.Clone(c.ExplicitCodes)
	if len(c.ExplicitCodes) == 0 {
		c.ExplicitCodes = []string{DefaultExplicitCode}
	}
	slices.Sort(c.ExplicitCodes)
	c.ExplicitCodes = slices.Compact(c.ExplicitCodes)
	if len(c.ExplicitCodes) > MaxCodes {
		return c, badRequest("config: at most 32 explicit codes")
	}
	for _, code := range c.ExplicitCodes {
		if !validName(code, MaxName) || code == CodeOK || code == CodeSourceError {
			return c, badRequest("config: an explicit code is 1 to 128 printable bytes, and neither OK nor SOURCE_ERROR")
		}
	}
	c.ImplicitAfter = orDefault(c.ImplicitAfter, DefaultImplicitAfter)
	c.ImplicitAttempts = orDefault(c.ImplicitAttempts, DefaultImplicitAttempts)
	c.StallTimeout = orDefault(c.StallTimeout, DefaultStallTimeout)
	c.ReelectMinInterval = orDefault(c.ReelectMinInterval, DefaultReelectMinInterval)
	c.Retention = orDefault(c.Retention, DefaultRetention)
	for _, d := range []uint64{c.ImplicitAfter, c.ImplicitAttempts, c.StallTimeout, c.SkipEmptyAfter, c.ReelectMinInterval, c.MinAdvanceInterval, c.Retention} {
		if d > MaxDuration {
			return c, badRequest("config: times are at most 2^32 ms")
		}
	}
	c.Locations = slices.Clone(c.Locations)
	seen := make(map[string]bool, len(c.Locations))
	for i := range c.Locations {
		l := &c.Locations[i]
		if !validName(l.Name, MaxName) {
			return c, badRequest("config: a location's name is 1 to 128 printable bytes")
		}
		if seen[l.Name] {
			return c, badRequest("config: location " + l.Name + " is named twice: an order must not come back to a location")
		}
		seen[l.Name] = true
		if l.Delay > MaxDuration || l.Bake > MaxDuration || l.ShareBake > MaxDuration {
			return c, badRequest("config: location " + l.Name + ": times are at most 2^32 ms")
		}
		if l.Share > 100 {
			return c, badRequest("config: location " + l.Name + ": share is in percent, 0 to 100")
		}
		if err := l.normalizeGates(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (l *Location) normalizeGates() error {
	if len(l.Gates) > MaxGates {
		return badRequest("config: location " + l.Name + ": at most 8 gates")
	}
	l.Gates = slices.Clone(l.Gates)
	for i := range l.Gates {
		g := &l.Gates[i]
		if !validName(g.Name, MaxName) || slices.ContainsFunc(l.Gates[:i], func(o Gate) bool { return o.Name == g.Name }) {
			return badRequest("config: location " + l.Name + ": gates need names of 1 to 128 printable bytes, each its own")
		}
		if g.Kind != GateCommand && g.Kind != GateWebhook || len(g.Spec) > MaxGateSpec || !utf8.ValidString(g.Spec) {
			return badRequest("config: gate " + g.Name + ": name a command or webhook of at most 2048 bytes of UTF-8")
		}
		g.Timeout, g.Retry = orDefault(g.Timeout, DefaultGateTimeout), orDefault(g.Retry, DefaultGateRetry)
		if g.Timeout > MaxDuration || g.Retry > MaxDuration {
			return badRequest("config: gate " + g.Name + ": times are at most 2^32 ms")
		}
	}
	return nil
}

func (c *Config) explicit(code string) bool {
	_, ok := slices.BinarySearch(c.ExplicitCodes, code)
	return ok
}

func orDefault(v, def uint64) uint64 {
	if v == 0 {
		return def
	}
	return v
}

// validName: 1 to most bytes of UTF-8 without control bytes.
func validName(s string, most int) bool {
	return s != "" && validText(s, most)
}

func validText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

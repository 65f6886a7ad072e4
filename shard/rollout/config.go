package rollout

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Normalize checks a config and fills in defaults. The result is a copy. The error is a BAD_REQUEST
// that names what is wrong: a field outside its limits, which the protocol has, or fields that
// contradict each other.
func Normalize(c protocol.TrackConfig) (protocol.TrackConfig, error) {
	if err := c.Validate(); err != nil {
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

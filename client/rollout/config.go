package rollout

import (
	"cmp"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Source says where the first location's versions come from.
type Source = protocol.TrackSource

const (
	TSO       = protocol.SourceTSO       // made by the server: its clock in ms << 18, strictly increasing; the default
	External  = protocol.SourceExternal  // made by a generator outside, see Generator
	Published = protocol.SourcePublished // the newest of those given to Publish
)

// DelayFrom says from when a location's delay counts.
type DelayFrom = protocol.DelayFrom

const (
	Selected  = protocol.FromSelected  // from when the location before it was given the version; the default
	Converged = protocol.FromConverged // from when all leaders there had it: what could not be loaded there is never passed on
)

// GateKind says how a gate is run.
type GateKind = protocol.GateKind

const (
	Command = protocol.GateCommand // Spec is a command
	Webhook = protocol.GateWebhook // Spec is an address
)

// Config of a rollout. A zero time or count stands for the default. Times are rounded up to ms, and
// are at most 2^32 ms, about 49 days; a negative one is ErrBadRequest.
type Config struct {
	Source        Source
	DelayFrom     DelayFrom
	Locations     []Location // in order, 1 to 64
	ExplicitCodes []string   // reported codes that say the version itself is bad; none: TimestampOutOfRange
	// an instance that cannot get the version re-elects it strictly later than this after it was
	// first told; 1 min
	ImplicitAfter    time.Duration
	ImplicitAttempts uint64 // and after strictly more attempts than this; 3
	// a location whose leaders have not all loaded the target is STALLED after this; 10 min
	StallTimeout time.Duration
	AutoDemote   bool // leaders that stall without an error count as followers
	// a location without instances is passed over after this; 0 never, and everything behind it waits
	SkipEmptyAfter     time.Duration
	ReelectMinInterval time.Duration // between two re-elections of a location; 1 s
	MinAdvanceInterval time.Duration // between two advances of the first location; 0 none
	Retention          time.Duration // of history; 1 h
	KeepRemoved        bool          // instances of a removed location get its last target instead of ErrUnknownLocation
}

// Location is one of the order.
type Location struct {
	Name  string
	Delay time.Duration // behind the location before it; not used by the first
	// a version goes on to the next location only this long after all leaders here have it; 0 no
	// condition
	Bake      time.Duration
	Share     uint8         // percent of the leaders that get a new version first; 0 or 100 all at once
	ShareBake time.Duration // how long the share must have had it before the others get it
	Gates     []Gate        // checks that must succeed, in order, before the location takes a version
}

// Gate is a check that a Gatekeeper runs.
type Gate struct {
	Name    string
	Kind    GateKind
	Spec    string        // the command or the address
	Timeout time.Duration // a run without an outcome is inconclusive after this; 1 min
	Retry   time.Duration // an inconclusive gate is run again after this; 30 s
}

func (c *Config) wire() (w protocol.TrackConfig, err error) {
	of := func(part, field string, d time.Duration) uint64 { return millis.Of(part+": "+field, d, &err) }
	w = protocol.TrackConfig{
		Source: c.Source, DelayFrom: c.DelayFrom, ExplicitCodes: c.ExplicitCodes,
		ImplicitAttempts: c.ImplicitAttempts,
		ImplicitAfter:    of("config", "implicit after", c.ImplicitAfter),
		StallTimeout:     of("config", "stall timeout", c.StallTimeout),
		AutoDemote:       c.AutoDemote, SkipEmptyAfter: of("config", "skip empty after", c.SkipEmptyAfter),
		ReelectMinInterval: of("config", "reelect interval", c.ReelectMinInterval),
		MinAdvanceInterval: of("config", "advance interval", c.MinAdvanceInterval),
		Retention:          of("config", "retention", c.Retention),
		KeepRemoved:        c.KeepRemoved,
	}
	w.Source = cmp.Or(w.Source, TSO)
	for _, l := range c.Locations {
		part := "location " + l.Name
		to := protocol.LocationConfig{
			Name: l.Name, Delay: of(part, "delay", l.Delay), Bake: of(part, "bake", l.Bake), Share: l.Share,
			ShareBake: of(part, "share bake", l.ShareBake),
		}
		for _, g := range l.Gates {
			part := "gate " + g.Name
			to.Gates = append(to.Gates, protocol.GateConfig{
				Name: g.Name, Kind: g.Kind, Spec: g.Spec, Timeout: of(part, "timeout", g.Timeout),
				Retry: of(part, "retry", g.Retry),
			})
		}
		w.Locations = append(w.Locations, to)
	}
	return w, err
}

func configOf(w *protocol.TrackConfig) Config {
	c := Config{
		Source: w.Source, DelayFrom: w.DelayFrom, ExplicitCodes: w.ExplicitCodes,
		ImplicitAfter: millis.Duration(w.ImplicitAfter), ImplicitAttempts: w.ImplicitAttempts,
		StallTimeout: millis.Duration(w.StallTimeout), AutoDemote: w.AutoDemote,
		SkipEmptyAfter: millis.Duration(w.SkipEmptyAfter), ReelectMinInterval: millis.Duration(w.ReelectMinInterval),
		MinAdvanceInterval: millis.Duration(w.MinAdvanceInterval),
		Retention:          millis.Duration(w.Retention), KeepRemoved: w.KeepRemoved,
	}
	for _, l := range w.Locations {
		to := Location{Name: l.Name, Delay: millis.Duration(l.Delay), Bake: millis.Duration(l.Bake),
			Share: l.Share, ShareBake: millis.Duration(l.ShareBake)}
		for i := range l.Gates {
			to.Gates = append(to.Gates, gateOf(&l.Gates[i]))
		}
		c.Locations = append(c.Locations, to)
	}
	return c
}

func gateOf(w *protocol.GateConfig) Gate {
	return Gate{Name: w.Name, Kind: w.Kind, Spec: w.Spec, Timeout: millis.Duration(w.Timeout),
		Retry: millis.Duration(w.Retry)}
}

// since is how long before now something was, by log time.
func since(now, then uint64) time.Duration {
	if then == 0 || then > now {
		return 0
	}
	return millis.Duration(now - then)
}

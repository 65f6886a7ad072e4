package rollout

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Source says where the first location's versions come from.
type Source = protocol.TrackSource

const (
	TSO       = protocol.SourceTSO       // made by the server: its clock in ms << 18, strictly increasing; the default
	External  = protocol.SourceExternal  // made by a generator outside, see Generator
	Published = protocol.SourcePublished // the newest of those given to Publish
)

// DelayFrom says what a location's delay counts from.
type DelayFrom = protocol.DelayFrom

const (
	Selected  = protocol.FromSelected  // from when the location before it was given the version; the default
	Converged = protocol.FromConverged // from when all leaders there had it: what could not be loaded there is never passed on
)

// GateKind says how a gate is run.
type GateKind = protocol.GateKind

const (
	Command = protocol.GateCommand
	Webhook = protocol.GateWebhook
)

// Config of a rollout. A zero time or count is the default. Times are rounded up to ms, and at most 2^32 ms, about 49 days.
type Config struct {
	Source             Source
	DelayFrom          DelayFrom
	Locations          []Location    // in order, 1 to 64
	ExplicitCodes      []string      // reported codes that say the version itself is bad; none: TimestampOutOfRange
	ImplicitAfter      time.Duration // an instance that cannot get the version re-elects it strictly later than this after it was first told; 1 min
	ImplicitAttempts   uint64        // and after strictly more attempts than this; 3
	StallTimeout       time.Duration // a location whose leaders have not all loaded the target is STALLED after this; 10 min
	AutoDemote         bool          // leaders that stall without an error count as followers
	SkipEmptyAfter     time.Duration // a location without instances is passed over after this; 0 never, and everything behind it waits
	ReelectMinInterval time.Duration // between two re-elections of a location; 1 s
	MinAdvanceInterval time.Duration // between two advances of the first location; 0 none
	Retention          time.Duration // of history; 1 h
	KeepRemoved        bool          // instances of a removed location get its last target instead of ErrUnknownLocation
}

// Location is one of the order.
type Location struct {
	Name      string
	Delay     time.Duration // behind the location before it; not used by the first
	Bake      time.Duration // a version goes on to the next location only this long after all leaders here have it; 0 no condition
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

func (c *Config) wire() protocol.TrackConfig {
	w := protocol.TrackConfig{
		Source: c.Source, DelayFrom: c.DelayFrom, ExplicitCodes: c.ExplicitCodes, ImplicitAfter: millis(c.ImplicitAfter), ImplicitAttempts: c.ImplicitAttempts,
		StallTimeout: millis(c.StallTimeout), AutoDemote: c.AutoDemote, SkipEmptyAfter: millis(c.SkipEmptyAfter), ReelectMinInterval: millis(c.ReelectMinInterval),
		MinAdvanceInterval: millis(c.MinAdvanceInterval), Retention: millis(c.Retention), KeepRemoved: c.KeepRemoved,
	}
	if w.Source == 0 {
		w.Source = TSO
	}
	for _, l := range c.Locations {
		to := protocol.LocationConfig{Name: l.Name, Delay: millis(l.Delay), Bake: millis(l.Bake), Share: l.Share, ShareBake: millis(l.ShareBake)}
		for _, g := range l.Gates {
			to.Gates = append(to.Gates, protocol.GateConfig{Name: g.Name, Kind: g.Kind, Spec: g.Spec, Timeout: millis(g.Timeout), Retry: millis(g.Retry)})
		}
		w.Locations = append(w.Locations, to)
	}
	return w
}

func configOf(w *protocol.TrackConfig) Config {
	c := Config{
		Source: w.Source, DelayFrom: w.DelayFrom, ExplicitCodes: w.ExplicitCodes, ImplicitAfter: duration(w.ImplicitAfter), ImplicitAttempts: w.ImplicitAttempts,
		StallTimeout: duration(w.StallTimeout), AutoDemote: w.AutoDemote, SkipEmptyAfter: duration(w.SkipEmptyAfter), ReelectMinInterval: duration(w.ReelectMinInterval),
		MinAdvanceInterval: duration(w.MinAdvanceInterval), Retention: duration(w.Retention), KeepRemoved: w.KeepRemoved,
	}
	for _, l := range w.Locations {
		to := Location{Name: l.Name, Delay: duration(l.Delay), Bake: duration(l.Bake), Share: l.Share, ShareBake: duration(l.ShareBake)}
		for i := range l.Gates {
			to.Gates = append(to.Gates, gateOf(&l.Gates[i]))
		}
		c.Locations = append(c.Locations, to)
	}
	return c
}

func gateOf(w *protocol.GateConfig) Gate {
	return Gate{Name: w.Name, Kind: w.Kind, Spec: w.Spec, Timeout: duration(w.Timeout), Retry: duration(w.Retry)}
}

// millis rounds up. A negative duration is 0.
func millis(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/time.Millisecond) + 1
}

// duration reads ms; what does not fit is the longest there is.
func duration(ms uint64) time.Duration {
	const longest = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(ms, longest)) * time.Millisecond
}

// since is how long before now something was, by log time.
func since(now, then uint64) time.Duration {
	if then == 0 || then > now {
		return 0
	}
	return duration(now - then)
}

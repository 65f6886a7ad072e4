package gateway

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// given are the settings of a node as YDB's clients gave them; 0: not given. YDB describes them so,
// and bounds them only in effect. The cluster accepts only bounded ones, so it has those, and keeps
// these beside them.
type given struct {
	selfCheck, grace, read, attach, counters uint32
}

// givenIn returns the settings of a message.
func givenIn(c *Ydb_Coordination.Config) given {
	return given{c.GetSelfCheckPeriodMillis(), c.GetSessionGracePeriodMillis(), uint32(c.GetReadConsistencyMode()),
		uint32(c.GetAttachConsistencyMode()), uint32(c.GetRateLimiterCountersMode())}
}

// message returns a configuration in YDB's form.
func (g given) message(path string) *Ydb_Coordination.Config {
	return &Ydb_Coordination.Config{
		Path:                     path,
		SelfCheckPeriodMillis:    g.selfCheck,
		SessionGracePeriodMillis: g.grace,
		ReadConsistencyMode:      Ydb_Coordination.ConsistencyMode(g.read),
		AttachConsistencyMode:    Ydb_Coordination.ConsistencyMode(g.attach),
		RateLimiterCountersMode:  Ydb_Coordination.RateLimiterCountersMode(g.counters),
	}
}

// replacedBy are the settings after those that are given in x.
func (g given) replacedBy(x given) given {
	return given{cmp.Or(x.selfCheck, g.selfCheck), cmp.Or(x.grace, g.grace), cmp.Or(x.read, g.read),
		cmp.Or(x.attach, g.attach), cmp.Or(x.counters, g.counters)}
}

// inEffect are the settings that the cluster has for them: defaults, and the bounds of YDB.
func (g given) inEffect() given {
	def := protocol.DefaultNodeConfig()
	selfCheck := min(max(cmp.Or(g.selfCheck, uint32(def.SelfCheckPeriod)), protocol.MinSelfCheckPeriod),
		protocol.MaxSelfCheckPeriod)
	e := given{
		selfCheck: selfCheck,
		grace: min(max(cmp.Or(g.grace, uint32(def.GracePeriod)), selfCheck+protocol.MinGraceOverSelfCheck),
			protocol.MaxGracePeriod),
		read:     uint32(Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_RELAXED),
		attach:   uint32(Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_STRICT),
		counters: uint32(Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_AGGREGATED),
	}
	return given{e.selfCheck, e.grace, cmp.Or(g.read, e.read), cmp.Or(g.attach, e.attach),
		cmp.Or(g.counters, e.counters)}
}

// nodeConfig is a complete configuration in the cluster's form.
func nodeConfig(g given) admin.NodeConfig {
	e := g.inEffect()
	counters := admin.CountersAggregated
	if e.counters == uint32(Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED) {
		counters = admin.CountersDetailed
	}
	return admin.NodeConfig{
		SelfCheckPeriod:   new(time.Duration(e.selfCheck) * time.Millisecond),
		GracePeriod:       new(time.Duration(e.grace) * time.Millisecond),
		ReadConsistency:   new(consistencyOf(e.read)),
		AttachConsistency: new(consistencyOf(e.attach)),
		CountersMode:      &counters,
		Foreign:           new(g.text()),
	}
}

func consistencyOf(mode uint32) client.Consistency {
	if mode == uint32(Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_RELAXED) {
		return client.Relaxed
	}
	return client.Strict
}

// textFormat is the form in which the cluster keeps the settings.
const textFormat = "ydb %d %d %d %d %d"

func (g given) text() string {
	return fmt.Sprintf(textFormat, g.selfCheck, g.grace, g.read, g.attach, g.counters)
}

// givenOf are the settings of a node. Those that signalbox's own clients have changed since are the
// cluster's, as are all of a node that was not made by a gateway.
func givenOf(c *admin.NodeConfig) given {
	mode := func(x *client.Consistency) uint32 {
		if *x == client.Relaxed {
			return uint32(Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_RELAXED)
		}
		return uint32(Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_STRICT)
	}
	now := given{
		selfCheck: uint32(c.SelfCheckPeriod.Milliseconds()),
		grace:     uint32(c.GracePeriod.Milliseconds()),
		read:      mode(c.ReadConsistency),
		attach:    mode(c.AttachConsistency),
		counters:  uint32(Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_AGGREGATED),
	}
	if *c.CountersMode == admin.CountersDetailed {
		now.counters = uint32(Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED)
	}
	var g given
	if n, err := fmt.Sscanf(*c.Foreign, textFormat, &g.selfCheck, &g.grace, &g.read, &g.attach,
		&g.counters); err != nil || n != 5 {
		return now
	}
	e := g.inEffect()
	unchanged := func(given, effect, now uint32) uint32 {
		if effect == now {
			return given
		}
		return now
	}
	return given{
		unchanged(g.selfCheck, e.selfCheck, now.selfCheck), unchanged(g.grace, e.grace, now.grace),
		unchanged(g.read, e.read, now.read), unchanged(g.attach, e.attach, now.attach),
		unchanged(g.counters, e.counters, now.counters),
	}
}

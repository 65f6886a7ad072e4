package membership

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// writeMember shows this instance in its cluster.
func writeMember(p *metrics.Page, m *Member) {
	state := m.Meta.State()
	if i, ok := state.Instance(m.instance); ok {
		for _, v := range []meta.Variant{meta.Offline, meta.Online, meta.Expelled} {
			p.Write(metrics.InstanceState, i.Current.Variant == v, v.String())
			p.Write(metrics.InstanceTarget, i.Target.Variant == v, v.String())
		}
		p.Write(metrics.InstanceIncarnation, i.Current.Incarnation)
	}
	taken, failed := m.governor.Steps()
	p.Write(metrics.MetaLeader, m.Meta.leaderInstance(state))
	p.Write(metrics.MetaLeading, m.Meta.Leading())
	p.Write(metrics.MetaAppliedIndex, state.AppliedIndex())
	p.Write(metrics.MapVersion, state.MapVersion())
	p.Write(metrics.Moves, len(state.Moves()))
	p.Write(metrics.GovernorSteps, taken)
	p.Write(metrics.GovernorErrors, failed)
	m.detector.write(p)
	if m.registered.Load() {
		h := governor.Assess(m.observeNow())
		writeHealth(p, h)
		for _, i := range state.Instances() {
			if !i.Expelled() {
				p.Write(metrics.InstanceUnreachable, slices.ContainsFunc(h.Unreachable,
					func(u protocol.ClusterUnreachable) bool { return u.Instance == i.Name }), i.Name)
			}
		}
	}
}

// writeHealth shows what works and what may be lost, as this instance sees it.
func writeHealth(p *metrics.Page, h protocol.ClusterHealth) {
	for _, state := range []string{protocol.HealthHealthy, protocol.HealthDegraded, protocol.HealthBroken} {
		p.Write(metrics.ClusterHealth, h.State == state, state)
	}
	stopped, atRisk := 0, 0
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&stopped, !h.Meta.Majority || !h.Confirmed)
	count(&atRisk, h.Meta.AtRisk())
	for i := range h.Shards {
		if g := &h.Shards[i]; !g.Idle {
			count(&stopped, !g.Majority || g.Leader == "")
			count(&atRisk, g.AtRisk())
		}
	}
	p.Write(metrics.GroupsUnavailable, stopped)
	p.Write(metrics.GroupsAtRisk, atRisk)
	for _, c := range h.Replicasets {
		missing := 0
		if c.Buckets > 0 {
			missing = max(0, c.Configured-c.Copies)
		}
		p.Write(metrics.MissingCopies, missing, c.Replicaset)
	}
}

var actionNames = map[failuredetector.ActionKind]string{
	failuredetector.MarkOffline: "mark", failuredetector.GoOnline: "go_online", failuredetector.GoOffline: "go_offline",
}

// write shows the failure detector's actions, and when the last one was.
func (d *detectorDriver) write(p *metrics.Page) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, kind := range []failuredetector.ActionKind{failuredetector.MarkOffline, failuredetector.GoOnline,
		failuredetector.GoOffline} {
		for _, outcome := range actionOutcomes {
			act := detectorAction{kind, outcome}
			p.Write(metrics.DetectorActions, d.actions[act], actionNames[kind], string(outcome))
			if act == d.last {
				p.Write(metrics.DetectorLastAction, (d.member.Clock.Now() - d.lastAt).Seconds(),
					actionNames[kind], string(outcome))
			}
		}
	}
}

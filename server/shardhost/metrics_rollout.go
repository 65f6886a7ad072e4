package shardhost

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// trackStatus is how a track stands, for the metrics.
type trackStatus struct {
	node   uint64
	status protocol.TrackStatus
	lags   []uint64 // of its locations, in ms
}

// seriesOfLocation is how many series a location of a track has, its blockers apart.
const seriesOfLocation = 10

// writeRollouts shows the tracks that are led here, and what was decided about them.
func writeRollouts(p *metrics.Page, shards []*Shard, state *meta.State, names bool) {
	budget := metrics.Budget{Left: p.MaxSeries()}
	for _, d := range shards {
		p.Write(metrics.RolloutPolls, d.requests.PollsRead.Load(), metrics.ID(d.ID()), "read")
		p.Write(metrics.RolloutPolls, d.requests.PollsLogged.Load(), metrics.ID(d.ID()), "log")
		if !d.Replica().Leading() || !names {
			continue
		}
		for _, x := range d.tracks.trackStatuses(budget.Left/seriesOfLocation + 1) { // one too many, if there are more
			n, _ := state.Node(x.node)
			for i := range x.status.Locations {
				l := &x.status.Locations[i]
				if !budget.Take(seriesOfLocation + len(l.BlockedBy)) {
					break
				}
				writeLocation(p, []string{n.Path, string(x.status.Name), l.Name}, l, x.status.Clock, x.lags[i])
			}
		}
		chosen, cut := d.tracks.targetCounts()
		budget.Cut = budget.Cut || cut
		for _, k := range slices.SortedFunc(maps.Keys(chosen), func(a, b targetKey) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.track, b.track),
				cmp.Compare(a.location, b.location), cmp.Compare(a.reason, b.reason))
		}) {
			if !budget.Take(1) {
				break
			}
			n, _ := state.Node(k.node)
			p.Write(metrics.RolloutTargets, chosen[k], n.Path, k.track, k.location, k.reason.String())
		}
	}
	p.Write(metrics.RolloutsTruncated, budget.Cut)
}

// writeLocation writes the series of a location; labels are its node, track and name.
func writeLocation(p *metrics.Page, labels []string, l *protocol.TrackLocationStatus, clock, lag uint64) {
	since := func(at uint64) float64 {
		if at == 0 {
			return 0
		}
		return logSeconds(clock - min(clock, at))
	}
	p.Write(metrics.RolloutTarget, l.Target, labels...)
	p.Write(metrics.RolloutTargetAge, since(l.Since), labels...)
	p.Write(metrics.RolloutLag, logSeconds(lag), labels...)
	p.Write(metrics.RolloutLeaders, l.Counted, labels...)
	p.Write(metrics.RolloutConverged, l.Reached, labels...)
	p.Write(metrics.RolloutMembers, l.Members, labels...)
	p.Write(metrics.RolloutBlocked, since(l.BlockedSince), labels...)
	p.Write(metrics.RolloutEmpty, l.State == protocol.StateEmpty, labels...)
	p.Write(metrics.RolloutStalled, l.State == protocol.StateStalled, labels...)
	p.Write(metrics.RolloutReelectionPending, l.State == protocol.StateReelectionPending, labels...)
	for _, id := range l.BlockedBy {
		p.Write(metrics.RolloutBlockedBy, true, append(slices.Clip(labels), id)...)
	}
}

// targetCounts is how many targets were set here, by reason. Those of tracks that are gone are
// forgotten. If cut, targets were not counted since there was no room. The log waits for one track
// at a time.
func (t *trackDecisions) targetCounts() (counts map[targetKey]uint64, cut bool) {
	t.mu.Lock()
	counts = maps.Clone(t.targetsSet)
	t.mu.Unlock()
	gone := make(map[targetKey]bool)
	isGone := func(k targetKey, _ uint64) bool { return gone[targetKey{node: k.node, track: k.track}] }
	for k := range counts {
		track := targetKey{node: k.node, track: k.track}
		if _, known := gone[track]; !known {
			t.host.Replica().View(func(m *shard.Machine) {
				err := m.Tracks().CheckLocation(k.node, []byte(k.track), "")
				gone[track] = protocol.StatusOf(err) == protocol.StatusNotFound // its bucket may move
			})
		}
	}
	maps.DeleteFunc(counts, isGone)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.targetsSet, isGone)
	cut = t.uncounted
	t.uncounted = cut && len(t.targetsSet) >= t.host.serving.Series
	return counts, cut
}

// trackStatuses is how the tracks stand, at most so many of them. The log waits for one at a time.
func (t *trackDecisions) trackStatuses(most int) (list []trackStatus) {
	d := t.host
	var node uint64
	var name []byte
	for len(list) < most {
		var x trackStatus
		found := false
		d.Replica().View(func(m *shard.Machine) {
			m.Tracks().From(node, name, func(id uint64, track []byte) bool {
				node, name = id, append(slices.Clone(track), 0) // what comes next
				now := d.Replica().LogTime()
				if m.Tracks().Describe(&protocol.TrackDescribe{Node: id, Name: track}, now, &x.status) != nil {
					return true
				}
				found = true
				x.status.Name = slices.Clone(track)
				x.lags = lagsOf(m, id, track, &x.status, now)
				return false
			})
		})
		if !found {
			return list
		}
		x.node = node
		list = append(list, x)
	}
	return list
}

// lagsOf is how long the first location has had what each location has not, in ms.
func lagsOf(m *shard.Machine, node uint64, track []byte, s *protocol.TrackStatus, now uint64) []uint64 {
	lags := make([]uint64, len(s.Locations))
	if len(s.Locations) == 0 {
		return lags
	}
	var first protocol.TrackHistoryReply
	if m.Tracks().History(&protocol.TrackHistory{Node: node, Name: track, Location: s.Locations[0].Name}, now,
		&first) != nil {
		return lags
	}
	for i := range s.Locations {
		for _, r := range first.Rows {
			if r.Version > s.Locations[i].Target && !r.Skip {
				lags[i] = s.Clock - min(s.Clock, r.At)
				break
			}
		}
	}
	return lags
}

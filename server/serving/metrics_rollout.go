package serving

import (
	"cmp"
	"io"
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

// writeRollouts shows the tracks that are led here, and what was decided about them. most bounds
// the series; signalbox_rollout_series_truncated is 1 if some were left out. Times are in seconds:
//
//	signalbox_rollout_target               the version that a location is to have
//	signalbox_rollout_target_age_seconds   since when
//	signalbox_rollout_lag_seconds          how long it lacks what the first location has
//	signalbox_rollout_leaders              instances that must have the target
//	signalbox_rollout_converged            of them, those that have it
//	signalbox_rollout_members              all instances
//	signalbox_rollout_blocked_seconds      since when an instance has been behind; 0 if none is
//	signalbox_rollout_blocked_by           1 for each of the first ten that are, by instance
//	signalbox_rollout_empty, _stalled, _reelection_pending    1 in this state
//	signalbox_rollout_targets_total        targets set, by reason; watch reelect-* and rollback
//	signalbox_rollout_polls_total          polls, by path: read from memory, or log
func writeRollouts(w io.Writer, shards []*Shard, state *meta.State, most int, names bool) {
	budget := metrics.Budget{Left: most}
	for _, d := range shards {
		metrics.Write(w, "signalbox_rollout_polls_total", metrics.Labels("shard", d.ID(), "path", "read"), d.requests.PollsRead.Load())
		metrics.Write(w, "signalbox_rollout_polls_total", metrics.Labels("shard", d.ID(), "path", "log"), d.requests.PollsLogged.Load())
		if !d.Raft().Leading() || !names {
			continue
		}
		for _, x := range d.tracks.trackStatuses(budget.Left / seriesOfLocation) {
			n, _ := state.Node(x.node)
			track := metrics.Labels("node", metrics.Label(n.Path), "track", metrics.Label(string(x.status.Name)))
			for i := range x.status.Locations {
				l := &x.status.Locations[i]
				if !budget.Take(seriesOfLocation + len(l.BlockedBy)) {
					break
				}
				writeLocation(w, track+","+metrics.Labels("location", metrics.Label(l.Name)), l, x.status.Clock, x.lags[i])
			}
		}
		chosen := d.tracks.targetCounts()
		for _, k := range slices.SortedFunc(maps.Keys(chosen), func(a, b targetKey) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.track, b.track), cmp.Compare(a.location, b.location), cmp.Compare(a.reason, b.reason))
		}) {
			if !budget.Take(1) {
				break
			}
			n, _ := state.Node(k.node)
			metrics.Write(w, "signalbox_rollout_targets_total", metrics.Labels(
				"node", metrics.Label(n.Path), "track", metrics.Label(k.track), "location", metrics.Label(k.location), "reason", k.reason), chosen[k])
		}
	}
	metrics.Write(w, "signalbox_rollout_series_truncated", "", budget.Cut)
}

func writeLocation(w io.Writer, labels string, l *protocol.TrackLocationStatus, clock, lag uint64) {
	seconds := func(ms uint64) float64 { return float64(ms) / 1000 }
	since := func(at uint64) float64 {
		if at == 0 {
			return 0
		}
		return seconds(clock - min(clock, at))
	}
	metrics.WriteAll(w, "signalbox_rollout_", labels,
		"target_age_seconds", since(l.Since), "lag_seconds", seconds(lag), "leaders", l.Counted, "converged", l.Reached,
		"members", l.Members, "blocked_seconds", since(l.BlockedSince), "empty", l.State == protocol.StateEmpty,
		"stalled", l.State == protocol.StateStalled, "reelection_pending", l.State == protocol.StateReelectionPending, "target", l.Target,
	)
	for _, id := range l.BlockedBy {
		metrics.Write(w, "signalbox_rollout_blocked_by", labels+","+metrics.Labels("instance", metrics.Label(id)), true)
	}
}

// targetCounts is how many targets were set here, by reason.
func (t *trackDecisions) targetCounts() map[targetKey]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.targetsSet)
}

// trackStatuses is how the tracks stand, at most so many of them. The log waits for one at a time.
func (t *trackDecisions) trackStatuses(most int) (list []trackStatus) {
	d := t.host
	var node uint64
	var name []byte
	for len(list) < most {
		var x trackStatus
		found := false
		d.Raft().View(func(m *shard.Machine) {
			m.TracksFrom(node, name, func(id uint64, track []byte) bool {
				node, name = id, append(slices.Clone(track), 0) // what comes next
				now := d.Raft().LogTime()
				if m.DescribeTrack(&protocol.TrackDescribe{Node: id, Name: track}, now, &x.status) != nil {
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
	if m.TrackHistory(&protocol.TrackHistory{Node: node, Name: track, Location: s.Locations[0].Name}, now, &first) != nil {
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

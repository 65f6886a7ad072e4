package server

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// trackStatus is how a track stands, for the metrics.
type trackStatus struct {
	path   string
	status protocol.TrackStatus
	lags   []uint64 // of its locations, in ms
}

// seriesOfLocation is how many series a location of a track has, its blockers apart.
const seriesOfLocation = 10

// writeRollouts shows how the tracks stand that are led here, and what was decided about them. The number of series is bounded; signalbox_rollout_series_truncated is 1 when some were
// left out. In seconds:
//
//	signalbox_rollout_target               the version that a location is to have
//	signalbox_rollout_target_age_seconds   since when
//	signalbox_rollout_lag_seconds          how long the first location has had what this one has not; 0 if nothing
//	signalbox_rollout_leaders              instances that must have the target
//	signalbox_rollout_converged            of them, those that have it
//	signalbox_rollout_members              all instances
//	signalbox_rollout_blocked_seconds      since when somebody has been behind; 0 if nobody is
//	signalbox_rollout_blocked_by           1 for each of the first ten who are, by instance
//	signalbox_rollout_empty, _stalled, _reelection_pending    1 in this state
//	signalbox_rollout_targets_total        targets set, by reason: reelect-explicit, reelect-implicit and rollback are those to look at
//	signalbox_rollout_polls_total          polls, by path: read from memory, or log
func (m *serverMetrics) writeRollouts(w io.Writer) {
	left, isCut := m.server.cfg.Limits.MaxSeries, 0
	take := func(n int) bool {
		if left < n {
			isCut = 1
			return false
		}
		left -= n
		return true
	}
	for _, d := range m.server.shards.all() {
		fmt.Fprintf(w, "signalbox_rollout_polls_total{shard=\"%d\",path=\"read\"} %d\n", d.id, d.tracks.polls.read.Load())
		fmt.Fprintf(w, "signalbox_rollout_polls_total{shard=\"%d\",path=\"log\"} %d\n", d.id, d.tracks.polls.logged.Load())
		if !d.raft.Leading() || !m.server.showNames() {
			continue
		}
		for _, x := range d.tracks.trackStatuses(left / seriesOfLocation) {
			track := fmt.Sprintf("node=%q,track=%q", labelValue(x.path), labelValue(string(x.status.Name)))
			for i := range x.status.Locations {
				l := &x.status.Locations[i]
				if !take(seriesOfLocation + len(l.BlockedBy)) {
					break
				}
				writeLocation(w, fmt.Sprintf("%s,location=%q", track, labelValue(l.Name)), l, x.status.Clock, x.lags[i])
			}
		}
		chosen := d.tracks.targetCounts()
		for _, k := range slices.SortedFunc(maps.Keys(chosen), func(a, b targetKey) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.track, b.track), cmp.Compare(a.location, b.location), cmp.Compare(a.reason, b.reason))
		}) {
			if !take(1) {
				break
			}
			path, _ := m.server.nodePath(k.node)
			fmt.Fprintf(w, "signalbox_rollout_targets_total{node=%q,track=%q,location=%q,reason=%q} %d\n",
				labelValue(path), labelValue(k.track), labelValue(k.location), k.reason.String(), chosen[k])
		}
	}
	fmt.Fprintf(w, "signalbox_rollout_series_truncated %d\n", isCut)
}

func writeLocation(w io.Writer, labels string, l *protocol.TrackLocationStatus, clock, lag uint64) {
	seconds := func(ms uint64) float64 { return float64(ms) / 1000 }
	since := func(at uint64) float64 {
		if at == 0 {
			return 0
		}
		return seconds(clock - min(clock, at))
	}
	is := func(s protocol.TrackState) float64 {
		if l.State == s {
			return 1
		}
		return 0
	}
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"target_age_seconds", since(l.Since)}, {"lag_seconds", seconds(lag)}, {"leaders", float64(l.Counted)}, {"converged", float64(l.Reached)},
		{"members", float64(l.Members)}, {"blocked_seconds", since(l.BlockedSince)}, {"empty", is(protocol.StateEmpty)}, {"stalled", is(protocol.StateStalled)},
		{"reelection_pending", is(protocol.StateReelectionPending)},
	} {
		fmt.Fprintf(w, "signalbox_rollout_%s{%s} %g\n", v.name, labels, v.value)
	}
	fmt.Fprintf(w, "signalbox_rollout_target{%s} %d\n", labels, l.Target)
	for _, id := range l.BlockedBy {
		fmt.Fprintf(w, "signalbox_rollout_blocked_by{%s,instance=%q} 1\n", labels, labelValue(id))
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
		d.raft.View(func(m *shard.Machine) {
			m.TracksFrom(node, name, func(id uint64, track []byte) bool {
				node, name = id, append(slices.Clone(track), 0) // what comes next
				now := d.raft.LogTime()
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
		x.path, _ = d.server.nodePath(node)
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

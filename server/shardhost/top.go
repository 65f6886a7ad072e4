package shardhost

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/busiest"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// samplePeriod is how often the instance's rates are taken: about 5 of them are looked at together.
const samplePeriod = time.Second

// SampleRates takes the instance's rates until ctx ends.
func (s *Serving) SampleRates(ctx context.Context) {
	for more := true; more; more = beat.Sleep(ctx, beat.Next(samplePeriod)) {
		answered, rejected := s.Metrics.Totals()
		now := time.Since(s.began)
		s.Rates.Sample(now, busiest.Totals{Answered: answered, Rejected: rejected})
		s.history.Sample(now, s.moment)
	}
}

// moment reads a point of the history: the grants that were counted here, and what is led here now.
func (s *Serving) moment() (granted uint64, p busiest.Point) {
	wall := uint64(max(0, s.Clock.Wall().UnixMilli()))
	for _, d := range s.Shards.All() {
		granted += d.grants.Granted()
		if !d.Replica().Leading() {
			continue
		}
		d.Replica().View(func(m *shard.Machine) {
			size := m.Metrics().Sizes()
			p.Waiters += size.Waiters
			p.Sessions += size.Sessions
			for _, w := range m.Load().OldestWaits(1, func(uint64) bool { return true }) {
				p.LongestWait = max(p.LongestWait, millis(wall-min(wall, w.WaitingSince)))
			}
		})
	}
	return granted, p
}

func millis(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }

// Top is operators' method top: what is busiest in the shards that are led here. mayRead says which
// nodes who asks may read. The caller adds who the instance is.
func (s *Serving) Top(in protocol.TopRequest, mayRead func(path string) bool) (protocol.Top, error) {
	state := s.Requests.Routes().State
	rows := in.Rows
	switch {
	case rows == 0:
		rows = protocol.DefaultTopRows
	case rows < 0 || rows > protocol.MaxTopRows:
		return protocol.Top{}, protocol.Errorf(protocol.StatusBadRequest,
			"%d rows are asked for; choose 1 to %d", rows, protocol.MaxTopRows)
	}
	if len(in.Sessions) > protocol.MaxTopRows {
		return protocol.Top{}, protocol.Errorf(protocol.StatusBadRequest,
			"%d sessions are asked for; at most %d are answered", len(in.Sessions), protocol.MaxTopRows)
	}
	path := strings.TrimSuffix(in.Path, "/")
	if path != "" {
		if err := protocol.ValidatePath(path); err != nil {
			return protocol.Top{}, err
		}
		if _, ok := state.NodeAt(path); !ok && mayRead(path) {
			return protocol.Top{}, protocol.Refuse(protocol.RefusalNoNode, "coordination node %s does not exist",
				path)
		}
	}
	known := map[uint64]string{} // path of a node, empty if it is not to be shown
	pathOf := func(node uint64) string {
		p, ok := known[node]
		if !ok {
			if n, _ := state.Node(node); n.Path != "" &&
				(path == "" || n.Path == path || strings.HasPrefix(n.Path, path+"/")) && mayRead(n.Path) {
				p = n.Path
			}
			known[node] = p
		}
		return p
	}
	shown := func(node uint64) bool { return pathOf(node) != "" }

	out := protocol.Top{
		NowMS:      uint64(max(0, s.Clock.Wall().UnixMilli())),
		Semaphores: []protocol.TopSemaphore{}, Sessions: []protocol.TopSession{},
	}
	if mayRead("/") {
		out.Instance.Activity = s.activity()
		if in.History {
			for _, p := range s.history.Points() {
				out.Instance.Activity.History = append(out.Instance.Activity.History, protocol.TopPoint{Grants: p.Grants,
					Waiters: p.Waiters, Sessions: p.Sessions, WaitMS: uint64(p.LongestWait.Milliseconds())})
			}
		}
	}
	led := s.led()
	busy := newBusySemaphores()
	for _, d := range led {
		busy.readFirst(d, rows, shown)
	}
	for _, h := range busy.list {
		out.Semaphores = append(out.Semaphores, protocol.TopSemaphore{
			Path: pathOf(h.Node), Name: h.Name, GrantsPerSecond: h.grantsPerSecond, Limit: h.Limit, Used: h.Used,
			Owners: h.Owners, Waiters: h.Waiters,
			WaitingSinceMS: h.WaitingSince, Ephemeral: h.Ephemeral, Stuck: h.Stuck,
			WaitingPriority: h.Priority, DrainedSlots: h.Slots[protocol.SlotDrained] + h.Slots[protocol.SlotDraining],
			LeftMS: h.Left, PreemptedOwners: h.Preempted,
		})
	}
	out.Sessions = append(out.Sessions, topSessions(led, rows, in.Sessions, shown, pathOf)...)
	return out, nil
}

// topSessions are those with the most entries in the shards that are led here, and those asked for
// besides. A session is found by what it has in one shard, and then counted in all of them.
func topSessions(
	led []*Shard, rows int, besides []uint64, shown func(uint64) bool, pathOf func(uint64) string,
) (list []protocol.TopSession) {
	found := map[uint64]int{} // entries in the shards that list it
	for _, d := range led {
		d.Replica().View(func(m *shard.Machine) {
			for _, l := range m.Load().MostEntries(rows, shown) {
				found[l.Session] += l.Held + l.Waiting
			}
		})
	}
	ids := slices.SortedFunc(maps.Keys(found), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(found[b], found[a]), cmp.Compare(a, b))
	})
	ids = ids[:min(2*rows, len(ids))] // one that several shards list late may be first in all of them together
	for _, id := range besides {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	list = countSessions(led, ids, shown, pathOf)
	slices.SortStableFunc(list, func(a, b protocol.TopSession) int {
		return cmp.Compare(b.Held+b.Waiting, a.Held+a.Waiting)
	})
	first := min(rows, len(list))
	return append(list[:first:first], slices.DeleteFunc(slices.Clone(list[first:]), func(x protocol.TopSession) bool {
		return !slices.Contains(besides, x.Session)
	})...)
}

// countSessions counts what sessions have in these shards. Those that no shard knows are left out.
func countSessions(
	led []*Shard, ids []uint64, shown func(uint64) bool, pathOf func(uint64) string,
) []protocol.TopSession {
	list := make([]protocol.TopSession, len(ids))
	for _, d := range led {
		d.Replica().View(func(m *shard.Machine) {
			for i, id := range ids {
				l, ok := m.Load().Session(id)
				if !ok || !shown(l.Node) {
					continue
				}
				x := &list[i]
				x.Session, x.Path = id, pathOf(l.Node)
				x.Held += l.Held
				x.Waiting += l.Waiting
				if l.Description != "" {
					x.Description = l.Description
				}
				if l.Client != "" {
					x.Client, x.Detached = l.Client, l.Detached
				}
			}
		})
	}
	return slices.DeleteFunc(list, func(x protocol.TopSession) bool { return x.Session == 0 })
}

// led are the shards that are led here.
func (s *Serving) led() []*Shard {
	return slices.DeleteFunc(slices.Clone(s.Shards.All()), func(d *Shard) bool { return !d.Replica().Leading() })
}

// activity is what the instance does, but for its connections.
func (s *Serving) activity() *protocol.TopActivity {
	now := s.Rates.Now()
	a := &protocol.TopActivity{
		UptimeMS: uint64(time.Since(s.began).Milliseconds()), Leads: []uint64{}, Requests: now.Requests,
		Rejected:    now.Rejected,
		ChangeP50US: uint64(now.ChangeP50.Microseconds()), ChangeP99US: uint64(now.ChangeP99.Microseconds()),
		WriteP50US: uint64(now.WriteP50.Microseconds()), WriteP99US: uint64(now.WriteP99.Microseconds()),
	}
	for _, d := range s.led() {
		a.Leads = append(a.Leads, d.ID())
		var size shard.Sizes
		d.Replica().View(func(m *shard.Machine) { size = m.Metrics().Sizes() })
		a.Sessions += size.Sessions
		a.Semaphores += size.Semaphores
	}
	return a
}

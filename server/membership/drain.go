package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// offlineLinger is how long an instance that the cluster has Offline goes on serving, so that
	// the other instances, and clients by them, have heard of it.
	offlineLinger = 100 * time.Millisecond
	// drainPoll is how often the state of a drain is read if nothing changes.
	drainPoll = 100 * time.Millisecond
)

// Drain has the cluster take over what this instance has. It returns when the cluster has, when
// it cannot, or when ctx ends.
func (m *Member) Drain(ctx context.Context) {
	log := m.Logger
	if why := m.NoSuccessor(m.Meta.State(), 0); why != "" {
		log.Info("stopping, nothing to drain to", "reason", why)
		return
	}
	began := m.Clock.Now()
	log.Info("stopping, draining first")
	m.service.SendHeartbeat() // the governor goes by the leaderships that it has heard of
	m.detector.leave()
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for {
		changed := m.Meta.Changed()
		state := m.Meta.State()
		// The governor may have this instance Offline before it has heard what is led here. It goes
		// on draining that.
		if i, ok := state.Instance(m.instance); ok && i.Current.Variant == meta.Offline &&
			i.Target.Variant == meta.Offline && m.transferable(state) == 0 {
			log.Info("drained", "took", m.Clock.Now()-began, "leads", len(m.Led()))
			beat.Sleep(ctx, offlineLinger)
			return
		}
		if why := m.NoSuccessor(state, m.Clock.Now()-began); why != "" {
			log.Warn("drain given up", "reason", why, "after", m.Clock.Now()-began)
			return
		}
		select {
		case <-changed:
		case <-t.C:
			m.service.SendHeartbeat()
		case <-m.Failed:
			log.Warn("drain given up", "reason", "the instance has failed")
			return
		case <-ctx.Done():
			log.Warn("drain given up", "reason", "it took too long", "after", m.Clock.Now()-began)
			return
		}
	}
}

// neededPoll is how often an instance that waits for its stop looks whether it is still needed.
const neededPoll = 200 * time.Millisecond

// AwaitNotNeeded returns when the cluster survives the loss of this instance, which the map then
// has as going offline, or when that cannot come, or when ctx ends. A drain follows.
func (m *Member) AwaitNotNeeded(ctx context.Context) {
	began, logged := m.Clock.Now(), ""
	for {
		changed := m.Meta.Changed()
		why := m.leaveIfNotNeeded(ctx)
		if why == "" {
			if logged != "" {
				m.Logger.Info("this instance is no longer needed", "took", m.Clock.Now()-began)
			}
			return
		}
		if why != logged && ctx.Err() == nil {
			m.Logger.Info("this instance serves until the cluster can do without it", "reason", why)
			logged = why
		}
		select {
		case <-changed:
		case <-time.After(neededPoll):
		case <-m.Failed:
			return
		case <-ctx.Done():
			m.Logger.Warn("stopping although this instance is needed", "reason", why, "after", m.Clock.Now()-began)
			return
		}
	}
}

// leaveIfNotNeeded has the map make this instance one that goes offline, if the cluster survives
// its loss. It returns why not; empty: it goes, or need not wait. Of instances that ask at the same
// time the log of the meta shard lets one go: the next one is judged by what that leaves.
func (m *Member) leaveIfNotNeeded(ctx context.Context) (why string) {
	state := m.Meta.State()
	if _, counts := state.NeededAmongOnline(m.instance); !counts {
		// By a map that is behind, an instance would go at once that has had its vote for a moment.
		sync, cancel := context.WithTimeout(ctx, updateTimeout)
		_ = m.Meta.Sync(sync) // without a majority there is no newer one
		cancel()
		state = m.Meta.State()
	}
	own, ok := state.Instance(m.instance)
	why, counts := state.NeededAmongOnline(m.instance)
	switch {
	case !ok || own.Target.Variant == meta.Expelled || !counts:
		return ""
	case own.Target.Variant == meta.Offline && own.Reason == meta.ReasonShutdown:
		return "" // an earlier request, whose answer did not come
	case own.Target.Variant == meta.Offline:
		return "it was marked offline, and comes back first: " + own.Reason
	case why != "":
		return why
	}
	if why = governor.NeededForTolerance(m.observeNow()); why != "" {
		return why
	}
	m.detector.leaving.Store(true) // it does not come back by itself
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err := m.service.SetTarget(ctx, meta.Offline, meta.ReasonShutdown, true)
	switch answer := protocol.StatusOf(err); {
	case err == nil:
		return ""
	case actionOutcomeOf(answer) == refused:
		m.detector.leaving.Store(false)
	}
	return err.Error()
}

// transferable is the number of shards led here in which another instance votes that is Online.
func (m *Member) transferable(state *meta.State) (n int) {
	for _, id := range m.Led() {
		x, _ := state.Shard(id)
		if slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool {
			i, _ := state.Instance(r.Instance)
			return r.Instance != m.instance && r.Role == meta.RoleVoter && i.Current.Variant == meta.Online &&
				i.Target.Variant == meta.Online
		}) {
			n++
		}
	}
	return n
}

// NoSuccessor says why there is nobody to drain to; empty if there may be. A voter that was
// never heard counts as up until it has been waited for.
func (m *Member) NoSuccessor(state *meta.State, waited time.Duration) string {
	if i, ok := state.Instance(m.instance); !ok || i.Target.Variant == meta.Expelled || i.Expelled() {
		return "this instance was expelled"
	}
	if !slices.ContainsFunc(state.Instances(),
		func(i meta.Instance) bool { return i.ID != m.instance && i.Current.Variant == meta.Online }) {
		return "no other instance is Online"
	}
	group := state.MetaShard()
	voters, others := m.votersUp(state, &group, waited)
	up := others
	if own, ok := group.On(m.instance); ok && own.Role == meta.RoleVoter {
		up++
	}
	if up <= voters/2 {
		return fmt.Sprintf("there is no quorum: %d of %d voting instances up", up, voters)
	}
	return ""
}

// votersUp counts the voters of a group, and those on other instances that are up. A voter that was
// never heard counts as quiet for that long.
func (m *Member) votersUp(state *meta.State, group *meta.Shard, neverHeard time.Duration) (voters, others int) {
	health, now := m.service.Instances().Health(), m.Clock.Now()
	for _, r := range group.Replicas {
		if r.Role != meta.RoleVoter {
			continue
		}
		voters++
		quiet := neverHeard
		if h, ok := health[r.Instance]; ok {
			quiet = now - h.Heard
		}
		if i, _ := state.Instance(r.Instance); r.Instance != m.instance &&
			i.Current.Variant == meta.Online && quiet <= missedAfter {
			others++
		}
	}
	return voters, others
}

// NeededAmongUp names a shard that would have no majority of voters that are up without this
// instance; empty if there is none.
func (m *Member) NeededAmongUp() string {
	state := m.Meta.State()
	for _, x := range append(state.Shards(), state.MetaShard()) {
		if own, ok := x.On(m.instance); !ok || own.Role != meta.RoleVoter {
			continue
		}
		if voters, others := m.votersUp(state, &x, missedAfter+1); others <= voters/2 {
			return fmt.Sprintf("without this instance shard %d has %d of %d voters up", x.ID, others, voters)
		}
	}
	return ""
}

// PeerExited is called when the process of the instance at a raft address has ended. What it led is
// led by others as soon as a majority of each shard's voters has found the same. They do not wait
// for the election timeout.
func (m *Member) PeerExited(ctx context.Context, address string) {
	var mu sync.Mutex
	var agree []string
	m.service.ConfirmProcessExit(ctx, address, func(from string) {
		mu.Lock()
		defer mu.Unlock()
		agree = append(agree, from)
		if n := m.host.ReplaceLeader(address, agree); n > 0 {
			m.Logger.Info("process of another instance has ended, standing for election in its place",
				"address", address, "shards", n)
		}
	})
}

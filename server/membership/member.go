// Package membership is an instance as a member of its cluster: its replica of the meta shard, how
// it comes and goes, and what it sees of the other instances.
//
// A Member knows no client. It gets the raft host, the service to the other instances and the
// governor while the instance starts, because it must answer other instances before it is a member
// itself.
//
// followMeta alone changes the replica of the meta shard. A removal of the replica with its vote
// means that another one, with a higher id, is on its way; an instance that was cut off then misses
// it. So it checks every two seconds that the group answers, and else asks the other instances,
// which may lag: ids only rise. Meanwhile the last map stands.
//
// An instance that is expelled is found in the map, or hears it from the others. It notes it in
// identity.json and ends its process. One that is to be expelled goes on: its buckets have still to
// move. A drain also checks itself whether this instance leads something that another could lead,
// since the governor may have it Offline before it has heard of that.
package membership

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Config of a Member. All fields are required.
type Config struct {
	Meta         *Meta
	Clock        replica.Clock
	Logger       *slog.Logger
	OfflineAfter time.Duration // see [failuredetector.New]

	Go      func(func())    // starts a goroutine that ends with the member's context
	Led     func() []uint64 // the data shards that are led here
	Started func() bool     // the instance has started
	Failed  <-chan struct{} // closed when the instance has failed
	Fail    func(error)     // ends the instance
}

// Member is this instance in its cluster. [Member.Connect] and [Member.Open] give it what comes
// into being while the instance starts; the other methods need both.
type Member struct {
	Config
	ctx      context.Context
	detector *detectorDriver

	instance uint64
	service  *cluster.Service
	entry    *cluster.Bootstrap
	host     *replica.Host
	governor *governor.Governor

	applied     func(index uint64, before, after *meta.State)
	removedMeta chan uint64 // replicas of the meta shard here that have seen their own removal
	registered  atomic.Bool // the cluster was told that this process is there
}

// New returns a member, whose goroutines end with ctx.
func New(ctx context.Context, cfg Config) *Member {
	m := &Member{Config: cfg, ctx: ctx, removedMeta: make(chan uint64, 8)}
	m.detector = newDetectorDriver(m)
	return m
}

// Connect gives it the connections to the other instances.
func (m *Member) Connect(service *cluster.Service, entry *cluster.Bootstrap) {
	m.service, m.entry = service, entry
}

// SetInstance sets the instance's id, which the entry into the cluster finds out.
func (m *Member) SetInstance(id uint64) {
	m.instance = id
	m.service.SetInstance(id)
}

// Open starts the replica of the meta shard and follows it. Applied is called with each entry of
// the meta shard that is applied here; nil: nothing is.
func (m *Member) Open(
	host *replica.Host, g *governor.Governor, applied func(index uint64, before, after *meta.State),
) error {
	m.host, m.governor, m.applied = host, g, applied
	if err := m.startMeta(); err != nil {
		return err
	}
	m.service.SetReady() // what is asked from now on finds all that it needs
	m.Go(m.followMeta)
	return nil
}

// Run runs heartbeats, the governor and the failure detector until the member's context ends.
func (m *Member) Run() {
	m.Go(func() { m.service.Run(m.ctx) })
	m.Go(func() { m.governor.Run(m.ctx) })
	m.Go(func() { m.detector.run(m.ctx) })
	m.Go(func() { m.detector.feel(m.ctx) })
}

// DetectorSilence is for how long the failure detector has taken no step; 0: it does. A pause of the
// whole process does not count.
func (m *Member) DetectorSilence() time.Duration { return m.detector.silence() }

// Follow takes a newer map. It returns false if the map has expelled this instance, which ends it.
func (m *Member) Follow(state *meta.State) bool {
	i, ok := state.Instance(m.instance)
	switch {
	case ok && i.Expelled():
		m.leave()
		return false
	case ok && m.registered.Load() && i.Target.Variant == meta.Online:
		m.service.SetIncarnation(i.Target.Incarnation)
	}
	return true
}

// HeartbeatReceived is called with each heartbeat of another instance.
func (m *Member) HeartbeatReceived(instance, incarnation, applied uint64) {
	m.detector.heartbeat(instance, incarnation, applied)
}

// leave ends this instance, which the cluster has expelled.
func (m *Member) leave() {
	if err := m.entry.SetExpelled(); err != nil {
		m.Logger.Error("expulsion is not kept", "error", err)
	}
	m.Fail(cluster.ErrExpelled)
}

// SavePeers keeps the addresses of the other instances for the next start.
func (m *Member) SavePeers(state *meta.State) {
	var known []string
	for _, i := range state.Instances() {
		if i.ID != m.instance && !i.Expelled() {
			known = append(known, i.RaftAddress)
		}
	}
	if err := m.entry.SetKnown(known); err != nil {
		m.Logger.Error("addresses of the other instances are not kept", "error", err)
	}
}

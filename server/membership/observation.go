package membership

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// observeTimeout bounds the wait for a majority of the meta shard to confirm the map. Without one,
// operators get what is known here.
const observeTimeout = time.Second

// WriteMetrics shows this instance in its cluster.
func (m *Member) WriteMetrics(p *metrics.Page) { writeMember(p, m) }

// Stopped reports whether the instance at a raft address has stopped as planned. The case of the
// address does not matter: connections have it in lower case.
func (m *Member) Stopped(address string) bool {
	return slices.ContainsFunc(m.Meta.State().Instances(), func(i meta.Instance) bool {
		return strings.EqualFold(i.RaftAddress, address) && i.Target.Variant == meta.Offline &&
			i.Reason == meta.ReasonShutdown
	})
}

// Observe is what this instance sees of the cluster. It asks the meta shard whether the map is up
// to date.
func (m *Member) Observe(ctx context.Context) governor.Observation {
	m.service.SendHeartbeat() // what runs here, as it is now
	sync, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	confirmed := m.Meta.Sync(sync) == nil
	o := m.observeNow()
	o.Confirmed = confirmed
	return o
}

// observeNow is Observe without communication. The map counts as confirmed if it was a moment ago:
// each instance of several checks that every two seconds.
func (m *Member) observeNow() governor.Observation {
	o := governor.Observation{
		View: governor.View{State: m.Meta.State(), Now: m.Clock.Now(), Health: m.service.Instances().Health(),
			OfflineAfter: governor.FreshLimit, Unreached: m.service.Instances().Unreached()},
		Self: m.instance, Age: m.Meta.age(), Wall: m.Clock.Wall(),
	}
	o.Confirmed = o.Age <= metaCheckPeriod+metaCheckTimeout
	o.Leader = m.Meta.leaderInstance(o.State)
	return o
}

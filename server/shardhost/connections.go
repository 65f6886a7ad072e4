package shardhost

import (
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// RenewLeases implements session.Home.
func (d *Shard) RenewLeases(conn, ping uint64) { d.Raft().Ping(conn, ping) }

// RenewLeasesAfterStep implements session.Home. It may be called inside a step.
func (d *Shard) RenewLeasesAfterStep(conn, ping uint64) {
	go func() {
		d.Raft().Exclusive(func(*shard.Machine) {}) // waits for its end
		d.Raft().Ping(conn, ping)
	}()
}

// ConnClosed implements session.Home.
func (d *Shard) ConnClosed(conn uint64, heard time.Duration) { d.Raft().ConnClosed(conn, heard) }

// Restored implements replica.Restorer.
func (d *Shard) Restored(*replica.Shard) {
	defer d.serving.Requests.Guard("restored", nil)
	d.counts.restart()
	d.delivery.SnapshotInstalled()
	d.out.Flush()
}

// Stale implements replica.StaleSink. It ends what is watched in nodes whose RELAXED reads are
// refused here from then on, because the machine may be older than their grace period.
func (d *Shard) Stale(s *replica.Shard, age time.Duration) {
	defer d.serving.Requests.Guard("stale", nil)
	watched := d.delivery.Quota.Nodes()
	if len(watched) == 0 {
		return
	}
	stale := make(map[uint64]bool)
	s.View(func(m *shard.Machine) {
		for _, node := range watched {
			c, ok := m.Nodes().Config(node)
			stale[node] = ok && age >= time.Duration(c.GracePeriod)*time.Millisecond
		}
	})
	d.delivery.Stale(func(node uint64) bool { return stale[node] })
	d.serving.Requests.Flush()
}

// Cut implements replica.Sink.
func (d *Shard) Cut(_ *replica.Shard, id uint64, reason string) {
	defer d.serving.Requests.Guard("cut", nil)
	if c := d.serving.Requests.Client(id); c != nil {
		c.Close(transport.Graceful, protocol.StatusUnavailable, reason)
		d.serving.Requests.Flush()
		d.serving.Metrics.CutByLeader.Inc()
	}
}

// Detach implements replica.Sink. It takes the sessions that are at home here off a connection.
func (d *Shard) Detach(_ *replica.Shard, id uint64) {
	defer d.serving.Requests.Guard("detach", nil)
	if c := d.serving.Requests.Client(id); c != nil {
		c.Detach(d, 0, math.MaxUint32)
		d.serving.Requests.Flush()
	}
}

// Pong implements replica.Sink. It renews the leases of a connection's sessions whose home shard is
// this one.
func (d *Shard) Pong(_ *replica.Shard, id, ping uint64) {
	if c := d.serving.Requests.Client(id); c != nil {
		c.Append(protocol.KindPong, ping, d.ID(), nil)
		d.serving.Requests.FlushSoon()
	}
}

// Failed implements replica.Sink.
func (d *Shard) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer d.serving.Requests.Guard("failed", nil)
	o := d.serving.Requests.BorrowOutbox()
	defer d.serving.Requests.ReturnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := d.serving.Requests.Client(og.Conn)
		if c == nil {
			continue
		}
		if og.Tag&request.UnloggedNote != 0 {
			d.unloggedAttachFailed(c, og.Request, protocol.StatusUnavailable, "")
			continue
		}
		c.RejectSubmit(o, d, og.Kind, og.Request, st)
	}
}

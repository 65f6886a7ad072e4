package shardhost

import (
	"math"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// RenewLeases implements session.Home.
func (s *Shard) RenewLeases(conn, ping uint64) { s.Replica().Ping(conn, ping) }

// RenewLeasesAfterStep implements session.Home. It may be called inside a step. One goroutine waits
// for all pings that come meanwhile.
func (s *Shard) RenewLeasesAfterStep(conn, ping uint64) {
	if s.late.add(latePing{conn, ping}) {
		go s.renewLate()
	}
}

func (s *Shard) renewLate() {
	for list := s.late.take(); list != nil; list = s.late.take() {
		s.Replica().Exclusive(func(*shard.Machine) {}) // waits for the end of the step
		for _, x := range list {
			s.Replica().Ping(x.conn, x.ping)
		}
	}
}

// latePings are pings that wait for the end of a step. A connection has one at a time for each home.
type latePings struct {
	mu    sync.Mutex
	list  []latePing
	taken bool // by a goroutine that runs
}

type latePing struct{ conn, ping uint64 }

// add reports whether a goroutine is to be started that takes it.
func (l *latePings) add(x latePing) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start, l.taken = !l.taken, true
	l.list = append(l.list, x)
	return start
}

// take returns the pings that wait; nil: there are none, and the goroutine ends.
func (l *latePings) take() (list []latePing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, l.list = l.list, nil
	l.taken = list != nil
	return list
}

// ConnClosed implements session.Home.
func (s *Shard) ConnClosed(conn uint64, heard time.Duration, link protocol.Link) {
	s.Replica().ConnClosed(conn, heard, link)
}

// Restored implements replica.Restorer.
func (s *Shard) Restored(*replica.Shard) {
	defer s.serving.Requests.Guard("restored", nil)
	s.counts.restart()
	s.hubs.SnapshotInstalled()
	s.events.out.Flush()
}

// Stale implements replica.StaleSink. It ends what is watched in nodes whose RELAXED reads are
// refused here from then on, because the machine may be older than their grace period.
func (s *Shard) Stale(rep *replica.Shard, age time.Duration) {
	defer s.serving.Requests.Guard("stale", nil)
	watched := s.hubs.Quota.Nodes()
	if len(watched) == 0 {
		return
	}
	stale := make(map[uint64]bool)
	rep.View(func(m *shard.Machine) {
		for _, node := range watched {
			c, ok := m.Nodes().Config(node)
			stale[node] = ok && age >= time.Duration(c.GracePeriod)*time.Millisecond
		}
	})
	s.hubs.Stale(func(node uint64) bool { return stale[node] })
	s.serving.Requests.Flush()
}

// Cut implements replica.Sink.
func (s *Shard) Cut(_ *replica.Shard, id uint64, reason string) {
	defer s.serving.Requests.Guard("cut", nil)
	if c := s.serving.Requests.Client(id); c != nil {
		c.Close(transport.Graceful, protocol.StatusUnavailable, reason)
		s.serving.Requests.Flush()
		s.serving.Metrics.CutByLeader.Inc()
	}
}

// Detach implements replica.Sink. It takes the sessions that are at home here off a connection.
func (s *Shard) Detach(_ *replica.Shard, id uint64) {
	defer s.serving.Requests.Guard("detach", nil)
	if c := s.serving.Requests.Client(id); c != nil {
		c.Detach(s, 0, math.MaxUint32)
		s.serving.Requests.Flush()
	}
}

// Pong implements replica.Sink. It renews the leases of a connection's sessions whose home shard is
// this one.
func (s *Shard) Pong(_ *replica.Shard, id, ping uint64) {
	if c := s.serving.Requests.Client(id); c != nil {
		c.Append(protocol.KindPong, ping, s.ID(), nil)
		s.serving.Requests.FlushSoon()
	}
}

// Failed implements replica.Sink.
func (s *Shard) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer s.serving.Requests.Guard("failed", nil)
	o := s.serving.Requests.BorrowOutbox()
	defer s.serving.Requests.ReturnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := s.serving.Requests.Client(og.Conn)
		if c == nil {
			continue
		}
		if og.Tag&request.UnloggedNote != 0 {
			s.unloggedAttachFailed(c, og.Request, protocol.StatusUnavailable, "")
			continue
		}
		c.RejectSubmit(o, s, og.Kind, og.Request, st)
	}
}

// unloggedAttachFailed takes back a RELAXED attach that the log did not take, and notifies the
// client: the session is not attached.
func (s *Shard) unloggedAttachFailed(c *request.Client, session uint64, st protocol.Status, text string) {
	c.Unbind(session, st == protocol.StatusSessionExpired)
	switch st {
	case protocol.StatusSessionExpired:
		c.Append(protocol.KindSessionEnded, 0, s.ID(),
			&protocol.SessionEnded{Session: session, Reason: protocol.EndExpired, Message: text})
	default:
		// The client attaches again with a higher epoch when it is back.
		c.Close(transport.Graceful, protocol.StatusUnavailable,
			"the shard could not log an attach of this connection; reconnect and attach again")
	}
}

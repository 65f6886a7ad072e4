package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// leaderSide is a [Shard] as the driver of its leader sees it.
type leaderSide Shard

var _ leaderdriver.Replica = (*leaderSide)(nil)

func (l *leaderSide) shard() *Shard { return (*Shard)(l) }

func (l *leaderSide) View(fn func(*shard.Machine)) { l.machine.view(fn) }

func (l *leaderSide) Barrier(fn func(ok bool)) { l.barriers.add(fn) }

func (l *leaderSide) Submit(c shard.Command, id uint64) bool {
	return l.proposals.SubmitInternal(c, proposal.Waiter{Task: id}) == protocol.StatusOK
}

func (l *leaderSide) RequestTick() { l.proposals.RequestTick() }

func (l *leaderSide) Send(to uint64, msg []byte) {
	if l.cfg.Messages != nil {
		l.cfg.Messages.Send(to, l.cfg.ID, msg)
	}
}

func (l *leaderSide) Pong(conn, ping uint64) { l.sink.Pong(l.shard(), conn, ping) }

func (l *leaderSide) Cut(conn uint64, reason string) { l.sink.Cut(l.shard(), conn, reason) }

func (l *leaderSide) Detach(conn uint64) { l.sink.Detach(l.shard(), conn) }

func (l *leaderSide) Heard(conn uint64) time.Duration {
	if l.cfg.Heard == nil {
		return 0
	}
	return l.cfg.Heard(conn)
}

func (l *leaderSide) PublishLogTime(term, now, logTime uint64, runs bool) {
	l.logTime.publish(term, now, logTime, runs)
}

func (l *leaderSide) SelfCheck(m *shard.Machine) uint64 {
	p := &l.barriers.periods
	if m != nil {
		p.selfCheck.Store(m.SelfCheck())
		p.grace.Store(m.Grace())
	}
	return uint64(p.leader() / time.Millisecond)
}

func (l *leaderSide) Now() uint64 { return millis(l.clock) }

func (l *leaderSide) LeaderTime(ms uint64) uint64 { return withoutSkips(l.clock, ms) }

// memberSide is a [Shard] as the members' part of its leader sees it.
type memberSide struct {
	*leaderSide
	leaderdriver.MemberSink
}

var _ leaderdriver.MemberReplica = memberSide{}

func (m memberSide) MembersFailed(origins []Origin, st protocol.Status) {
	m.sink.Failed(m.shard(), origins, st)
}

func (m memberSide) MembersTicked() { m.cfg.Relay.MembersTicked(m.shard()) }

// limitSide is a [Shard] as the part of rate limits sees it.
type limitSide struct {
	*Shard
	LimitSink
}

var _ leaderdriver.LimitReplica = limitSide{}

package shardhost

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// processCounts are what happened to the processes of a shard since its replica started here, as
// every replica sees it in the log.
type processCounts struct {
	started, joined, left, returned atomic.Uint64
	ended                           [protocol.RoundFailed + 1]atomic.Uint64
	// what was not told to a member because its connection had too much to read; it comes again
	undelivered atomic.Uint64
}

// count counts the changes of an entry. The leader measures the rounds that ended, too.
func (m *memberSink) count(rep *replica.Shard, changes []shard.ProcessChange) {
	n := &m.counts
	for i := range changes {
		x := &changes[i]
		switch x.Kind {
		case protocol.ProcessStarted:
			n.started.Add(1)
		case protocol.ProcessJoined:
			n.joined.Add(1)
		case protocol.ProcessLeft:
			n.left.Add(1)
		case protocol.ProcessReturned:
			n.returned.Add(1)
		case protocol.ProcessRoundEnded:
			if int(x.Outcome) < len(n.ended) {
				n.ended[x.Outcome].Add(1)
			}
			if m.host.Leading() {
				m.measure(rep, x)
			}
		}
	}
}

// measure takes how long a round lasted, in log time.
func (m *memberSink) measure(rep *replica.Shard, x *shard.ProcessChange) {
	var (
		e  protocol.ProcessHistoryRound
		ok bool
	)
	rep.View(func(machine *shard.Machine) {
		if v, err := machine.Processes().Find(x.Node, x.Name); err == nil {
			e, ok = v.Latest()
		}
	})
	if !ok || e.Epoch != x.Epoch {
		return // it is gone, or another one ended in the same entry
	}
	m.host.serving.Metrics.Round(time.Duration(e.Duration)*time.Millisecond, time.Duration(e.Prepared)*time.Millisecond)
}

// phases are the names of the phases of a process, as labels.
var phases = [...]string{"idle", "waiting", "preparing", "coordinating", "completing", "completed"}

// maxProcessesPerView is how many processes are looked at while the log waits.
const maxProcessesPerView = 10_000

// countByPhase counts the processes that are here now, by phase, and their members.
func (m *memberSink) countByPhase() (byPhase [len(phases)]int, members int) {
	var node uint64
	var name []byte
	for more := true; more; {
		more = false
		left := maxProcessesPerView
		m.host.Replica().View(func(machine *shard.Machine) {
			machine.Processes().From(node, name, func(v shard.ProcessView) bool {
				if left--; left < 0 {
					node, name, more = v.Node(), append(name[:0], v.Name()...), true
					return false
				}
				if int(v.Phase()) < len(byPhase) {
					byPhase[v.Phase()]++
				}
				members += v.Len()
				return true
			})
		})
	}
	return byPhase, members
}

// writeProcesses shows the processes of each shard, and what happened to them since the shard's
// replica started here.
func writeProcesses(p *metrics.Page, shards []*Shard) {
	for _, d := range shards {
		shard := metrics.ID(d.ID())
		byPhase, members := d.memberSink.countByPhase()
		for i, n := range byPhase {
			p.Write(metrics.Processes, n, shard, phases[i])
		}
		n := &d.memberSink.counts
		for o := protocol.RoundCompleted; int(o) < len(n.ended); o++ {
			p.Write(metrics.ProcessRoundsEnded, n.ended[o].Load(), shard, o.String())
		}
		p.Write(metrics.ProcessMembers, members, shard)
		p.Write(metrics.ProcessRoundsStarted, n.started.Load(), shard)
		p.Write(metrics.ProcessJoins, n.joined.Load(), shard)
		p.Write(metrics.ProcessLeaves, n.left.Load(), shard)
		p.Write(metrics.ProcessReturns, n.returned.Load(), shard)
		p.Write(metrics.ProcessUndelivered, n.undelivered.Load(), shard)
		relayed := d.Replica().RelayStats()
		p.Write(metrics.ProcessRequests, relayed.Requests, shard)
		p.Write(metrics.ProcessRepeated, relayed.Repeated+relayed.Redelivered, shard)
		p.Write(metrics.ProcessOverflowed, relayed.Overflows, shard)
		p.Write(metrics.ProcessStale, relayed.Stale, shard)
		p.Write(metrics.ProcessReplies, relayed.Replies, shard)
		p.Write(metrics.ProcessRepliesRefused, relayed.Refused, shard)
		p.Write(metrics.ProcessPending, relayed.Pending, shard)
		p.Write(metrics.ProcessPendingBytes, relayed.PendingBytes, shard)
	}
}

package serving

import (
	"io"
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
	undelivered                     atomic.Uint64 // what was not told to a member because its connection had too much to read; it comes again
}

// count counts the changes of an entry. The leader measures the rounds that ended, too.
func (p *memberSink) count(rep *replica.Shard, changes []shard.ProcessChange) {
	n := &p.counts
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
			if p.host.Leading() {
				p.measure(rep, x)
			}
		}
	}
}

// measure takes how long a round lasted, in log time.
func (p *memberSink) measure(rep *replica.Shard, x *shard.ProcessChange) {
	var (
		e  protocol.ProcessHistoryRound
		ok bool
	)
	rep.View(func(m *shard.Machine) {
		if v, err := m.Process(x.Node, x.Name); err == nil {
			e, ok = v.Latest()
		}
	})
	if !ok || e.Epoch != x.Epoch {
		return // it is gone, or another one ended in the same entry
	}
	p.host.serving.Metrics.Round(time.Duration(e.Duration)*time.Millisecond, time.Duration(e.Prepared)*time.Millisecond)
}

// phases are the names of the phases of a process, as labels.
var phases = [...]string{"idle", "waiting", "preparing", "coordinating", "completing", "completed"}

// maxProcessesPerView is how many processes are looked at while the log waits.
const maxProcessesPerView = 10_000

// countByPhase counts the processes that are here now, by phase, and their members.
func (p *memberSink) countByPhase() (byPhase [len(phases)]int, members int) {
	var node uint64
	var name []byte
	for more := true; more; {
		more = false
		left := maxProcessesPerView
		p.host.Raft().View(func(m *shard.Machine) {
			m.ProcessesFrom(node, name, func(v shard.ProcessView) bool {
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
// replica started here. Counters of rounds and members are those of every replica; the others count
// where the shard is led. There are two histograms of log time at the leader, too:
// signalbox_process_round_seconds and signalbox_process_prepare_seconds. Behind signalbox_process
// the names are these:
//
//	es                            by phase: one that stays preparing waits for a member
//	_members                      with absent ones that keep a place by their key
//	_rounds_started_total
//	_rounds_ended_total           by outcome: completed; cancelled; failed, and tried again
//	_joins_total, _leaves_total
//	_returns_total                members that came back by their key without a round
//	_requests_total               messages between members, each receiver counted
//	_requests_repeated_total      delivered again: unanswered, or on a new connection
//	_requests_overflowed_total    refused because too much is unanswered
//	_requests_pending, _requests_pending_bytes
//	_replies_total
//	_replies_refused_total        the receiver's handler failed
//	_messages_stale_total         of rounds that are over
//	_undelivered_total            the member's connection had much to read; they come again
func writeProcesses(w io.Writer, shards []*Shard) {
	for _, d := range shards {
		p := d.memberSink
		byPhase, members := p.countByPhase()
		for i, n := range byPhase {
			metrics.Write(w, "signalbox_processes", metrics.Labels("shard", d.ID(), "phase", phases[i]), n)
		}
		for o := protocol.RoundCompleted; int(o) < len(p.counts.ended); o++ {
			metrics.Write(w, "signalbox_process_rounds_ended_total", metrics.Labels("shard", d.ID(), "outcome", o), p.counts.ended[o].Load())
		}
		relayed := d.Raft().RelayStats()
		metrics.WriteAll(w, "signalbox_process_", metrics.Labels("shard", d.ID()),
			"members", members,
			"rounds_started_total", p.counts.started.Load(),
			"joins_total", p.counts.joined.Load(),
			"leaves_total", p.counts.left.Load(),
			"returns_total", p.counts.returned.Load(),
			"undelivered_total", p.counts.undelivered.Load(),
			"requests_total", relayed.Requests,
			"requests_repeated_total", relayed.Repeated+relayed.Redelivered,
			"requests_overflowed_total", relayed.Overflows,
			"messages_stale_total", relayed.Stale,
			"replies_total", relayed.Replies,
			"replies_refused_total", relayed.Refused,
			"requests_pending", relayed.Pending,
			"requests_pending_bytes", relayed.PendingBytes,
		)
	}
}

package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// fail reports that batches were never applied and never will be.
func (p *proposer) fail(list []*proposal.Batch, st protocol.Status) {
	s := p.s
	for _, b := range list {
		if len(b.Origins) > len(b.Waiters) {
			s.sink.Failed(s, b.Origins, st)
		}
		for i := range b.Waiters {
			w := &b.Waiters[i]
			if w.Done != nil {
				w.Done(protocol.Errorf(st,
					"shard %d lost its leadership here before this was applied; ask its leader again", s.cfg.ID))
			} else {
				s.tasks.Done(w.Task, false)
			}
		}
	}
}

// cutUndetermined ends the batches in flight without an outcome: this replica can no longer learn
// it from the log. It closes the connections: their clients send again elsewhere and get the first
// reply from the request memory.
func (p *proposer) cutUndetermined(reason string) {
	s := p.s
	var last uint64
	for _, b := range s.proposals.TakeInFlight() {
		for _, o := range b.Origins {
			if o.Conn != 0 && o.Conn != last {
				last = o.Conn
				s.sink.Cut(s, o.Conn, reason)
			}
		}
		for i := range b.Waiters {
			if w := &b.Waiters[i]; w.Done != nil {
				w.Done(protocol.Errorf(protocol.StatusUnavailable, "%s; ask again", reason))
			}
		}
	}
}

package shard

import "github.com/signalbox-dev/signalbox/protocol"

// History reads the holds of a semaphore that ended last. Errors: BAD_REQUEST, WRONG_SHARD,
// NOT_FOUND.
func (r Semaphores) History(req *protocol.SemaphoreHistory, out *protocol.SemaphoreHistoryReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	b, err := r.bucket(req.Node, req.Name)
	if err != nil {
		return err
	}
	s := r.m.semaphores.lookup(b, req.Node, req.Name)
	if s == nil {
		return errNoSemaphore
	}
	*out = protocol.SemaphoreHistoryReply{Index: r.m.applied, Holds: out.Holds[:0]}
	q := s.queue()
	if q == nil {
		return nil
	}
	ended := q.History()
	for i := len(ended) - 1; i >= 0; i-- {
		h := &ended[i]
		out.Holds = append(out.Holds, protocol.HistoryHold{Token: h.Token, Session: h.Session,
			Description: h.Description, Count: h.Count, Slots: h.Slots, Since: h.Since, Until: h.Until, Cause: h.Cause})
	}
	return nil
}

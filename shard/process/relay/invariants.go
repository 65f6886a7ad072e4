package relay

import (
	"fmt"
	"maps"
)

// Check returns an invariant that does not hold, or nil: every request found by its key lies in the
// mailboxes, once at the receiver and once at the sender, and the sums are right. It is for tests
// and for builds with the invariants tag.
func (r *Relay) Check() error {
	in, out, bytes := 0, 0, 0
	last := uint64(0)
	for i, m := range r.members {
		if i > 0 && m.session <= last {
			return fmt.Errorf("mailbox of %d is out of order", m.session)
		}
		last = m.session
		sum, sent := 0, make(map[uint64]int)
		for e := range m.inbox.all() {
			if e.to != m.session || e.receiver != m || r.pending[e.messageKey] != e {
				return fmt.Errorf("request %v is in the mailbox of %d", e.messageKey, m.session)
			}
			sum += len(e.payload)
			in++
		}
		for e := range m.outbox.all() {
			if e.from != m.session || e.sender != m || r.pending[e.messageKey] != e || e.number < m.low {
				return fmt.Errorf("request %v is among those of %d", e.messageKey, m.session)
			}
			sent[e.to]++
			out++
		}
		if sum != m.bytes {
			return fmt.Errorf("mailbox of %d has %d bytes and says %d", m.session, sum, m.bytes)
		}
		if !maps.Equal(sent, m.unanswered) {
			return fmt.Errorf("%d has sent %v by receiver and says %v", m.session, sent, m.unanswered)
		}
		bytes += sum
	}
	if in != len(r.pending) || out != in || bytes != r.bytes {
		return fmt.Errorf("%d requests lie in, %d out, %d are known; %d bytes and %d",
			in, out, len(r.pending), bytes, r.bytes)
	}
	return nil
}

package shard

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// hold is one that ended, as a semaphore's history has it.
type hold struct {
	token, session, count, since, until uint64
	description                         string
	slots                               []string
	cause                               protocol.HoldEnd
}

const (
	maxHoldDescription = 64 // bytes
	maxHoldSlots       = 8
)

// holdHistory is the holds of a semaphore that ended last.
type holdHistory struct {
	rows  uint64 // that are kept
	ended []hold // the oldest first
}

// resize keeps another number of rows.
func (h *holdHistory) resize(rows uint64) {
	h.rows = rows
	h.ended = h.ended[len(h.ended)-min(len(h.ended), int(rows)):]
}

// keep takes an owner in that leaves.
func (h *holdHistory) keep(m *Machine, e *entry) {
	if h.rows == 0 {
		return
	}
	text := e.session.description
	x := hold{token: e.orderID, session: e.session.id, count: e.count, since: e.since, until: m.wall,
		description: strings.ToValidUTF8(text[:min(len(text), maxHoldDescription)], ""), cause: protocol.HoldReleased}
	switch {
	case e.session.ended:
		x.cause = protocol.HoldSessionEnded
	case m.batch.boundCause != 0:
		x.cause = m.batch.boundCause
	case m.batch.raw.kind == CmdForceRelease:
		x.cause = protocol.HoldForced
	}
	if p := e.place(); p != nil {
		x.slots = e.semaphore.rare.queue.slots.names(p.slots[:min(len(p.slots), maxHoldSlots)])
	}
	if uint64(len(h.ended)) == h.rows {
		h.ended = append([]hold(nil), h.ended[1:]...)
	}
	h.ended = append(h.ended, x)
}

// transferred notes that the hold that ended last was handed over.
func (h *holdHistory) transferred() {
	if n := len(h.ended); n > 0 && h.rows > 0 {
		h.ended[n-1].cause = protocol.HoldTransferred
	}
}

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
		return &protocol.Error{Status: protocol.StatusNotFound, Message: outcomeTable[outcomeNoSemaphore].text}
	}
	*out = protocol.SemaphoreHistoryReply{Index: r.m.applied, Holds: out.Holds[:0]}
	q := s.queue()
	if q == nil {
		return nil
	}
	for i := len(q.history.ended) - 1; i >= 0; i-- {
		h := &q.history.ended[i]
		out.Holds = append(out.Holds, protocol.HistoryHold{Token: h.token, Session: h.session,
			Description: h.description, Count: h.count, Slots: h.slots, Since: h.since, Until: h.until, Cause: h.cause})
	}
	return nil
}

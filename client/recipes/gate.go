package recipes

import (
	"context"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
)

// Gate is open or closed, for any number of sessions: a start that waits for a go, a maintenance that
// holds work back. One that does not exist is closed. The state is the data of a semaphore of the
// name, with the limit 1, that stays.
type Gate struct{ record sharedRecord[gateRecord] }

// gateRecord is the data of a gate's semaphore.
type gateRecord struct {
	Gate     bool   `json:"gate"` // true: the data of any other semaphore has no such key
	Open     bool   `json:"open"`
	Openings uint64 `json:"openings"` // how often it was opened
}

// NewGate is the gate with this name on the session's node.
func NewGate(s *client.Session, name string) *Gate {
	valid := func(r *gateRecord) bool { return r.Gate }
	return &Gate{sharedRecord[gateRecord]{s, name, "gate", 1, valid}}
}

// Open opens the gate: all that wait go on. Errors: ErrPreconditionFailed if the semaphore has
// another use; those of Session.Update.
func (g *Gate) Open(ctx context.Context) error { return g.set(ctx, "open", true) }

// Close closes the gate. Who waited while it was open goes on all the same.
func (g *Gate) Close(ctx context.Context) error { return g.set(ctx, "close", false) }

func (g *Gate) set(ctx context.Context, op string, open bool) error {
	return driver.WithOp(op, g.record.name, g.record.change(ctx, func(r *gateRecord, exists bool) (bool, error) {
		return r.set(open, exists), nil
	}))
}

// set reports whether the record changes.
func (r *gateRecord) set(open, exists bool) bool {
	if exists && r.Open == open {
		return false
	}
	if r.Gate, r.Open = true, open; open {
		r.Openings++
	}
	return true
}

// IsOpen reads whether the gate is open, at the leader.
func (g *Gate) IsOpen(ctx context.Context) (bool, error) {
	r, _, err := g.record.read(ctx)
	return r.Open, driver.WithOp("read", g.record.name, err)
}

// Wait returns nil once the gate is open, or was open at some moment since the call read it first: a
// gate that is opened and closed at once lets all pass that waited. Errors: that of ctx, or of the
// session when it ends; ErrPreconditionFailed.
func (g *Gate) Wait(ctx context.Context) error {
	var w gateWait
	return driver.WithOp("wait for", g.record.name, g.record.await(ctx, func(r *gateRecord) (bool, error) {
		return w.passes(r), nil
	}))
}

// gateWait is a wait that has read the record before, or not.
type gateWait struct {
	began    bool
	openings uint64 // when it began, or when the semaphore was deleted and created again
}

// passes reports whether the gate is open, or was since the wait began.
func (w *gateWait) passes(r *gateRecord) bool {
	if !w.began || r.Openings < w.openings { // it was deleted since, and created
		if w.began && r.Openings > 0 {
			return true
		}
		w.began, w.openings = true, r.Openings
	}
	return r.Open || r.Openings > w.openings
}

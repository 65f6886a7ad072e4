package discovery

import "time"

// Rules of health and of what is written of it.
const (
	failuresToFail = 2               // in a row
	maxSuccesses   = 16              // in a row, until a member that relapses is ready again
	relapseWindow  = 5 * time.Minute // after a recovery: to fail again within it is a relapse
	stateInterval  = 5 * time.Second // between two states that checks cause
)

// health is what checks say of a member. It is pure: times are arguments.
type health struct {
	failing   bool
	why       string    // the last failure's
	inRow     int       // results in a row that speak against the state
	successes int       // in a row that end failing; 0: it has never failed
	recovered time.Time // when it was ready again
}

// first takes the check that runs before the registration. It decides alone.
func (h *health) first(err error) {
	if err != nil {
		h.fail(err)
		h.successes = 1
	}
}

func (h *health) fail(err error) {
	h.failing, h.inRow, h.why = true, 0, shorten(err.Error(), maxWhy)
}

// result takes the next check's result.
func (h *health) result(now time.Time, err error) {
	if (err == nil) != h.failing {
		h.inRow = 0
		return
	}
	h.inRow++
	switch {
	case !h.failing && h.inRow >= failuresToFail:
		relapse := h.successes > 0 && now.Sub(h.recovered) < relapseWindow
		if h.successes = 2 * h.successes; !relapse {
			h.successes = 1
		}
		h.successes = min(h.successes, maxSuccesses)
		h.fail(err)
	case h.failing && h.inRow >= h.successes:
		h.failing, h.inRow, h.why, h.recovered = false, 0, "", now
	}
}

// status joins what decides about a member's state, and says when it is to be written. It is pure.
type status struct {
	health    health
	drained   string // why the member drains, by its own will
	requested string // why others want it to drain

	written   State // by the member's data
	writtenAt time.Time
	unsure    bool // a write has failed since: others may see what it said, or not
}

// now is the state of a member that says own of itself.
func (s *status) now(own State, why string) (State, string) {
	switch {
	case s.drained != "":
		return Draining, s.drained
	case s.requested != "":
		return Draining, s.requested
	case s.health.failing && own != Draining:
		return Failing, s.health.why
	case own == "":
		return Ready, why
	}
	return own, why
}

// due says when the state is to be written; the zero time is never. A drain is written at once, and
// so is its end. What checks find is written so often only that a check that flaps costs little.
func (s *status) due(own State) time.Time {
	state, _ := s.now(own, "")
	switch {
	case state == s.written && !s.unsure:
		return time.Time{}
	case state == Draining || s.written == Draining:
		return s.writtenAt
	}
	return s.writtenAt.Add(stateInterval)
}

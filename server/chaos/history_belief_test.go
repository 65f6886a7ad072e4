package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// checkBeliefs checks leases that were relied on: at no moment more units of a semaphore than it
// has. Limits are the highest that the semaphore ever had. A semaphore that was not created has no
// limit.
func checkBeliefs(ops []*historyOp) error {
	limit := uint64(0)
	type edge struct {
		at    int64
		enter bool
		op    *historyOp
	}
	var edges []edge
	for _, op := range ops {
		switch {
		case op.Kind == callCreate || op.Kind == callResize:
			limit = max(limit, op.Limit)
		case op.Kind == callBelieved && op.Return != neverReturned:
			edges = append(edges, edge{op.Call, true, op}, edge{op.Return, false, op})
		}
	}
	limit = cmp.Or(limit, math.MaxUint64)
	slices.SortStableFunc(edges, func(a, b edge) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		if a.enter != b.enter && !a.enter {
			return -1
		}
		return 0
	})
	var held []*historyOp
	for _, e := range edges {
		if !e.enter {
			if i := slices.Index(held, e.op); i >= 0 {
				held = slices.Delete(held, i, i+1)
			}
			continue
		}
		room := limit
		for _, h := range held {
			room -= min(room, h.Count)
		}
		if e.op.Count > room {
			return fmt.Errorf("%s: session %d relied on %s with token %d while others held %s of %s: %s",
				e.op.Name, e.op.Session, unitsText(e.op.Count), e.op.Token,
				unitsText(limit-room), unitsText(limit), holders(held))
		}
		if e.op.Call < e.op.Return {
			held = append(held, e.op)
		}
	}
	return nil
}

func holders(held []*historyOp) (text string) {
	for i, h := range held {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("session %d with token %d", h.Session, h.Token)
	}
	return text
}

// checkFences checks writes to a store that refuses a token lower than the highest it has seen.
// What was written never goes back. No write is refused while its lease is still relied on (Count
// is 1 then).
func checkFences(ops []*historyOp) error {
	last := uint64(0)
	for _, op := range ops { // in the store's order
		if op.Kind != callFenced {
			continue
		}
		switch {
		case op.Seen < last:
			return fmt.Errorf("%s: the store forgot token %d, and said %d", op.Name, last, op.Seen)
		case op.Result == resultOK && op.Token < op.Seen:
			return fmt.Errorf("%s: token %d was written after token %d", op.Name, op.Token, op.Seen)
		case op.Result == resultRefused && op.Count > 0:
			return fmt.Errorf("%s: token %d was refused for token %d, while session %d believed in its lease",
				op.Name, op.Token, op.Seen, op.Session)
		}
		last = max(last, op.Seen)
		if op.Result == resultOK {
			last = max(last, op.Token)
		}
	}
	return nil
}

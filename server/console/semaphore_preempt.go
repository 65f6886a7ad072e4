package console

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/client"
)

// mayBePreempted reports whether waiters may preempt owners.
func (s *semaphoreView) mayBePreempted() bool {
	return s.sem.Config != nil && s.sem.Config.Preempt != client.PreemptOff
}

// hasBounds reports whether a hold that is shown ends by itself, or may.
func (s *semaphoreView) hasBounds() bool {
	return s.sem.Config != nil && (s.sem.Config.MaxHold > 0 || s.sem.Config.Grace > 0) ||
		slices.ContainsFunc(s.owners, func(o client.Owner) bool { return o.Left > 0 })
}

// preemptedFact says which owners waiters may preempt, and how long the owners have.
func preemptedFact(o *client.SemaphoreConfig) fact {
	c := text("any owner")
	if o.Preempt == client.PreemptLower {
		c = text("owners of a lower level")
	}
	if c.Note = "if a waiter needs their units; they are only asked"; o.Grace > 0 {
		c.Note = "if a waiter needs their units, within " + durationText(o.Grace)
	}
	if o.MinHold > 0 {
		c.Note += " after " + durationText(o.MinHold) + " of holding"
	}
	return fact{"preempt", "Waiters may preempt", c}
}

// preemptedCell shows that a waiter preempts an owner.
func preemptedCell(o *client.Owner) cell {
	switch {
	case o.Silent && o.Preempted:
		return cell{Text: "preempted, silent", Kind: "bad", Note: "it does not answer, and keeps its units"}
	case o.Silent:
		return cell{Text: "silent", Kind: "warn", Note: "it did not answer when it was preempted"}
	case o.Preempted:
		return cell{Text: "preempted", Kind: "warn"}
	}
	return none()
}

// askedText says how many owners are preempted; empty: none is.
func (s *semaphoreView) askedText() string {
	n := uint64(0)
	for i := range s.owners {
		if s.owners[i].Preempted {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return " 1 owner is preempted."
	}
	return " " + group(n) + " owners are preempted."
}

// silentNotes name the owners that are preempted and do not answer: somebody has to see to them.
func (s *semaphoreView) silentNotes() (notes []note) {
	for i := range s.owners {
		if o := &s.owners[i]; o.Silent && o.Preempted {
			notes = append(notes, note{Tone: "bad",
				Text: fmt.Sprintf("The owner with token %s, “%s”, was preempted, and does not answer. "+
					"It keeps its units until it releases them, its session ends, or an operator releases them by force.",
					group(o.Token), visible(o.Description))})
		}
	}
	return notes
}

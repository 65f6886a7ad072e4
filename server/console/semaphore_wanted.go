package console

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/client"
)

// mayBeWanted reports whether waiters may want units back from owners.
func (s *semaphoreView) mayBeWanted() bool {
	return s.sem.Options != nil && s.sem.Options.Wanted != client.WantedOff
}

// hasBounds reports whether a hold that is shown ends by itself, or may.
func (s *semaphoreView) hasBounds() bool {
	return s.sem.Options != nil && (s.sem.Options.MaxHold > 0 || s.sem.Options.Grace > 0) ||
		slices.ContainsFunc(s.owners, func(o client.Owner) bool { return o.Left > 0 })
}

// wantedFact says whose units waiters may want back, and how long the owners have.
func wantedFact(o *client.SemaphoreOptions) fact {
	c := text("any owner")
	if o.Wanted == client.WantedHigher {
		c = text("owners of a lower level")
	}
	if c.Note = "if a waiter needs their units; they are only asked"; o.Grace > 0 {
		c.Note = "if a waiter needs their units, within " + durationText(o.Grace)
	}
	if o.MinHold > 0 {
		c.Note += " after " + durationText(o.MinHold) + " of holding"
	}
	return fact{"wanted", "Who yields to waiters", c}
}

// wantedCell is what a waiter wants of an owner.
func wantedCell(o *client.Owner) cell {
	switch {
	case o.Silent && o.Wanted:
		return cell{Text: "asked to yield, silent", Kind: "bad", Note: "it does not answer, and keeps its units"}
	case o.Silent:
		return cell{Text: "silent", Kind: "warn", Note: "it did not answer when it was asked to yield"}
	case o.Wanted:
		return cell{Text: "asked to yield", Kind: "warn"}
	}
	return none()
}

// askedText says how many owners are asked to yield; empty: none is.
func (s *semaphoreView) askedText() string {
	n := uint64(0)
	for i := range s.owners {
		if s.owners[i].Wanted {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return " 1 owner is asked to yield."
	}
	return " " + group(n) + " owners are asked to yield."
}

// silentNotes name the owners that are asked to yield and do not answer: somebody has to see to them.
func (s *semaphoreView) silentNotes() (notes []note) {
	for i := range s.owners {
		if o := &s.owners[i]; o.Silent && o.Wanted {
			notes = append(notes, note{Tone: "bad", Text: fmt.Sprintf("The owner with token %s, “%s”, was asked to yield, and does not answer. "+
				"It keeps its units until it releases them, its session ends, or an operator releases them by force.",
				group(o.Token), visible(o.Description))})
		}
	}
	return notes
}

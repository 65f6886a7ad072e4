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
	return s.sem.Options != nil && s.sem.Options.MaxHold > 0 ||
		slices.ContainsFunc(s.owners, func(o client.Owner) bool { return o.Left > 0 })
}

// wantedFact says whose units waiters may want back, and how long the owners have.
func wantedFact(o *client.SemaphoreOptions) fact {
	c := text("any owner, when a waiter needs its units")
	if o.Wanted == client.WantedHigher {
		c = text("an owner of a lower level, when a waiter needs its units")
	}
	if c.Note = "it is only told"; o.Grace > 0 {
		c.Note = fmt.Sprintf("it has %s to yield, %s after the grant at the earliest", o.Grace, o.MinHold)
	}
	return fact{"wanted", "Who is to yield", c}
}

// wantedCell is what a waiter wants of an owner.
func wantedCell(o *client.Owner) cell {
	switch {
	case o.Silent && o.Wanted:
		return cell{Text: "wanted, silent", Kind: "bad", Note: "it has not yielded in time, and keeps its units"}
	case o.Silent:
		return cell{Text: "silent", Kind: "warn", Note: "it did not yield in time when it was wanted"}
	case o.Wanted:
		return cell{Text: "wanted", Kind: "warn"}
	}
	return cell{}
}

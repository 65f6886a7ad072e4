package console

import (
	"github.com/signalbox-dev/signalbox/client"
)

// maxHoldFact says how long a hold lasts at most.
func maxHoldFact(o *client.SemaphoreConfig) fact {
	c := cell{Text: durationText(o.MaxHold), Note: "then it ends by itself"}
	if o.Extend {
		c.Note = "then it ends by itself, unless its owner asks for more time"
	}
	return fact{"max-hold", "Longest hold", c}
}

// leftCell is how long it takes until an owner's hold ends by itself.
func leftCell(o *client.Owner) cell {
	if o.Left == 0 {
		return cell{Text: "–", Kind: "num quiet none"}
	}
	return until(o.Left)
}

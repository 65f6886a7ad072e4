package queue

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Hold is one that ended.
type Hold struct {
	Token, Session, Count, Since, Until uint64
	Description                         string
	Slots                               []string
	Cause                               protocol.HoldEnd
	Ending                              *protocol.Ending // with HoldSessionEnded; nil: it is not known
}

const (
	maxHoldDescription = 64 // bytes
	maxHoldSlots       = 8
)

// history is the holds of a semaphore that ended last, the oldest first. It is never changed in
// place.
type history []Hold

// add adds a hold, and drops the oldest one beyond rows.
func (t *history) add(h Hold, rows uint64) {
	h.Description = strings.ToValidUTF8(h.Description[:min(len(h.Description), maxHoldDescription)], "")
	list := *t
	if uint64(len(list)) == rows {
		list = append([]Hold(nil), list[1:]...)
	}
	*t = append(list, h)
}

func (t *history) trim(rows uint64) { *t = (*t)[len(*t)-min(len(*t), int(rows)):] }

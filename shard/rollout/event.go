package rollout

import "github.com/signalbox-dev/signalbox/protocol"

func isReelection(r protocol.TrackReason) bool {
	return r >= protocol.ReasonExplicit && r <= protocol.ReasonOperator
}

// Events collects what leaves one call, in order. The zero value is ready; Reset keeps the memory.
type Events struct {
	List []protocol.TrackEvent
}

// Reset forgets the changes and the references they hold.
func (e *Events) Reset() {
	clear(e.List)
	e.List = e.List[:0]
}

package client

import (
	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// WatchResult is how a one-shot watch ended. If both are false, a change may have been missed,
// because the connection was lost, another watch replaced this one, or the shard's leader changed:
// describe the semaphore again.
type WatchResult struct {
	DataChanged   bool
	OwnersChanged bool
}

// WatchMask selects what a one-shot watch looks for.
type WatchMask uint8

const (
	OnData   WatchMask = WatchMask(protocol.WatchData)   // other bytes; deletion
	OnOwners WatchMask = WatchMask(protocol.WatchOwners) // an owner more or less, a count lowered, an owner's data; deletion
)

// oneShot is a one-shot watch until it fires.
type oneShot struct {
	core.OneShot
	ch chan WatchResult // capacity 1
}

// Done implements core.Waiter: the watch has fired.
func (o *oneShot) Done() {
	o.ch <- WatchResult{DataChanged: o.DataChanged, OwnersChanged: o.OwnersChanged}
}

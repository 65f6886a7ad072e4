package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

const (
	// slowDiskAfter is how long a write to the log may take before this instance is not ready.
	// After logstore's limit the process ends.
	slowDiskAfter = 5 * time.Second
	// leaveInterval is the time between two instances of a cluster whose disks fill at the same
	// time: the later one checks whether it still has to go.
	leaveInterval = 10 * time.Second
)

// unservable is an error about a log that must not be served, with the operator's remedy.
type unservable struct{ error }

func (e *unservable) Unwrap() error { return e.error }

func (e *unservable) Error() string {
	return fmt.Sprintf("%v; if other instances of the cluster are left, expel this one and let it join on a new data folder; if none is, restore a backup, or make one of this folder with \"signalbox cluster recover --accept-loss\"",
		e.error)
}

// withRecovery adds the remedy to an error about the log.
func withRecovery(err error) error {
	switch e := (*unservable)(nil); {
	case errors.As(err, &e):
		return err
	case errors.Is(err, logstore.ErrRolledBack), errors.Is(err, logstore.ErrNoWatermark),
		errors.Is(err, logstore.ErrDamaged):
		return &unservable{err}
	}
	return err
}

package console

import (
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// semaphoreKind is what programs use a semaphore as. Recipes are conventions over semaphores, so it
// is known by the name, the limit and how units are held.
type semaphoreKind string

const (
	kindEphemeral     semaphoreKind = "ephemeral"
	kindPersistent    semaphoreKind = "persistent"
	kindConfiguration semaphoreKind = "configuration"
	// One session holds all units of the limit Max. The leader of an election does nothing else than
	// the holder of a lock, so they are one kind.
	kindWhole semaphoreKind = "lock or election"
	// Sessions hold single units of the limit Max: members, or readers of a lock.
	kindShared semaphoreKind = "service or shared lock"
)

func kindOf(name string, limit, used uint64, ephemeral bool) semaphoreKind {
	switch {
	case strings.HasPrefix(name, client.ConfigPrefix):
		return kindConfiguration
	case limit == client.Max && used == client.Max:
		return kindWhole
	case limit == client.Max && used > 0:
		return kindShared
	case ephemeral:
		return kindEphemeral
	}
	return kindPersistent
}

func kindOfInfo(s *client.SemaphoreInfo) semaphoreKind {
	return kindOf(s.Name, s.Limit, s.Used, s.Ephemeral)
}

// isService reports whether any owner is a member of a service: its data is an address.
func isService(limit, used uint64, owners []client.Owner) bool {
	if limit != client.Max || used == client.Max {
		return false
	}
	for i := range owners {
		if _, err := discovery.ParseEndpoint(owners[i].Data); err == nil {
			return true
		}
	}
	return false
}

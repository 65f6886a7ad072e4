package shard

// expiringSet is a set of keys that are remembered for Retention of log time. Keys come in order of
// time, so they go in order, from a queue.
type expiringSet[K comparable] struct {
	until map[K]uint64
	queue []expiringKey[K]
	base  uint64 // number of queue[0] since the beginning
}

type expiringKey[K comparable] struct {
	key   K
	until uint64 // last log time at which it is remembered
}

func newExpiringSet[K comparable]() expiringSet[K] { return expiringSet[K]{until: make(map[K]uint64)} }

// has reports whether the key is remembered at this log time.
func (e *expiringSet[K]) has(key K, now uint64) bool {
	until, ok := e.until[key]
	return ok && now <= until
}

// add remembers a key from now on. One that is remembered already stays as it is.
func (e *expiringSet[K]) add(key K, now uint64) {
	if e.has(key, now) {
		return
	}
	e.put(key, addSaturated(now, Retention))
}

func (e *expiringSet[K]) put(key K, until uint64) {
	e.until[key] = until
	e.queue = append(e.queue, expiringKey[K]{key, until})
}

// forget drops keys whose time is over, a bounded number at a time; aside is called with each and
// its number before it goes.
func (e *expiringSet[K]) forget(now uint64, limit int, aside func(number uint64, k expiringKey[K])) {
	for ; limit > 0 && len(e.queue) > 0 && e.queue[0].until < now; limit-- {
		k := e.queue[0]
		if aside != nil {
			aside(e.base, k)
		}
		if e.until[k.key] == k.until {
			delete(e.until, k.key)
		}
		e.queue[0] = expiringKey[K]{}
		e.queue = e.queue[1:]
		e.base++
	}
}

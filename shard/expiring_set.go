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
func (r *expiringSet[K]) has(key K, now uint64) bool {
	until, ok := r.until[key]
	return ok && now <= until
}

// add remembers a key from now on. One that is remembered already stays as it is.
func (r *expiringSet[K]) add(key K, now uint64) {
	if r.has(key, now) {
		return
	}
	r.put(key, addSaturated(now, Retention))
}

func (r *expiringSet[K]) put(key K, until uint64) {
	r.until[key] = until
	r.queue = append(r.queue, expiringKey[K]{key, until})
}

// forget drops keys whose time is over, a bounded number at a time; aside is called with each and
// its number before it goes.
func (r *expiringSet[K]) forget(now uint64, limit int, aside func(number uint64, k expiringKey[K])) {
	for ; limit > 0 && len(r.queue) > 0 && r.queue[0].until < now; limit-- {
		k := r.queue[0]
		if aside != nil {
			aside(r.base, k)
		}
		if r.until[k.key] == k.until {
			delete(r.until, k.key)
		}
		r.queue[0] = expiringKey[K]{}
		r.queue = r.queue[1:]
		r.base++
	}
}

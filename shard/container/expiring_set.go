package container

// ExpiringSet is a set of keys that are remembered until a time. Keys are added in order of that
// time, so they go in order, from a queue.
type ExpiringSet[K comparable] struct {
	until map[K]uint64
	queue []ExpiringKey[K]
	base  uint64 // number of queue[0] since the beginning
}

// ExpiringKey is a key and the last moment at which it is remembered.
type ExpiringKey[K comparable] struct {
	Key   K
	Until uint64
}

// NewExpiringSet returns an empty set.
func NewExpiringSet[K comparable]() ExpiringSet[K] {
	return ExpiringSet[K]{until: make(map[K]uint64)}
}

// Has reports whether the key is remembered at this time.
func (e *ExpiringSet[K]) Has(key K, now uint64) bool {
	until, ok := e.until[key]
	return ok && now <= until
}

// Add adds a key that is not remembered now.
func (e *ExpiringSet[K]) Add(key K, until uint64) {
	e.until[key] = until
	e.queue = append(e.queue, ExpiringKey[K]{key, until})
}

// Queue returns the keys in order of time. A key that was added again after its time, and not yet
// forgotten, is there twice. The slice is good until the set changes.
func (e *ExpiringSet[K]) Queue() []ExpiringKey[K] { return e.queue }

// Base returns the number of the first key in the queue, counted from the first one ever added.
func (e *ExpiringSet[K]) Base() uint64 { return e.base }

// End returns the number of the next key to be added.
func (e *ExpiringSet[K]) End() uint64 { return e.base + uint64(len(e.queue)) }

// At returns the key with a number from Base to End-1.
func (e *ExpiringSet[K]) At(number uint64) ExpiringKey[K] { return e.queue[number-e.base] }

// Forget removes keys whose time is over, at most limit of them. It calls aside, if it is not nil,
// with each and its number before it goes.
func (e *ExpiringSet[K]) Forget(now uint64, limit int, aside func(number uint64, k ExpiringKey[K])) {
	for ; limit > 0 && len(e.queue) > 0 && e.queue[0].Until < now; limit-- {
		k := e.queue[0]
		if aside != nil {
			aside(e.base, k)
		}
		if e.until[k.Key] == k.Until {
			delete(e.until, k.Key)
		}
		e.queue[0] = ExpiringKey[K]{}
		e.queue = e.queue[1:]
		e.base++
	}
}

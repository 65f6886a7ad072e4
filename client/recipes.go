package client

import "time"

// Mutex is the lock with this name on the session's node.
func (s *Session) Mutex(name string) *Mutex { return &Mutex{s, name} }

// RWMutex is the read-write lock with this name on the session's node.
func (s *Session) RWMutex(name string) *RWMutex { return &RWMutex{Mutex{s, name}} }

// Once is the task with this name on the session's node, which runs once in each period of a length.
func (s *Session) Once(name string, every time.Duration, opts ...OnceOption) *Once {
	o := &Once{s: s, name: name, every: every}
	for _, f := range opts {
		f(o)
	}
	return o
}

// Gate is the gate with this name on the session's node.
func (s *Session) Gate(name string) *Gate { return newGate(s, name) }

// Latch is the latch with this name on the session's node, which opens when n keys are done, 1 to
// MaxLatch.
func (s *Session) Latch(name string, n int) *Latch { return newLatch(s, name, n) }

// Barrier is the barrier with this name on the session's node, at which n parties meet, 1 to
// MaxBarrier.
func (s *Session) Barrier(name string, n int) *Barrier { return newBarrier(s, name, n) }

// Election is the election with this name on the session's node.
func (s *Session) Election(name string, opts ...ElectionOption) *Election {
	e := &Election{ElectionReader: s.node.Election(name), s: s}
	for _, f := range opts {
		f(e)
	}
	return e
}

// Service is the service with this name on the session's node.
func (s *Session) Service(name string) *Service {
	return &Service{ServiceReader: s.node.Service(name), s: s}
}

// Config is the configuration with this name on the session's node. Names are 1 to 1,016 bytes
// long.
func (s *Session) Config(name string) *ConfigValue {
	return &ConfigValue{ConfigReader: s.node.Config(name), s: s}
}

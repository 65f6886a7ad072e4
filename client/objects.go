package client

// Mutex is the lock with this name on the session's node.
func (s *Session) Mutex(name string) *Mutex { return &Mutex{s, name} }

// RWMutex is the read-write lock with this name on the session's node.
func (s *Session) RWMutex(name string) *RWMutex { return &RWMutex{Mutex{s, name}} }

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

package server

// Connections is how many clients are connected.
func (s *Server) Connections() int { return int(s.conns.count.Load()) }

// HearAll counts every open connection as heard from now. It is for tests that move a manual clock: the clients' keep-alives run in real time and cannot
// keep up with it.
func (s *Server) HearAll() {
	now := int64(s.clock.Now())
	s.conns.each(func(c *conn) { c.lastReceived.Store(now) })
}

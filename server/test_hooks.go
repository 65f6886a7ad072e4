package server

import "github.com/signalbox-dev/signalbox/server/transport"

// Connections is how many clients are connected.
func (s *Server) Connections() int { return s.transport.Connections() }

// HearAll counts every open connection as heard from now. It is for tests that move a manual clock: the clients' keep-alives run in real time and cannot
// keep up with it.
func (s *Server) HearAll() {
	now := s.clock.Now()
	s.transport.Each(func(c *transport.Conn) { c.Heard(now) })
}
